"""Probabilities of classes against dense solves in float64 and the definition of the link."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

from gpytorch_partition import FastClusterKernel, RandomForestKernel
from gpytorch_partition.estimators import PartitionGPClassifier, classifier
from gpytorch_partition.kernels import OverconfidenceWarning
from gpytorch_partition.presets import Options

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(3_000, 3)
NEW = np.concatenate([RANDOM.randn(100, 3), [[40.0, -40.0, 40.0]]])
SIGNAL = np.sin(2 * X[:, 0]) + X[:, 1] * (X[:, 2] > 0) + 0.5 * RANDOM.randn(3_000)
TWO = np.where(SIGNAL > 0, "yes", "no")
THREE = np.array(["few", "more", "most"])[np.digitize(SIGNAL, [-0.8, 1.0])]
RARE = np.where(SIGNAL > 1.9, "yes", "no")


@pytest.fixture
def small(monkeypatch):
    """The default kernel with few trees, and few rows that choose."""
    monkeypatch.setattr(classifier, "_OPTIONS", Options(num_trees=10, most_inducing_points=100))
    monkeypatch.setattr(classifier, "_MOST_CHOOSING_ROWS", 150)


def expected_log_probabilities(machine, rows, classes, new):
    """By a dense solve, from the machine's kernel, weights and link only."""
    standardized = [torch.from_numpy((each - rows.mean(0)) / rows.std(0)) for each in (rows, new)]
    with torch.no_grad():
        train, cross = (machine.kernel_(x, standardized[0]).to_dense().double().numpy() for x in standardized)
    indicators = (classes[:, None] == np.unique(classes)).astype(float)
    frequencies = indicators.mean(0)
    excess = cross @ np.linalg.solve(train + np.eye(len(train)), indicators - frequencies)
    width, power = machine.link_.width, machine.link_.power
    ratio = np.logaddexp(0, (frequencies + excess) / width) / np.logaddexp(0, frequencies / width)
    share = machine.link_.share
    assert 0 < share < 0.02
    return np.log((1 - share) * softmax(np.log(frequencies) + power * np.log(ratio), 1) + share * frequencies)


class TestProbabilities:
    @pytest.mark.parametrize("y", [TWO, THREE, RARE], ids=["two", "three", "rare"])
    @pytest.mark.parametrize("kernel", ["auto", "forest", "fast_cluster", "mondrian"])
    def test_they_are_those_of_a_dense_solve(self, kernel, y, small):
        machine = PartitionGPClassifier(kernel, num_partitions=20, random_state=0).fit(X[:900], y[:900])
        found = machine.predict_log_proba(NEW)
        np.testing.assert_allclose(found, expected_log_probabilities(machine, X[:900], y[:900], NEW), atol=1e-3)
        np.testing.assert_allclose(machine.predict_proba(NEW).sum(1), 1)
        np.testing.assert_array_equal(machine.predict(NEW), np.unique(y)[found.argmax(1)])
        expected = found if y is THREE else found[:, 1] - found[:, 0]
        np.testing.assert_array_equal(machine.decision_function(NEW), expected)

    @pytest.mark.slow
    @pytest.mark.parametrize("kernel", ["auto", "fast_cluster"])
    def test_they_are_so_for_many_rows(self, kernel, small):
        machine = PartitionGPClassifier(kernel, num_partitions=20, random_state=0).fit(X, THREE)  # 2,000 are dense
        expected = expected_log_probabilities(machine, X, THREE, NEW)
        np.testing.assert_allclose(machine.predict_log_proba(NEW), expected, atol=2e-2)  # where a hundredth is 1 %

    def test_more_rows_are_trusted_more(self, small):
        kernel = FastClusterKernel(torch.from_numpy(X), 50, height=8, random_state=0)
        few, many = (PartitionGPClassifier(kernel, random_state=0).fit(X[:n], TWO[:n]) for n in (250, 3_000))
        assert many.log_loss_ < few.log_loss_
        assert many.link_.share == 1 / 301  # of the rows held out

    def test_they_are_better_than_frequencies_and_calibrated(self):
        machine = PartitionGPClassifier("forest", num_partitions=50, random_state=0).fit(X[:1_000], TWO[:1_000])
        found = machine.predict_proba(X[1_000:])
        assert log_loss(TWO[1_000:], found) < 0.55  # .69 for frequencies
        assert machine.log_loss_ == pytest.approx(log_loss(TWO[1_000:], found), abs=0.05)
        bins = np.digitize(found[:, 1], np.linspace(0.1, 0.9, 9))
        gaps = [abs((TWO[1_000:][bins == b] == "yes").mean() - found[bins == b, 1].mean()) for b in np.unique(bins)]
        assert np.average(gaps, weights=np.unique(bins, return_counts=True)[1]) < 0.05

    @pytest.mark.slow
    def test_the_default_learns_digits(self):
        digits, classes = load_digits(return_X_y=True)
        machine = PartitionGPClassifier(random_state=0).fit(digits[:700], classes[:700])
        assert set(machine.outputscales_) == {"forest", "random_trees", "smooth_short", "smooth_long", "linear"}
        assert log_loss(classes[700:], machine.predict_proba(digits[700:])) < 0.25  # .49 for a random forest

    def test_far_from_all_rows_they_are_frequencies(self):
        machine = PartitionGPClassifier("mondrian", num_partitions=20, random_state=0).fit(X[:300], THREE[:300])
        counts = np.unique(THREE[:300], return_counts=True)[1]
        np.testing.assert_allclose(machine.predict_proba(np.full((1, 3), 1e6)), counts[None] / 300)

    @pytest.mark.parametrize("kernel", ["forest", "fast_cluster", "mondrian"])
    def test_they_do_not_depend_on_other_rows_of_the_call(self, kernel):
        machine = PartitionGPClassifier(kernel, num_partitions=20, random_state=0).fit(X[:200], THREE[:200])
        # PyTorch computes the logarithms of the last few rows of a call by another routine.
        new = NEW[:15]
        alone = np.concatenate([machine.predict_proba(row[None]) for row in new])
        np.testing.assert_allclose(alone, machine.predict_proba(new), rtol=1e-13)
        x = machine._new_rows(new)
        assert torch.equal(torch.cat([machine._excess(row[None]) for row in x]), machine._excess(x))

    def test_of_equal_ones_the_first_class_is_predicted(self, small):
        machine = PartitionGPClassifier(random_state=0).fit(np.zeros((40, 1)), np.arange(40) % 2)
        np.testing.assert_allclose(machine.predict_proba([[0.0]]), 0.5)
        assert machine.predict([[0.0]]).tolist() == [0]


