"""Sphinx settings: ``make docs``. Warnings are errors, every example is run, and the site opens
offline.
"""

import re
import sys
import warnings
from pathlib import Path

import bochner

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "examples")]

import accessible  # noqa: E402 - found through the path above
import formulas  # noqa: E402
import offline  # noqa: E402
import pictures  # noqa: E402
import reference  # noqa: E402

project, author, release = "bochner", "the bochner authors", bochner.__version__
project_copyright = "the bochner authors, MIT licence"
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_generated", "_templates"]
templates_path = ["_templates"]
nitpicky = True
# What is not ours has no page here: no inventory is fetched, so that the build needs no network
# either.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!bochner\.).*"),
    (r"py:.*", r"bochner\.(?!kernels|likelihoods|datasets|metrics|plots|features)[a-z_]+\..*"),
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
default_role = "py:obj"
# "fit()" beside the page of a class, which says of what
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = f"bochner {release}"
html_static_path = ["_static"]
html_css_files = ["bochner.css"]
html_favicon = "_static/favicon.svg"
# the theme calls it an error where nobody has chosen yet
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    # tables of coverage need the width, and have an entry for each of sixty
    "secondary_sidebar_items": {"**": ["page-toc"], "coverage": []},
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {
    page: []
    for page in (
        "index",
        "install",
        "start",
        "models",
        "extend",
        "background",
        "math",
        "gallery/*",
    )
}

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",  # the others are modules that pages include
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 1e9,
    "plot_gallery": True,
}
# A short fit says that it was short; a page need not repeat it.
warnings.filterwarnings("ignore", message="Training stopped after")
warnings.filterwarnings("ignore", message="Constant columns")
warnings.filterwarnings("ignore", message=r"\[IterativeImputer\]")

reference.write_api(HERE / "api")
reference.write_command_line(HERE / "_generated" / "cli.md")
pictures.write(HERE / "_generated")


def of_others(app, what, name, thing, skip, options):
    """Leave out what scikit-learn and torch define: they document it themselves."""
    return (
        True
        if (getattr(thing, "__module__", None) or "").startswith(("sklearn.", "torch."))
        else None
    )


def escape_types(app, what, name, thing, options, lines):
    """Write "(n_iter_,)" in the type of an attribute so that the underscore is no reference."""
    for i, line in enumerate(lines):
        head, colon, kind = line.partition(" : ")
        if colon:
            lines[i] = head + colon + re.sub(r"(?<=\w)_(?!\w)", r"\\_", kind)


def link_pages(app, what, name, thing, options, lines):
    """Write "docs/math.md", where a reader of the source looks, as a link to the page."""
    lines[:] = [re.sub(r"docs/(\w+)\.md", r":doc:`/\1`", line) for line in lines]


def setup(app):
    """Hook in: what is left out, what is escaped, and the check that pages open without a
    network.
    """
    app.connect("autodoc-skip-member", of_others)
    app.connect("autodoc-process-docstring", escape_types, priority=100)  # before numpydoc
    app.connect("autodoc-process-docstring", link_pages)
    accessible.connect(app)
    formulas.connect(app)
    offline.connect(app)
