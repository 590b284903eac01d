"""The import law, and the sizes of modules and functions: read from the syntax trees, deferred
imports included.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
PACKAGE = "bochner"

# The one ordered table. A module imports modules above it: lower layers, and earlier names of its
# own layer. Names are relative to the package; a package's own name stands for its __init__ and
# comes after its modules.
LAYERS: dict[str, str] = {
    "F0 foundations": """
        _typing errors extras random linalg quadrature memory processes.isolation
        processes.meeting processes.watch processes.group processes progress markup""",
    "F1 data, files, metrics": """
        data.arrays data.columns data.likelihood_names data.masks
        data.file_arrays data.row_sources data.sparse data.accepted data.validation
        data.missing data.views data.covariates
        data.stored data.support
        data.kinds data io.extensions io.csv.headers io.outputs io.csv.write
        io.columnar io.files io.schema io.request io.table io.array_files io.join
        io.annotated
        io.frames io.parquet.columns io.parquet.parts io.parquet.read io.parquet.source
        io.parquet io.containers io.sparse.rows io.sparse.turned io.sparse io.stored io.csv.text
        io.csv.files io.csv.source io.csv
        io.on_disk io.readers io metrics""",
    "F2 kernels": """
        kernels.parameters kernels.base kernels.bivariate kernels.domains kernels.function
        kernels.indefinite
        kernels.spectral_mixture kernels.stationary kernels.dirichlet_process
        kernels.nonstationary kernels.periodic kernels""",
    "F3 features": """
        features.bounds features.waves features.fourier features.maclaurin features.spherical
        features""",
    "F4 likelihoods": """
        likelihoods.densities likelihoods.likelihood likelihoods.nonconjugate likelihoods.counts
        likelihoods.poisson likelihoods.polya_gamma likelihoods.binomial
        likelihoods.categorical likelihoods.tilted likelihoods.negative_binomial likelihoods""",
    "F5 models": """
        models.limits models.sites models.lvm models.sticks models.dirichlet_posterior models""",
    "F6 regression, objectives": """
        regression.observations regression.noise regression.separate_columns
        regression.evidence regression.batched_evidence regression.weighted_grams
        regression.conjugate_gradients regression.site_steps regression.site_entries
        regression.site_passes
        regression.nonconjugate
        regression.incomplete_dense regression.incomplete regression.streamed
        regression.drawn_columns regression
        objectives.elbo objectives.stored_draws objectives.subset_sites
        objectives""",
    "F7 inference": """
        training.trainer training.checkpoint training.row_store training.row_adam
        training.row_shards training
        initialization.embeddings initialization.simple_models initialization.iterative_pca
        initialization.shared_private initialization
        dirichlet_process.local_expectations dirichlet_process.spectrum_matching
        dirichlet_process.sweeps dirichlet_process
        weight_posterior.incomplete_conditioning weight_posterior.site_conditioning
        weight_posterior.conditioning weight_posterior.posterior
        weight_posterior.downdating weight_posterior
        latent_inference.fixed_order latent_inference.entry_terms
        latent_inference.quadratic_forms latent_inference.row_bound
        latent_inference.candidate_table
        latent_inference.linear_bound latent_inference.cells latent_inference.modes
        latent_inference.candidates latent_inference.row_misfit latent_inference.mixtures
        latent_inference.predictive_modes latent_inference.many_rows latent_inference.infer
        latent_inference.grid latent_inference
        prediction.entry_statistics prediction.calibration prediction.decoding
        prediction.turned_rows prediction.row_posterior prediction.completion prediction.proposals
        prediction.row_batch prediction.row_density prediction.density prediction.latent_calibration
        prediction.diagnostics prediction.tempering prediction fitting.plan fitting.placed_rows
        fitting.row_passes fitting.landmarks
        fitting.noise_recalibration fitting.svd_compression fitting.drawn_columns fitting.data
        fitting.row_selection fitting.stacked fitting.warm_start fitting.row_moves
        fitting.multistart fitting.fit
        fitting.completion_choice fitting mcmc.draws mcmc.features mcmc.conditionals.mixture
        mcmc.priors mcmc.conditionals.slices mcmc.conditionals.latents mcmc.conditionals.weights
        mcmc.conditionals.frequencies mcmc.conditionals.views mcmc.conditionals.coordinates
        mcmc.conditionals.gaussian mcmc.conditionals.logistic mcmc.conditionals mcmc.model
        mcmc.build mcmc.moments mcmc.chain mcmc.alignment mcmc.diagnostics mcmc.run mcmc.sampled
        mcmc serialization.fitted serialization krein.frequency_mixture krein.objective
        krein.positive_spectrum krein.signed_frequencies krein.sketch krein.frequencies
        krein.radial krein.growth krein.span krein.taylor krein""",
    "F8 estimators, datasets": """
        feature_maps.sections feature_maps.base feature_maps.fourier feature_maps.krein
        feature_maps.comparators feature_maps estimators.docstrings
        estimators.settings.likelihoods estimators.settings.constraints
        estimators.settings.parameters estimators.settings.view_options estimators.settings.plans
        estimators.settings estimators.column_types estimators.tables estimators.methods.rows
        estimators.surrogates
        estimators.shards estimators.tensors
        estimators.methods.training_latents
        estimators.methods.placing estimators.methods.loadings estimators.methods.densities
        estimators.methods.prediction estimators.saving
        estimators.methods
        estimators.base estimators.lvm estimators.rflvm estimators.srflvm estimators.annotated
        estimators.loading estimators model_selection.cost model_selection.hiding
        model_selection.calibrate model_selection.component_selection
        model_selection.n_components model_selection datasets.load
        datasets.originals datasets.fetch datasets.make datasets.channel datasets testing.compare
        testing.kernels testing.likelihoods testing""",
    "F9 doors": """
        cli.parse cli.options cli.data cli.mixed_tables cli.mixed_tables.cells
        cli.mixed_tables.whole cli.align
        cli.mixed_tables.blocks cli.session cli.bench cli.show cli.sources page.dates page.encode
        page.labels page.layouts page.planes page.shapes
        summary plots.figures plots.decodings plots.labels page.views page.content plots.kernels
        page.charts plots.latents plots.loadings plots.uncertainty page plots cli.apply
        page.report cli.fit cli.info cli.report cli.rows dask __init__ demo cli.main cli
        __main__""",
}
TORCH_ONLY = ("F0", "F2", "F3", "F4", "F5", "F6")  # no numpy there
MODULE_LINES, FUNCTION_LINES = 500, 60
PACKAGE_MODULES = 16

ORDER = [name for names in LAYERS.values() for name in names.split()]
LAYER = {name: layer for layer, names in LAYERS.items() for name in names.split()}


def short(path: Path) -> str:
    """Name of a source file in the table."""
    parts = list(path.relative_to(SRC / PACKAGE).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


SOURCES = {short(path): path for path in sorted((SRC / PACKAGE).rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in SOURCES.items()}


def absolute(node: ast.ImportFrom, name: str) -> str:
    """Full name of the module that a from-import names, relative ones resolved."""
    if not node.level:
        return node.module or ""
    package = [PACKAGE, *([] if name == "__init__" else name.split("."))]
    is_package = SOURCES[name].name == "__init__.py"
    kept = package[: len(package) - node.level + (1 if is_package else 0)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def imports(name: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a module imports; `from a import b` gives a.b."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (
                (node.lineno, f"{absolute(node, name)}.{alias.name}") for alias in node.names
            )
        elif (
            isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
        ):
            called = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            if called in ("import_module", "__import__") and isinstance(
                node.args[0].value, str
            ):
                yield node.lineno, node.args[0].value


def target(full: str) -> str | None:
    """Name in the table of what an import reaches; None for other packages."""
    parts = full.split(".")
    if parts[0] != PACKAGE:
        return None
    for end in range(len(parts), 1, -1):
        if (result := ".".join(parts[1:end])) in SOURCES:
            return result
    return "__init__"


def violation(importer: str, imported: str) -> str | None:
    """What is wrong with one import, or None."""
    if imported == importer or ORDER.index(imported) < ORDER.index(importer):
        return None
    where = f"{importer} ({LAYER[importer][:2]}) imports {imported} ({LAYER[imported][:2]})"
    if LAYER[importer] == LAYER[imported]:
        return (
            f"{where}: write {imported!r} before {importer!r} in LAYERS[{LAYER[importer]!r}], "
            "or drop the import"
        )
    return (
        f"{where}: a lower layer does not know a higher one; move what is shared to "
        f"{LAYER[importer]!r} or below"
    )


def likely_layer(name: str) -> str:
    siblings = [
        layer
        for other, layer in LAYER.items()
        if other.split(".")[0] == name.split(".", maxsplit=1)[0]
    ]
    return repr(siblings[0]) if siblings else "the layer it belongs to"


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef, source: list[str]) -> int:
    """Lines of a function's body that are neither blank, comment nor docstring: a signature is
    documentation.
    """
    skipped: set[int] = set()
    if ast.get_docstring(node) is not None:
        skipped.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    return sum(
        i not in skipped
        and not source[i - 1].strip().startswith("#")
        and bool(source[i - 1].strip())
        for i in lines
    )


def test_the_table_has_every_module_once():
    assert len(ORDER) == len(set(ORDER)), "a module stands twice in LAYERS"
    missing = [
        f"add {name!r} to LAYERS[{likely_layer(name)}]"
        for name in SOURCES
        if name not in LAYER
    ]
    assert not missing, "modules without a layer in tests/test_architecture.py:\n" + "\n".join(
        missing
    )


@pytest.mark.parametrize("name", SOURCES)
def test_a_module_imports_only_what_is_below(name):
    if name not in LAYER:
        pytest.fail(f"add {name!r} to LAYERS[{likely_layer(name)}]")
    reached = ((line, target(full)) for line, full in imports(name))
    known = [(line, result) for line, result in reached if result in LAYER]
    faults = [
        f"{SOURCES[name]}:{line}: {text}"
        for line, result in known
        if (text := violation(name, result))
    ]
    assert not faults, "\n".join(faults)


def test_imported_modules_exist():
    """Also from tests and benchmarks, where imports are often deferred."""
    root = Path(__file__).parents[1]
    faults = []
    for path in sorted(
        p for d in ("src", "tests", "benchmarks") for p in (root / d).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and not node.level:
                package, _, name = (node.module or "").partition(".")
                if package == PACKAGE and name and name not in SOURCES:
                    faults.append(f"{path}:{node.lineno}: {node.module}")
    assert not faults, "imports of modules that do not exist:\n" + "\n".join(faults)


@pytest.mark.parametrize(
    "name", [name for name in SOURCES if LAYER.get(name, "").startswith(TORCH_ONLY)]
)
def test_numpy_stays_out_of_the_torch_layers(name):
    faults = [
        f"{SOURCES[name]}:{line}"
        for line, full in imports(name)
        if full.split(".")[0] == "numpy"
    ]
    assert not faults, f"{LAYER[name]} is torch only; numpy is imported at {', '.join(faults)}"


@pytest.mark.parametrize("name", SOURCES)
def test_modules_and_functions_stay_small(name):
    source = SOURCES[name].read_text().splitlines()
    assert len(source) <= MODULE_LINES, (
        f"{SOURCES[name]} has {len(source)} lines, at most {MODULE_LINES}: split it"
    )
    functions = [
        n
        for n in ast.walk(TREES[name])
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = [
        f"{SOURCES[name]}:{f.lineno} {f.name}: {n}"
        for f in functions
        if (n := code_lines(f, source)) > FUNCTION_LINES
    ]
    assert not long, f"functions of more than {FUNCTION_LINES} lines of code:\n" + "\n".join(
        long
    )


def test_new_tensors_say_their_precision():
    """The default is the program's to set: it must not change what is computed."""
    makers = {
        "zeros",
        "ones",
        "empty",
        "eye",
        "linspace",
        "logspace",
        "normal",
        "rand",
        "randn",
    }
    calls = [
        (name, node)
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("torch.")
    ]
    silent = [
        f"{SOURCES[name]}:{node.lineno}: {ast.unparse(node.func)}"
        for name, node in calls
        if ast.unparse(node.func).removeprefix("torch.") in makers
        and not {"dtype", None} & {argument.arg for argument in node.keywords}
    ]
    assert not silent, "say dtype=:\n" + "\n".join(silent)


