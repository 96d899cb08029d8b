"""Boosted trees that have a share in predictions: against scikit-learn and dense algebra, and where they are chosen."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestRegressor

from gpytorch_partition import default_kernel, settings
from gpytorch_partition.presets import Options, default_model, ensemble_model
from gpytorch_partition.presets import boosted_mean as boosted
from gpytorch_partition.presets.assembly import description_of, rebuilt
from gpytorch_partition.presets.data import Blocks, TrainingData
from gpytorch_partition.presets.options import Setup
from gpytorch_partition.presets.weights_and_noise import Choice, HeldOutRows

RANDOM = np.random.RandomState(0)
FEW = Options(num_trees=10, num_slope_trees=5, num_boosted_trees=5, num_shallow_boosted_trees=5, num_folds=3)
ALWAYS = replace(FEW, least_boosting_gain=-math.inf, most_boosting_rounds=80)
X = torch.from_numpy(RANDOM.rand(250, 3) * [1.0, 100.0, 1.0] + [0.0, 50.0, 0.0])
LEVELS = torch.from_numpy(RANDOM.randint(0, 12, 250).astype(float))
NORMAL = torch.from_numpy(RANDOM.randn(250))
NEW = torch.from_numpy(RANDOM.rand(40, 3) * [1.0, 100.0, 1.0] + [0.0, 50.0, 0.0])
STEPS = 20 + 5 * ((X[:, 0] > 0.4).double() * (X[:, 1] > 90) + 0.2 * NORMAL)
TABLE = torch.column_stack([X, LEVELS]).where(torch.from_numpy(RANDOM.rand(250, 4) > 0.05), torch.nan)
CATEGORIES = {3: 12}


def setup(options=ALWAYS):
    return Setup(np.random.RandomState(0), None, options)


def choice_of(errors, **others):
    """A choice whose held-out rows, all of them, have these errors."""
    unit = torch.ones_like(errors)
    rows = HeldOutRows(torch.arange(len(errors)), errors, 0.5 * unit, 0.5 * unit)
    values = {"smooth": 1.0}, torch.ones(3), 0.5, 0.0, None, float(rows.log_density()), rows.rows
    return Choice(*values, held_out=rows, deviations=unit, **others)


@cache
def averaged():
    """A model with a share of trees, and an offset."""
    model = default_model(X, STEPS, random_state=0, options=ALWAYS)
    model.description["noise"]["offset"] = 0.25
    return model


def dense_mean(model, x, train_x, train_y):
    """The posterior mean of the process by dense algebra."""
    constant, noise = model.mean_module.constant, model.likelihood.noise_covar([train_x], shape=train_y.shape)
    covariance = model.covar_module(train_x).to_dense() + noise.to_dense()
    return constant + model.covar_module(x, train_x).to_dense() @ torch.linalg.solve(covariance, train_y - constant)


@pytest.mark.parametrize("are_large", [False, True])
@pytest.mark.parametrize("data", [TrainingData(X, STEPS), TrainingData(TABLE, STEPS, CATEGORIES, True)], ids=str)
def test_its_predictions_are_those_of_scikit_learn(data, are_large, monkeypatch):
    monkeypatch.setattr(boosted, "_LEAVES", 1.3)  # 20 leaves for 250 rows
    choice = replace(choice_of(NORMAL), boosted_share=0.5, boosting_rounds=60, boosts_large_trees=are_large)
    mean = boosted.boosted_mean(choice, data, setup())
    again = setup()
    inputs, view = boosted._seen(boosted.PartInputs.of(data, again), as_codes=are_large)
    assert (view is None) == (are_large or not data.has_view)
    boosting = boosted._fitted(boosted._boosting(again, 20 if are_large else 15, max_iter=60), inputs)
    new = data.rows.where(torch.rand(data.rows.shape, generator=torch.Generator().manual_seed(0)) > 0.1, torch.nan)
    for rows in (data.rows, new) if data.has_view else (data.rows,):
        seen = data.columns.apply(rows)
        wanted = data.unit.undo(torch.from_numpy(boosting.predict((seen if view is None else view(seen)).numpy())))
        torch.testing.assert_close(mean(rows), wanted, rtol=1e-12, atol=1e-12)
    assert float((mean(data.rows) - STEPS).square().mean()) < 0.7 * float(STEPS.var())


@torch.no_grad()
def test_predictions_are_a_weighted_average():
    model = averaged()
    share, process = model.boosted.share_at(NEW), dense_mean(model, NEW, X, STEPS)
    assert 0 < float(share.max()) <= max(boosted._SHARES)
    with settings.iterative():
        found = model(NEW).mean
    assert bool((model._offsets(NEW) > 0.1).all())
    torch.testing.assert_close(found - model._offsets(NEW), (1 - share) * process + share * model.boosted(NEW))
    level = share * model.boosted(NEW) + (1 - share) * model.mean_module.constant + model._offsets(NEW)
    torch.testing.assert_close(model.level(NEW), level)


@torch.no_grad()
def test_new_observations_count_as_much_as_others():
    model = averaged()
    x, y = NEW[:3], torch.tensor([3.0, -4.0, 0.0], dtype=torch.float64)
    with settings.iterative():
        model(NEW)
        found = model.get_fantasy_model(x, y)(NEW).mean
    own, share = model.boosted.share_at(x), model.boosted.share_at(NEW)
    added = own * model.boosted(x) + model._offsets(x)
    process = dense_mean(model, NEW, torch.cat([X, x]), torch.cat([STEPS, (y - added) / (1 - own)]))
    wanted = (1 - share) * process + share * model.boosted(NEW) + model._offsets(NEW)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("are_large", [False, True])
@pytest.mark.parametrize(("rows", "others"), [(X, {}), (TABLE, {"categories": CATEGORIES})])
def test_a_state_has_the_trees(rows, others, are_large, monkeypatch):
    own = boosted._growing
    monkeypatch.setattr(boosted, "_growing", lambda *inputs: own(*inputs[:-1], are_large))
    model = default_model(rows, STEPS, random_state=0, options=ALWAYS, **others)
    copy = rebuilt(description_of(model), model.train_inputs[0], STEPS)
    copy.load_state_dict(model.state_dict())
    assert 0 < copy.boosted.share == model.boosted.share
    assert torch.equal(copy(rows[:9]).mean, model(rows[:9]).mean)
    inside = torch.nn.ModuleList([rebuilt(description_of(model), model.train_inputs[0], STEPS)])
    inside.load_state_dict(torch.nn.ModuleList([model]).state_dict())
    assert torch.equal(inside[0].boosted.leaf_values, model.boosted.leaf_values)
    copy.load_state_dict({name: each for name, each in model.state_dict().items() if not name.startswith("boosted")})
    assert copy.boosted is None


@torch.no_grad()
def test_points_are_seen_in_blocks(monkeypatch):
    trees, expected = averaged().boosted, averaged().boosted(NEW)
    sizes, own = [], boosted.BoostedMean._leaf_sums
    monkeypatch.setattr(boosted, "_ROWS_AT_ONCE", 7)
    monkeypatch.setattr(boosted.BoostedMean, "_leaf_sums", lambda trees, x: sizes.append(len(x)) or own(trees, x))
    assert torch.equal(trees(NEW), expected)
    assert torch.equal(trees(NEW.view(2, 20, 3)), expected.view(2, 20))
    assert trees(NEW[:0]).shape == (0,)
    assert sizes == 2 * [7, 7, 7, 7, 7, 5] + [0]


def test_trees_have_less_share_beyond_the_rows():
    """In standard deviations of the column that is farthest outside; missing cells are inside."""
    trees, (low, high), deviation = averaged().boosted, X.aminmax(dim=0), X.std(0, correction=0)
    x = X[:1].repeat(5, 1)
    x[1], x[2], x[3] = low, high, high + deviation * torch.tensor([0.1, 0.5, 0.0])
    x[4, 1] = torch.nan
    shares = trees.share_at(x) / trees.share
    torch.testing.assert_close(shares, torch.tensor([1.0, 1.0, 1.0, math.exp(-1), 1.0], dtype=torch.float64))


def test_lines_go_on_beyond_the_rows():
    x = 1.5 * torch.rand(300, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = torch.from_numpy(np.random.RandomState(2).randn(300))
    y = 6 * x[:, 0] + 3 * ((x[:, 1] > 0.7) ^ (x[:, 2] > 0.7)) + 0.3 * noise
    model = default_model(x, y, random_state=0, options=ALWAYS)
    far = x[:50] + torch.tensor([2.0, 0.0, 0.0])
    wanted = 6 * far[:, 0] + 3 * ((far[:, 1] > 0.7) ^ (far[:, 2] > 0.7))
    assert model.boosted is not None
    with torch.no_grad(), settings.iterative():
        trees, found = model.boosted(far), model(far).mean
    assert float((wanted - trees).mean()) > 6
    assert abs(float((wanted - found).mean())) < 2


def test_the_default_kernel_is_that_of_a_process_alone():
    alone = default_model(X, STEPS, random_state=0, options=replace(ALWAYS, least_boosting_gain=math.inf))
    kernel = default_kernel(X, STEPS, random_state=0, options=ALWAYS)
    assert torch.equal(kernel(X[:9]).to_dense(), alone.covar_module.base_kernel(X[:9]).to_dense())
    assert alone.boosted is None


def test_columns_without_a_known_cell_change_nothing():
    empty = torch.column_stack([TABLE, torch.full((250,), torch.nan).double()])
    found, expected = (
        boosted._Trial.of(torch.arange(50), TrainingData(rows, STEPS, CATEGORIES, True), setup(), True).errors(40)
        for rows in (empty, torch.column_stack([TABLE, torch.zeros(250).double()]))
    )
    torch.testing.assert_close(found, expected)


def test_trees_predict_rows_that_they_have_not_seen():
    data = TrainingData(X, NORMAL)
    *_, errors = boosted._unseen_errors(torch.arange(250), data, setup(), False)
    assert bool((errors.square().mean(1) > 1).all())  # of noise
    trial = boosted._Trial.of(torch.arange(50), data, setup(), False)
    torch.testing.assert_close(trial.inputs.y, data.y[50:])
    assert torch.equal(trial.y, data.y[:50])


def test_rows_keep_their_own_errors():
    """Of targets far apart, each row's error is its own: those of trees never reach beyond the others' targets."""
    y = torch.arange(250.0, dtype=torch.float64)
    data = TrainingData(y.unsqueeze(-1), y)
    rows = torch.from_numpy(np.random.RandomState(1).permutation(250)[:100])
    *_, errors = boosted._unseen_errors(rows, data, setup(), False)
    torch.testing.assert_close(data.y[rows] - errors[-1], data.y[rows], rtol=0, atol=0.3)


@pytest.mark.parametrize(("large", "expected"), [(0.9, True), (1.1, False)])
def test_the_kind_of_trees_that_gains_more_is_taken(large, expected, monkeypatch):
    """Large ones are not tried where they would be about as small: their errors here are a share of those of others."""
    normal = torch.from_numpy(np.random.RandomState(2).randn(2, 4_000))
    errors = {False: normal[1], True: large * normal[1]}
    monkeypatch.setattr(boosted, "_unseen_errors", lambda *inputs: [errors[inputs[-1]].unsqueeze(0)])
    data = TrainingData(torch.arange(4_000.0).unsqueeze(-1).double(), normal[0])
    assert boosted.with_boosted_mean(choice_of(normal[0]), data, setup(Options())).boosts_large_trees == expected
    errors[True] = None  # fails where it is asked for
    few = TrainingData(X, NORMAL)
    assert not boosted.with_boosted_mean(choice_of(normal[0]), few, setup(Options())).boosts_large_trees


def test_the_better_kind_of_trees_by_400_rounds_grows_on(monkeypatch):
    normal = torch.from_numpy(np.random.RandomState(2).randn(2, 4_000))
    shares = {False: iter([0.95, 0.92, None]), True: iter([1.0, 0.9, 0.8])}  # None fails where it is asked for
    monkeypatch.setattr(boosted, "_unseen_errors", lambda *inputs: (each * normal[1:] for each in shares[inputs[-1]]))
    data = TrainingData(torch.arange(4_000.0).unsqueeze(-1).double(), normal[0])
    found = boosted.with_boosted_mean(choice_of(normal[0]), data, setup(Options()))
    assert found.boosts_large_trees
    assert found.log_density == boosted._best_average(choice_of(normal[0]), 0.8 * normal[1:])[0].log_density


def test_the_number_of_rounds_of_the_largest_gain_is_taken(monkeypatch):
    """More rounds have smaller squared errors, of a few rows, and larger errors of those that are nearly certain."""
    rows = torch.arange(400) < 360
    errors = [torch.where(rows, small, large).double() * NORMAL[:1].sign() for small, large in ((0.01, 2), (0.3, 1))]
    choice = choice_of(torch.where(rows, 0.1, 3.0).double())
    variances = torch.where(rows, 0.005, 4.5).double()
    choice = replace(choice, held_out=replace(choice.held_out, variances=variances, noise=variances))
    monkeypatch.setattr(boosted, "_unseen_errors", lambda *_: (each.unsqueeze(0) for each in errors))
    found = boosted.with_boosted_mean(choice, TrainingData(X, NORMAL), setup(Options()))
    first, last = (boosted._best_average(choice, each.unsqueeze(0)) for each in errors)
    assert errors[0].square().mean() > errors[1].square().mean()
    assert first[1] > last[1] > 0
    assert found.log_density == first[0].log_density


def test_trees_that_know_all_have_nearly_all_of_the_share(monkeypatch):
    monkeypatch.setattr(boosted, "_unseen_errors", lambda *_: [0.01 * NORMAL.unsqueeze(0).flip(1)])
    found = boosted.with_boosted_mean(choice_of(NORMAL), TrainingData(X, NORMAL), setup(Options()))
    assert found.boosted_share == pytest.approx(0.95)


@pytest.mark.parametrize(("most", "expected"), [(20, [20]), (300, [200, 300]), (800, [200, 400, 800])])
def test_trees_grow_up_to_the_most_rounds(most, expected, monkeypatch):
    def errors(trial, number):
        return 0.9 ** torch.arange(number // 20).double()[:, None].expand(-1, len(trial.y))

    monkeypatch.setattr(boosted._Trial, "errors", errors)
    options = Options(most_boosting_rounds=most)
    found = [*boosted._unseen_errors(torch.arange(50), TrainingData(X, NORMAL), setup(options), False)]
    assert [20 * len(each) for each in found] == expected


@pytest.mark.parametrize(("ratio", "num_yields"), [(0.992, 1), (0.988, 3)])
def test_trees_end_where_twice_as_many_are_hardly_better(ratio, num_yields, monkeypatch):
    """Squared errors fall by a ratio after 100 and after 200 rounds."""
    rounds = torch.arange(20, 3201, 20)
    roots = torch.where(rounds > 200, ratio, torch.where(rounds > 100, ratio**0.5, 1.0)).double()
    monkeypatch.setattr(
        boosted._Trial, "errors", lambda trial, number: roots[: number // 20, None].expand(-1, len(trial.y))
    )
    found = [*boosted._unseen_errors(torch.arange(50), TrainingData(X, NORMAL), setup(Options()), False)]
    assert len(found) == num_yields


def test_share_and_factor_maximize_the_density_of_averages(monkeypatch):
    """Of two unbiased predictions with independent errors of equal size, half of each has half of the variance."""
    normal = torch.from_numpy(np.random.RandomState(2).randn(2, 4_000))
    data = TrainingData(torch.arange(4_000.0).unsqueeze(-1).double(), normal[0])
    monkeypatch.setattr(boosted, "_unseen_errors", lambda *_: [torch.stack([3 * normal[1], normal[1]])])
    choice = choice_of(normal[0])
    found = boosted.with_boosted_mean(choice, data, setup(Options()))
    assert (found.boosted_share, found.boosting_rounds) == (pytest.approx(0.5, abs=0.051), 40)
    assert found.noise == pytest.approx(0.25, rel=0.05)
    assert found.outputscales["smooth"] == pytest.approx(0.5, rel=0.05)
    torch.testing.assert_close(found.held_out.variances + found.held_out.noise, 2 * found.held_out.noise)
    torch.testing.assert_close(found.log_densities().mean().item(), found.log_density, rtol=0, atol=1e-3)
    assert found.log_density == pytest.approx(choice.log_density + 0.5 * math.log(2), abs=0.03)


@pytest.mark.parametrize("worse", [1.5, 10.0])
def test_trees_that_know_nothing_more_have_no_share(monkeypatch, worse):
    errors = choice_of(NORMAL)
    found = iter([worse * NORMAL.unsqueeze(0), 0 * NORMAL.unsqueeze(0)])  # the second one is not asked for
    monkeypatch.setattr(boosted, "_unseen_errors", lambda *_: found)
    assert boosted.with_boosted_mean(errors, TrainingData(X, NORMAL), setup(Options())) is errors
    assert len([*found]) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"weights": 1 + X[:, 0]},
        {"blocks": Blocks.of(LEVELS.numpy(), None, 250)},
        {"blocks": Blocks.of(None, NORMAL, 250)},
    ],
    ids=["weights", "groups", "time"],
)
def test_rows_that_differ_have_no_trees(monkeypatch, given):
    monkeypatch.setattr(boosted, "_unseen_errors", None)  # fails where it is called
    assert default_model(X, STEPS, random_state=0, options=ALWAYS, **given).boosted is None


def test_too_few_rounds_are_refused():
    with pytest.raises(ValueError, match="most_boosting_rounds from 20, got 10"):
        Options(most_boosting_rounds=10)


def test_given_ensembles_have_no_trees_beside_them(monkeypatch):
    monkeypatch.setattr(boosted, "_unseen_errors", None)
    assert ensemble_model(X, STEPS, RandomForestRegressor(10), random_state=0, options=ALWAYS).boosted is None
