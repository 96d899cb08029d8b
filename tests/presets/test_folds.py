"""Folds by groups and by time: what is held out, what is refused, and that intervals of new groups hold."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold, TimeSeriesSplit

from gpytorch_partition.estimators import PartitionGPClassifier, PartitionGPRegressor
from gpytorch_partition.presets.data import Blocks, PartInputs, as_new_rows, folds, random_rows
from gpytorch_partition.presets.options import Setup
from tests.few_trees import few_trees

SMALL = few_trees(15, 10, num_folds=3, least_boosting_gain=math.inf)
LETTERS = np.array(list("abcdefghijkl"))


def random(seed=0):
    return np.random.RandomState(seed)


def test_single_rows_are_those_of_scikit_learn_by_the_same_draws():
    ours, theirs = random(), random()
    expected = KFold(4, shuffle=True, random_state=theirs).split(np.empty(50))
    for found, wanted in zip(folds(50, 4, ours), expected, strict=True):
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_array_equal(found[1], wanted[1])
    assert ours.rand() == theirs.rand()


@pytest.mark.parametrize(("num_groups", "number"), [(12, 5), (3, 3), (2, 2)])
def test_groups_are_held_out_once_and_whole(num_groups, number):
    groups = LETTERS[random().randint(num_groups, size=300)]
    found = folds(300, 5, random(), Blocks.of(groups, None, 300))
    assert len(found) == number
    assert sorted(np.concatenate([held_out for _, held_out in found])) == list(range(300))
    for kept, held_out in found:
        assert not set(groups[kept]) & set(groups[held_out])
        assert len(kept) + len(held_out) == 300
    others = folds(300, 5, random(1), Blocks.of(groups, None, 300))
    assert num_groups < 5 or any(set(one) != set(other) for (_, one), (_, other) in zip(found, others))


def test_folds_of_groups_have_about_the_same_size():
    groups = np.repeat(np.arange(20), random().randint(1, 60, size=20))
    sizes = [len(held_out) for _, held_out in folds(len(groups), 4, random(), Blocks.of(groups, None, len(groups)))]
    assert max(sizes) - min(sizes) < 20


def test_distinct_times_are_split_as_by_scikit_learn():
    order = random().permutation(60)
    found = folds(60, 4, random(), Blocks.of(None, order / 7, 60))[::-1]
    times = np.argsort(order)
    for (kept, held_out), (earlier, later) in zip(found, TimeSeriesSplit(4).split(times), strict=True):
        assert set(kept) == set(times[earlier])
        assert set(held_out) == set(times[later])


@pytest.mark.parametrize("num_times", [2, 3, 40])
def test_rows_of_one_time_stay_together_and_come_after_those_kept(num_times):
    times = np.datetime64("2024-02-27") + random().randint(num_times, size=100).astype("timedelta64[D]")
    found = folds(100, 5, random(), Blocks.of(None, times, 100))
    assert 1 <= len(found) <= 5
    for kept, held_out in found:
        assert times[kept].max() < times[held_out].min()
    held_out = np.concatenate([rows for _, rows in found])
    assert len(set(held_out)) == len(held_out)
    assert set(times[held_out]) | set(times[found[-1][0]]) == set(times)


def test_whole_groups_choose_if_they_are_five_or_more():
    groups = np.repeat(np.arange(40), 25)
    rows = random_rows(1000, 260, random(), Blocks.of(groups, None, 1000))
    assert len(rows) == 250
    assert len(set(groups[rows])) == 10
    assert (np.diff(groups[rows]) != 0).mean() > 0.5  # in random order: the first of them are of all groups
    few = random_rows(1000, 260, random(), Blocks.of(groups // 10, None, 1000))
    np.testing.assert_array_equal(few, random_rows(1000, 260, random()))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"groups": ["a"] * 9}, r"groups of one value for each of 10 rows, got shape \(9,\)"),
        ({"groups": "abcdefghij"}, "groups of one value for each of 10 rows, got a text"),
        ({"groups": ["a", None, *"bcdefghi"]}, r"groups of every row, got none for row 1 \(1 such\)"),
        ({"groups": [*range(9), np.nan]}, "groups of every row, got none for row 9"),
        ({"groups": ["a"] * 10}, "two groups or more, with 5 rows or more outside the largest, got 1 .* of 10 rows"),
        ({"groups": ["a"] * 6 + ["b"] * 4}, "5 rows or more outside the largest, got 2"),
        ({"time": [1] * 4 + [2] * 6}, "5 rows or more before the latest, got 2"),
        ({"time": np.array(["2024-01-01"] * 9 + ["NaT"], "datetime64[ns]")}, "time of every row, got none for row 9"),
        ({"time": [f"2024-01-{day:02}" for day in range(1, 11)]}, "numbers or dates.*pandas.to_datetime"),
        ({"time": np.ones(10)}, "two times or more"),
        ({"time": np.arange(10), "groups": np.arange(10)}, "at most one of groups and time"),
    ],
)
@pytest.mark.parametrize("model", [PartitionGPRegressor(), PartitionGPClassifier()])
def test_what_cannot_be_blocks_is_refused(model, labels, message):
    with pytest.raises(ValueError, match=message):
        model.fit(np.arange(20.0).reshape(10, 2), np.arange(10) % 2, **labels)


def test_kernels_without_folds_are_refused():
    X, y, groups = np.arange(20.0).reshape(10, 2), np.arange(10.0), np.arange(10)
    for targets in (y, np.stack([y, y**2], 1)):
        with pytest.raises(ValueError, match="not chosen by folds, got kernel='forest'"):
            PartitionGPRegressor("forest").fit(X, targets, groups=groups)


def recorded(monkeypatch):
    from gpytorch_partition.estimators import regression_fit

    seen, original = [], regression_fit.default_model
    monkeypatch.setattr(
        regression_fit,
        "default_model",
        lambda *data, **others: (seen.append((*data, others)), original(*data, **others))[1],
    )
    return seen


@pytest.mark.filterwarnings("ignore:.*copies")
@pytest.mark.slow
def test_labels_go_with_the_rows_that_count(monkeypatch):
    """Without rows of weight 0, copies, and more rows than the options allow."""
    seen, draws = recorded(monkeypatch), random()
    X = draws.rand(60, 2).repeat(2, 0)
    X[1::2] += draws.rand(60, 2) * (np.arange(60) % 2)[:, None]
    groups, weights = np.floor(10 * X[:, 0]).astype(int), (draws.rand(120) < 0.8).astype(float)
    options = replace(SMALL, most_rows=50)
    PartitionGPRegressor(random_state=0, options=options).fit(X, 7 * X[:, 0], weights, groups=groups)
    x, y, others = seen[0]
    assert len(x) == len(others["blocks"].labels) == 50
    names = {}
    for target, label in zip(y.numpy(), others["blocks"].labels.numpy()):
        names.setdefault(int(label), set()).add(target)
    spans = sorted((min(targets), max(targets)) for targets in names.values())
    assert all(before[1] < after[0] for before, after in zip(spans, spans[1:]))  # as groups are intervals of targets


@pytest.mark.parametrize("labels", [{"groups": LETTERS[:6].repeat(10)}, {"time": np.arange(60) // 3}])
@pytest.mark.parametrize("kernel", ["auto", RandomForestRegressor(10, min_samples_leaf=3, random_state=0)])
def test_fits_are_the_same_to_the_last_bit(labels, kernel):
    X = random().rand(60, 2)
    y = X[:, 0] + 0.1 * random(1).randn(60)
    one, other = (PartitionGPRegressor(kernel, random_state=0, options=SMALL).fit(X, y, **labels) for _ in range(2))
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    assert np.isfinite(one.log_predictive_density_)


@pytest.mark.parametrize(
    "labels",
    [{"groups": LETTERS[:2].repeat([5, 55])}, {"time": [1] * 5 + [2] * 55}, {"time": [1, *[2] * 4, *[3] * 55]}],
)
def test_folds_that_keep_few_rows(labels):
    X = random().rand(60, 2)
    model = PartitionGPRegressor(random_state=0, options=SMALL).fit(X, X[:, 0] + 0.1 * random(1).randn(60), **labels)
    assert np.isfinite(model.predict(X, return_std=True)[1]).all()


def alike(seed, num_groups, size):
    """Rows of groups, of which a column tells them apart, and one more level that no column tells."""
    draws = random(seed)
    groups = np.repeat(np.arange(num_groups), size)
    X = np.column_stack([draws.rand(len(groups), 2), draws.rand(num_groups)[groups]])
    y = np.sin(6 * X[:, 0]) + X[:, 1] + draws.randn(num_groups)[groups] + 0.3 * draws.randn(len(groups))
    return X, y, groups


def covered(model, X, y):
    found = model.judge(X, y)
    return np.mean((found.lower <= y) & (y <= found.upper))


@pytest.mark.slow
def test_intervals_of_new_groups_hold():
    shares = {"groups": [], "rows": []}
    for seed in range(4):
        X, y, groups = alike(seed, 60, 15)
        new, of_new, _ = alike(100 + seed, 200, 2)
        models = {name: PartitionGPRegressor(random_state=0, options=SMALL) for name in shares}
        models["groups"].fit(X, y, groups=groups)
        models["rows"].fit(X, y)
        for name, model in models.items():
            shares[name].append(covered(model, new, of_new))
    assert 0.85 < np.mean(shares["groups"]) < 0.96
    assert np.mean(shares["rows"]) < 0.8


def both_covered(model, X, Y):
    mean, std = model.predict(X, return_std=True)
    return np.mean(np.abs(Y - mean) < 1.645 * std, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("choosing", [700, 150])
def test_intervals_of_several_targets_hold_for_new_groups(choosing):
    """Where all rows choose, and where the others calibrate."""
    X, y, groups = alike(0, 60, 15)
    new, of_new, _ = alike(100, 200, 2)
    both = np.stack([y, y + X[:, 1] + 0.3 * random().randn(len(y))], 1)
    both_new = np.stack([of_new, of_new + new[:, 1] + 0.3 * random(1).randn(len(new))], 1)
    model = PartitionGPRegressor(random_state=0, options=replace(SMALL, fewest_choosing_rows=choosing))
    by_rows = both_covered(model.fit(X, both), new, both_new)
    by_groups = both_covered(model.fit(X, both, groups=groups), new, both_new)
    assert by_groups.min() > 0.82
    assert by_rows.max() < 0.8


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, np.timedelta64(1, "D")])
def test_intervals_of_later_days_hold(unit):
    """Each day has a level of its own, and its number is a column."""
    X, y, days = alike(0, 90, 15)
    X[:, 2], earlier = days, days < 60
    model = PartitionGPRegressor(random_state=0, options=SMALL)
    shares = {}
    for name, time in {"time": days[earlier] * unit, "rows": None}.items():
        shares[name] = covered(model.fit(X[earlier], y[earlier], time=time), X[~earlier], y[~earlier])
    assert 0.8 < shares["time"] < 0.98
    assert shares["time"] > shares["rows"] + 0.05


@pytest.mark.slow
def test_many_rows_of_groups_are_calibrated_by_groups():
    X, y, groups = alike(0, 80, 10)
    options = replace(SMALL, fewest_choosing_rows=150, most_choosing_rows=150)
    model = PartitionGPRegressor(random_state=0, options=options).fit(X, y, groups=groups)
    new, of_new, _ = alike(100, 200, 2)
    assert 0.8 < covered(model, new, of_new) < 0.97
    assert not {"rough_short", "rough"} & set(dict(model.model_.covar_module.named_modules()))


@pytest.mark.slow
def test_classes_of_new_groups_are_not_predicted_too_surely():
    def classes(seed, num_groups, size):
        draws, (X, _, groups) = random(seed), alike(seed, num_groups, size)
        return X, X[:, 0] + 1.5 * draws.randn(num_groups)[groups] > 0.5, groups

    (X, y, groups), (new, of_new, _) = classes(0, 60, 15), classes(1, 200, 2)
    losses = []
    for labels in ({"groups": groups}, {}):
        model = PartitionGPClassifier(random_state=0).fit(X, y, **labels)
        probabilities = model.predict_proba(new)[np.arange(len(new)), of_new.astype(int)]
        losses.append(-np.log(probabilities).mean())
        if labels:
            assert model.log_loss_ == pytest.approx(losses[0], abs=0.12)
    assert losses[0] < losses[1] - 0.1


def test_levels_of_two_rows_are_new_ones_where_one_predicts_the_other():
    """As often as new rows have levels that none or one of the training rows has."""
    draws = np.random.RandomState(0)
    codes = torch.from_numpy(draws.randint(200, size=5_000)).double()
    rows, new = codes[:500], codes[500:]
    counts = torch.bincount(rows.long(), minlength=200)
    shares = [
        float(as_new_rows(rows[:, None], {0: 200}).isnan().double().mean()),
        float((counts[new.long()] < 2).double().mean()),
    ]
    assert shares[0] == pytest.approx(shares[1], abs=0.04)
    few = torch.tensor([[0.0], [1.0]])
    assert as_new_rows(few, {0: 10}) is not few
    torch.testing.assert_close(as_new_rows(few, {0: 10}), few)


def test_levels_of_one_group_are_new_ones_where_other_groups_predict_it():
    groups = torch.arange(100) // 5
    own, shared = groups.double(), (groups % 10).double()
    found = as_new_rows(torch.stack([own, shared], 1), {0: 20, 1: 11}, Blocks.of(groups.numpy(), None, 100))
    assert bool(found[:, 0].isnan().all())
    torch.testing.assert_close(found[:, 1], shared)


def test_times_are_stretches_of_a_fifth_of_the_rows():
    times = random().permutation(100) // 2
    stretches = Blocks.of(None, times, 100).groups
    assert stretches.bincount().tolist() == [20] * 5
    assert torch.equal(stretches, torch.from_numpy(times // 10))


def test_trees_learn_from_mean_targets_of_other_groups():
    """Levels that are groups tell the targets of single rows, and nothing of new groups."""
    draws = random()
    groups = np.repeat(np.arange(40), 10)
    x, y = torch.from_numpy(groups[:, None].astype(float)), torch.from_numpy(draws.randn(40)[groups])
    inputs = PartInputs(x, y, None, Setup(random()), {0: 40}, has_view=True)
    blocks = Blocks.of(groups, None, 400)
    shares = [
        abs(np.corrcoef(each.seen_in_folds()[:, 0], y)[0, 1]) for each in (inputs, replace(inputs, blocks=blocks))
    ]
    assert shares[0] > 0.9
    assert shares[1] < 0.4


@pytest.mark.parametrize(
    ("model", "num_targets"),
    [(PartitionGPRegressor(options=SMALL), 1), (PartitionGPRegressor(options=SMALL), 2), (PartitionGPClassifier(), 1)],
)
@pytest.mark.filterwarnings("ignore:noise of")
def test_groups_reach_all_trees_and_mean_targets(monkeypatch, model, num_targets):
    from gpytorch_partition.presets import data, parts

    draws, seen = random(), []
    for module, name in ((parts, "grow_forest"), (data, "view_in_folds")):
        original = getattr(module, name)

        def recorded(*given, original=original, **others):
            seen.append(others["groups"] if original.__name__ == "grow_forest" else given[-1])
            return original(*given, **others)

        monkeypatch.setattr(module, name, recorded)
    table = pd.DataFrame({"x": draws.rand(90), "name": draws.choice(LETTERS, 90)})
    targets = (table.x > 0.5).astype(float).to_numpy()
    y = targets if num_targets == 1 else np.stack([targets, draws.rand(90)], 1)
    model.fit(table, y, groups=np.repeat(np.arange(30), 3))
    assert len(seen) > 5
    for labels in seen:
        assert int(labels.bincount().max()) == 3