class TestKernels:
    @pytest.mark.filterwarnings("ignore:.*standardize them")
    def test_a_built_one_sees_rows_as_they_are(self):
        rows = X[:300] * [1.0, 100.0, 0.01]
        kernel = FastClusterKernel(torch.from_numpy(rows), 20, random_state=0)
        machine = PartitionGPClassifier(kernel, random_state=0).fit(rows, TWO[:300])
        points = torch.from_numpy(rows[:5])
        expected = machine.outputscales_["kernel"] * kernel(points).to_dense()
        torch.testing.assert_close(machine.kernel_(points).to_dense(), expected)

    def test_one_that_has_seen_targets_is_told(self):
        targets = torch.from_numpy(SIGNAL[:200])
        kernel = RandomForestKernel(torch.from_numpy(X[:200]), targets, 20, random_state=0)
        with pytest.warns(OverconfidenceWarning, match="called in each fold"):
            PartitionGPClassifier(kernel, random_state=0).fit(X[:200], TWO[:200])

    @pytest.mark.parametrize(("y", "shape"), [(TWO, ()), (THREE, (3,))])
    def test_a_function_is_called_without_the_held_out_rows(self, y, shape):
        seen = []

        def build(x, targets):
            seen.append((len(x), tuple(targets.shape)))
            return FastClusterKernel(x, 10, random_state=0)

        PartitionGPClassifier(build, random_state=0).fit(X[:300], y[:300])
        assert seen == [(240, (240, *shape))] * 5 + [(300, (300, *shape))]

    def test_missing_values_are_known_from_the_fit(self, small):
        rows = np.where(np.random.RandomState(0).rand(200, 3) < 0.1, np.nan, X[:200])
        machine = PartitionGPClassifier(random_state=0).fit(rows, TWO[:200])
        assert np.isfinite(machine.predict_proba(rows)).all()
        complete = PartitionGPClassifier(random_state=0).fit(X[:200], TWO[:200])
        with pytest.raises(ValueError, match='without missing values.*kernel="forest"'):
            complete.predict(rows)


@pytest.mark.parametrize("kernel", ["auto", "forest", "fast_cluster"])
def test_tables_are_taken_as_they_are(kernel, small):
    """Names of many levels decide, with holes; of new rows, some names are unknown, and cells miss."""
    random = np.random.RandomState(0)
    names, good = random.randint(30, size=400), random.rand(30) < 0.5
    table = {"name": np.array([f"name {number}" for number in names], dtype=object), "noise": random.randn(400)}
    classes = np.where(random.rand(400) < 0.9, good[names], ~good[names])
    table["name"][:5] = None
    machine = PartitionGPClassifier(kernel, num_partitions=50, random_state=0)
    machine.fit({k: v[:300] for k, v in table.items()}, classes[:300])
    new = {k: v[300:] for k, v in table.items()}
    assert machine.score(new, classes[300:]) > 0.75
    new["name"][:3], new["noise"][3:5] = "another", np.nan
    assert np.isfinite(machine.predict_proba(new)).all()


@pytest.mark.parametrize("num_rows", [2, 5, 19, 20])
@pytest.mark.parametrize("kernel", ["auto", "forest", "fast_cluster", "mondrian"])
def test_few_rows_are_enough(kernel, num_rows, small):
    rows, classes = np.arange(num_rows)[:, None], np.arange(num_rows) % 2 == 1
    machine = PartitionGPClassifier(kernel, num_partitions=10, random_state=0).fit(rows, classes)
    assert np.isfinite(machine.predict_proba(rows)).all()
    assert np.isinf(machine.log_loss_) == (num_rows < 20)


