"""Chains: keys, rounds, processes, files, interruptions, alignment, diagnostics."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bochner.errors import InputError, ModelFileError
from bochner.io import files
from bochner.mcmc import build
from bochner.mcmc import chain as chains_module
from bochner.mcmc import run as runs
from bochner.mcmc.alignment import aligned, rotated, rotation
from bochner.mcmc.chain import Chain, Schedule
from bochner.mcmc.conditionals.gaussian import GaussianView
from bochner.mcmc.conditionals.logistic import NegativeBinomialView
from bochner.mcmc.conditionals.views import ViewData
from bochner.mcmc.diagnostics import advice, converged, inference_data, stacked, summary
from bochner.mcmc.draws import source
from bochner.mcmc.model import Model
from bochner.mcmc.moments import Moments
from bochner.mcmc.priors import Priors
from bochner.mcmc.run import ChainFiles
from bochner.training.checkpoint import discard

SCHEDULE = Schedule(n_warmup=7, n_draws=10, thin=2, n_snapshots=3)


def model():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((6, 3))
    Y[0, 0] = np.nan
    counts = rng.poisson(2.0, (6, 2)).astype(float)
    views = (
        GaussianView("real", ViewData.of(Y), (0, 1), 3, Priors()),
        NegativeBinomialView("counts", ViewData.of(counts), (1, 2), 3, Priors()),
    )
    return Model(views, 3)


def missing_model():
    Y = np.random.default_rng(1).standard_normal((6, 4))
    Y[[0, 0, 1, 2, 2, 3, 4, 5, 5], [0, 2, 1, 0, 3, 1, 2, 0, 3]] = np.nan
    return Model((GaussianView("real", ViewData.of(Y), (0, 1), 3, Priors()),), 2)


def starts(m, n=2):
    return [m.prior_state(source(0, "start", c)) for c in range(n)]


def run(**settings):
    m = model()
    return runs.run(m, starts(m), SCHEDULE, 3, **settings)


@pytest.fixture(scope="module")
def whole():
    """One run, as it is when nothing stops it."""
    return run()


def same(one, two):
    assert one.index == two.index
    assert one.traces.keys() == two.traces.keys()
    for name, values in one.traces.items():
        np.testing.assert_array_equal(values, two.traces[name], err_msg=name)
    np.testing.assert_array_equal(one.state.x, two.state.x)
    assert [n for n, _ in one.snapshots] == [n for n, _ in two.snapshots]
    for a, b in zip(one.missing, two.missing, strict=True):
        assert a.count == b.count
        np.testing.assert_array_equal(a.mean, b.mean)
        np.testing.assert_array_equal(a.squares, b.squares)
    for (_, a), (_, b) in zip(one.snapshots, two.snapshots, strict=True):
        np.testing.assert_array_equal(a.views[1].weights, b.views[1].weights)


def test_a_chain_keeps_what_its_schedule_says(whole):
    chain = whole.chains[0]
    assert chain.index == 27
    assert chain.n_draws == 10
    assert [n for n, _ in chain.snapshots] == [3, 6, 9]
    np.testing.assert_array_equal(chain.snapshots[-1][1].x, chain.traces["latents"][-1])
    assert chain.traces["real.missing"].shape == (10, 1)


def test_all_missing_entries_have_moments_and_some_have_draws(monkeypatch):
    """80,000 missing entries of 800 draws were 512 MB."""
    m = missing_model()
    begin = [m.prior_state(source(0, "start", 0))]
    every = runs.run(m, begin, SCHEDULE, 3).chains[0].traces["real.missing"]
    assert every.shape == (10, 9)
    monkeypatch.setattr(chains_module, "KEPT_MISSING", 4)
    chain = runs.run(m, begin, SCHEDULE, 3).chains[0]
    np.testing.assert_array_equal(chain.traces["real.missing"], every[:, [0, 3, 5, 8]])
    (moments,) = chain.missing
    assert moments.count == 10
    np.testing.assert_allclose(moments.mean, every.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.std, every.std(0), rtol=1e-12)


def test_moments_are_those_of_all_draws_however_they_are_divided():
    drawn = 1e6 + np.random.default_rng(0).standard_normal((20, 3))
    parts = []
    for rows in (drawn[:7], drawn[7:8], drawn[8:]):
        moments = Moments.none(3)
        for row in rows:
            moments = moments.plus(row)
        parts.append(moments)
    pooled = parts[0].merged(parts[1]).merged(parts[2])
    assert pooled.count == 20
    np.testing.assert_allclose(pooled.mean, drawn.mean(0), rtol=1e-14)
    np.testing.assert_allclose(pooled.std, drawn.std(0), rtol=1e-9)


def test_a_chain_in_parts_is_the_chain_in_one(whole):
    m = model()
    parts = Chain.start(0, starts(m)[0])
    for n in (5, 1, 13, 100):
        parts = parts.advance(m, SCHEDULE, 3, n)
    same(whole.chains[0], parts)


def test_processes_change_no_draw(whole):
    for one, two in zip(whole.chains, run(n_jobs=2).chains, strict=True):
        same(one, two)


def test_a_chain_comes_back_from_a_file(whole, tmp_path):
    chain = whole.chains[1]
    m = model()
    start = starts(m)[1]
    files = ChainFiles(tmp_path / "run", "abc")
    files.write(chain)
    same(chain, files.read(1, m, start))
    assert files.read(0, m, start) is None


def _plus(name, value):
    return lambda t, h: t.update({name: t[name] + value})


CHANGES = {
    "unknown key": (lambda t, h: h.update(harm=1), "the file has the unknown key 'harm'"),
    "index": (lambda t, h: h.update(index="27"), "index is '27' in place of a whole number"),
    "few sweeps": (lambda t, h: h.update(index=3), "index is 3 with 10 draws"),
    "number": (lambda t, h: h.update(number=0), "number is 0 in place of 1"),
    "snapshots": (
        lambda t, h: h.update(snapshots=[3, 99, 9]),
        r"snapshots are \[3, 99, 9\] of 10",
    ),
    "missing": (
        lambda t, h: t.pop("state.1.weights"),
        "the tensor 'state.1.weights' is missing",
    ),
    "unknown": (lambda t, h: t.update(harm=torch.ones(1)), "the tensor 'harm' is unknown"),
    "shape": (
        lambda t, h: t.update({"state.x": t["state.x"].T}),
        r"the shape \(3, 6\) in place",
    ),
    "not finite": (_plus("snapshot0.0.points", np.inf), "'snapshot0.0.points' is not finite"),
    "draws": (
        lambda t, h: t.update({"trace.real.points": t["trace.real.points"][:4]}),
        "place of",
    ),
    "labels": (_plus("state.0.labels", 7), "'state.0.labels' holds what no chain does"),
    "covariances": (lambda t, h: t["state.0.covariances"].neg_(), "not positive definite"),
    "a step": (lambda t, h: t["state.step"].neg_(), "'state.step' holds what no chain does"),
    "moments": (_plus("missing.0.squares", -99.0), "squares' holds what no chain does"),
    "a variance": (
        lambda t, h: t["state.1.numbers"].neg_(),
        "'state.1.numbers' holds what no",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_chain_that_does_not_fit_is_refused(whole, tmp_path, what):
    change, text = CHANGES[what]
    stored = ChainFiles(tmp_path / "run", "abc")
    stored.write(whole.chains[1])
    path = tmp_path / "run.chain1"
    tensors, header = files.read(path, "chain", 1)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    change(tensors, header)
    files.write(path, tensors, header)
    m = model()
    with pytest.raises(ModelFileError, match=rf"a whole bochner chain file, .*{text}"):
        stored.read(1, m, starts(m)[1])


def test_stopped_and_resumed_is_never_stopped(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "SWEEPS_A_ROUND", 4)
    advance = Chain.advance
    calls = []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return advance(*args)

    monkeypatch.setattr(Chain, "advance", interrupted)
    files = ChainFiles(tmp_path / "run", "abc")
    with pytest.warns(
        UserWarning, match="Interrupted: the 4 draws of each chain so far are kept"
    ):
        part = run(checkpoint=files)
    assert part.interrupted
    assert [chain.index for chain in part.chains] == [16, 16]
    resumed = run(checkpoint=files)
    assert not resumed.interrupted
    for one, two in zip(whole.chains, resumed.chains, strict=True):
        same(one, two)
    discard(tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_of_another_model_is_refused(whole, tmp_path):
    ChainFiles(tmp_path / "run", "abc").write(whole.chains[0])
    text = "run.chain0, which belongs to other data or settings"
    with pytest.raises(InputError, match=text):
        run(checkpoint=ChainFiles(tmp_path / "run", "other"))


def test_a_warm_start_of_another_shape_is_refused():
    warm = SimpleNamespace(latents=torch.zeros(6, 2))
    text = r"Expected a warm start of shape \(6, 3\), got \(6, 2\). Fit it to the same rows"
    with pytest.raises(InputError, match=text):
        build.starts(model(), warm, 0, 2)


def test_alignment_turns_draws_and_mixes_no_private_dimensions(whole):
    m = model()
    chains = whole.chains
    result = aligned(m, chains)
    reference = chains[0].traces["latents"][0]
    np.testing.assert_allclose(result[0].traces["latents"][0], reference, atol=1e-12)
    for before, after in zip(chains, result, strict=True):
        # each dimension is seen by other views here: signs are all that is free
        np.testing.assert_allclose(
            np.abs(before.traces["latents"]), np.abs(after.traces["latents"]), atol=1e-12
        )
        number, state = after.snapshots[0]
        np.testing.assert_allclose(state.x, after.traces["latents"][number], atol=1e-12)
        np.testing.assert_allclose(
            state.views[0].points, after.traces["real.points"][number], atol=1e-12
        )
        joint = before.traces["log_joint"][number]
        assert m.log_joint(state) == pytest.approx(joint, rel=1e-10)


def test_a_state_in_other_coordinates_has_the_same_density():
    m = Model(model().views[:1], 2)
    state = m.prior_state(source(1, "start"))
    turn = rotation(state.x, np.random.default_rng(1).standard_normal((6, 2)), [[0, 1]])
    assert abs(turn[0, 1]) > 0.01
    assert m.log_joint(rotated(m, state, turn)) == pytest.approx(m.log_joint(state), rel=1e-10)


def test_draws_as_inference_data(whole):
    pytest.importorskip("arviz")
    m = model()
    draws = stacked(m, aligned(m, whole.chains))
    data = inference_data(draws)
    assert data.posterior["latents"].shape == (2, 10, 6, 3)
    assert data.posterior["counts.dispersion"].shape == (2, 10, 1)
    assert data.sample_stats["lp"].shape == (2, 10)


def test_of_many_entries_some_are_diagnosed(monkeypatch):
    arviz = pytest.importorskip("arviz")
    seen, ess = [], arviz.ess

    def recorded(dataset):
        seen.append(dataset["q"].shape)
        return ess(dataset)

    monkeypatch.setattr(arviz, "ess", recorded)
    draws = {"latents": np.random.default_rng(0).normal(size=(2, 20, 400, 3))}
    assert summary(draws)["latents"]["r_hat"] > 1.0
    assert seen == [(2, 20, 500)]


def test_short_chains_and_chains_that_disagree_are_reported(whole):
    pytest.importorskip("arviz")
    draws = stacked(model(), whole.chains)
    lines = advice(summary(draws), draws, sampled=True)
    assert "Chains: 2, draws of each: 10. That is too few for R-hat" in lines[0]
    apart = {"latents": {"r_hat": 1.8, "ess": 3.0}, "log_joint": {"r_hat": 1.2, "ess": 9.0}}
    lines = advice(apart, draws, sampled=True)
    assert any("Chains disagree, most on latents: R-hat 1.80" in line for line in lines)
    assert any("latents has 3 effective draws" in line for line in lines)


def test_long_chains_that_agree_are_not_reported():
    pytest.importorskip("arviz")
    values = np.random.default_rng(0).standard_normal((4, 400))
    draws = {"log_joint": values, "accept.latents": np.full((4, 400), 0.8)}
    assert advice(summary(draws), draws, sampled=True) == []
    assert converged(summary(draws), draws)
    draws["log_joint"] = values + np.arange(4)[:, None]
    assert not converged(summary(draws), draws)


def test_a_stuck_chain_is_reported(whole):
    draws = stacked(model(), whole.chains)
    draws["accept.latents"][0] = 0.0
    lines = advice({}, draws, sampled=True)
    assert any("Chain 0 is stuck" in line for line in lines)
    assert not any("stuck" in line for line in advice({}, draws, sampled=False))


def test_scattered_holes_do_not_hold_frequencies_back():
    """Missing entries are drawn, so that weights are integrated out of one pattern."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 2))
    waves = np.cos(x @ rng.standard_normal((2, 30)) + rng.uniform(0.0, 6.0, 30))
    Y = waves @ rng.standard_normal((30, 40)) / 4.0 + 0.2 * rng.standard_normal((40, 40))
    Y[rng.random(Y.shape) < 0.1] = np.nan
    view = GaussianView("y", ViewData.of(Y), (0, 1), 8, Priors())
    model = Model((view,), 2)
    state = replace(model.prior_state(source(0, "start")), x=x)
    kernels = []
    for index in range(250):
        state = model.sweep(state, 0, 0, index, ("frequencies", "weights"))
        phi = view.phi(state.views[0], x)
        kernels.append(phi[:10] @ phi[10:20].T)
    traces = np.array(kernels[50:]).reshape(200, -1)
    traces = (traces - traces.mean(0)) / traces.std(0)
    beside = (traces[1:] * traces[:-1]).mean(0)
    assert np.median(beside) < 0.6  # 0.74 given the weights of the other frequencies