def test_packages_stay_small():
    folders = [path.parent for path in SOURCES.values()]
    large = {str(folder): folders.count(folder) for folder in folders}
    large = {folder: n for folder, n in large.items() if n > PACKAGE_MODULES}
    assert not large, f"packages of more than {PACKAGE_MODULES} modules: {large}"


@pytest.mark.parametrize("module", ["bochner", "bochner.__main__"])
def test_importing_loads_no_torch(module):
    if target(module) not in SOURCES or (
        module.endswith("__main__") and "__main__" not in SOURCES
    ):
        pytest.skip(f"{module} does not exist yet")
    code = f"import sys, {module}; print([m for m in ('torch',) if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]", (
        f"importing {module} loads {done.stdout.strip()}: import it where it is used"
    )


def test_the_law_is_applied():
    """The checks above on imports made up here: a test that cannot fail is none."""
    assert violation("errors", "kernels.base") == (
        "errors (F0) imports kernels.base (F2): a lower layer does not know a higher one; "
        "move what is shared to 'F0 foundations' or below"
    )
    assert "write 'linalg' before 'random' in LAYERS['F0 foundations']" in str(
        violation("random", "linalg")
    )
    assert violation("__init__", "plots") is None
    assert violation("metrics", "errors") is None
    assert target("numpy.linalg") is None
    assert target("bochner.errors.InputError") == "errors"
    assert target("bochner.data.views") == "data.views"
    assert target("bochner.something") == "__init__"
    code = "def f():\n    '''Doc.\n\n    More.'''\n\n    # why\n    return 1\n"
    assert code_lines(ast.parse(code).body[0], code.splitlines()) == 1
    relative = ast.parse("from ..errors import x\nfrom . import views").body
    assert [absolute(node, "data.views") for node in relative] == [
        "bochner.errors",
        "bochner.data",
    ]
    assert absolute(relative[1], "data") == "bochner.data"