def test_a_class_of_one_row_is_a_class(small):
    classes = np.where(np.arange(200) == 7, "rare", TWO[:200])
    machine = PartitionGPClassifier(random_state=0).fit(X[:200], classes)
    assert machine.predict_proba(NEW).shape == (101, 3)
    assert machine.predict_proba(X[:200])[:, 1].argmax() == 7


def test_copies_are_left_out_unless_equal_rows_have_other_classes():
    more = np.r_[np.arange(200), np.arange(0, 200, 20)]
    machine, once = (PartitionGPClassifier("forest", num_partitions=20, random_state=0) for _ in range(2))
    with pytest.warns(UserWarning, match="10 of 210 rows are copies of others"):
        machine.fit(X[more], TWO[more])
    np.testing.assert_array_equal(machine.predict_proba(NEW), once.fit(X[:200], TWO[:200]).predict_proba(NEW))
    more = np.r_[more, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        machine.fit(X[more], np.append(TWO[more[:-1]], "yes" if TWO[0] == "no" else "no"))


class TestWeights:
    ROWS = slice(0, 240)

    def machine(self, weights, y=TWO, kernel="forest"):
        return PartitionGPClassifier(kernel, num_partitions=20, random_state=0).fit(X[self.ROWS], y[self.ROWS], weights)

    @pytest.mark.parametrize("kernel", ["forest", "mondrian"])
    def test_only_ratios_matter(self, kernel):
        expected = self.machine(None, kernel=kernel).predict_proba(NEW)
        np.testing.assert_array_equal(self.machine(np.ones(240), kernel=kernel).predict_proba(NEW), expected)
        np.testing.assert_allclose(self.machine(7.0, kernel=kernel).predict_proba(NEW), expected, atol=1e-3)

    @pytest.mark.parametrize("kernel", ["forest", "auto"])
    def test_their_unit_chooses_no_splits(self, kernel, small):
        weights = np.random.RandomState(0).rand(240) + 0.1
        expected = self.machine(weights, kernel=kernel).predict_proba(NEW)
        for unit in (7.0, 1 / 3):
            np.testing.assert_allclose(
                self.machine(unit * weights, kernel=kernel).predict_proba(NEW), expected, atol=1e-9
            )

    def test_rows_of_no_weight_are_left_out(self):
        y = np.where(np.arange(3_000) % 5 == 0, "wrong", TWO)
        machine = self.machine(y[self.ROWS] != "wrong", y)
        assert machine.classes_.tolist() == ["no", "yes"]
        kept = y[self.ROWS] != "wrong"
        alone = PartitionGPClassifier("forest", num_partitions=20, random_state=0).fit(
            X[self.ROWS][kept], TWO[:240][kept]
        )
        np.testing.assert_array_equal(machine.predict_proba(NEW), alone.predict_proba(NEW))

    @pytest.mark.parametrize("kernel", ["forest", "mondrian"])
    def test_probabilities_are_those_of_a_solve_with_the_noise_divided(self, kernel):
        weights = np.where(np.arange(240) % 3 == 0, 0.05, 1.0)
        machine = self.machine(weights, THREE, kernel)
        columns = [(each - X[:240].mean(0)) / X[:240].std(0) for each in (X[:240], NEW)]
        with torch.no_grad():
            train, cross = (
                machine.kernel_(torch.from_numpy(x), torch.from_numpy(columns[0])).to_dense().double().numpy()
                for x in columns
            )
        indicators = (THREE[:240, None] == np.unique(THREE)).astype(float)
        frequencies = weights @ indicators / weights.sum()
        noisy = train + np.diag(weights.mean() / weights)
        excess = cross @ np.linalg.solve(noisy, indicators - frequencies)
        found = machine.link_.log_probabilities(torch.from_numpy(excess)).exp().numpy()
        np.testing.assert_allclose(machine.predict_proba(NEW), found, atol=1e-4)
        np.testing.assert_allclose(machine.link_.frequencies, frequencies)

    def test_balanced_weights_make_a_rare_class_as_probable_as_another(self):
        weights = np.where(RARE[:240] == "yes", (RARE[:240] == "no").sum() / (RARE[:240] == "yes").sum(), 1.0)
        plain, balanced = self.machine(None, RARE), self.machine(weights, RARE)
        assert plain.predict_proba(X[1000:])[:, 1].mean() < 0.15
        recalls = [(each.predict(X[1000:]) == RARE[1000:])[RARE[1000:] == "yes"].mean() for each in (plain, balanced)]
        assert recalls[1] > recalls[0] + 0.2

    def test_weights_that_cannot_be_used(self):
        with pytest.raises(ValueError, match="got -1 for row 0"):
            self.machine(-np.ones(240))
        with pytest.raises(ValueError, match=r"1 class, in the rows whose sample_weight is above 0: \['no'\]"):
            self.machine((TWO[self.ROWS] == "no").astype(float))
