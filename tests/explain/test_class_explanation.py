"""What a classifier says of itself: shares against dense matrices, permutations against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError
from sklearn.inspection import permutation_importance

from gpytorch_partition import FastClusterKernel, MondrianKernel, settings
from gpytorch_partition.estimators import PartitionGPClassifier

RANDOM = np.random.RandomState(0)
N = 90
FRAME = pd.DataFrame(
    {"a": RANDOM.randn(N), "b": RANDOM.randn(N), "noise": RANDOM.randn(N), "town": RANDOM.choice(["x", "y"], N), "c": 1}
)
CLASSES = np.where(FRAME["a"] > 0.5, "high", np.where((FRAME["b"] > 0) | (FRAME["town"] == "x"), "mid", "low"))
ROWS = FRAME[["a", "b", "noise"]].to_numpy()


def clusters_and_trees(x, y):
    return FastClusterKernel(x, 20, random_state=0) + MondrianKernel(x, 20, random_state=0)


FOREST = PartitionGPClassifier("forest", 30, random_state=0).fit(FRAME, CLASSES)
SUM = PartitionGPClassifier(clusters_and_trees, random_state=0).fit(ROWS, CLASSES)


class TestSummary:
    def test_shares_are_those_of_dense_matrices(self):
        scaled = SUM.kernel_.base_kernel  # the weight and the sum
        weight, parts = float(scaled.outputscale), scaled.base_kernel.kernels
        with torch.no_grad(), settings.iterative():
            dense = [weight * part(SUM._train_x).to_dense().double().numpy() for part in parts]
        indicators = (CLASSES[:, None] == SUM.classes_).astype(float)
        alpha = np.linalg.solve(sum(dense) + np.eye(N), indicators - indicators.mean(0))
        means = np.stack([matrix @ alpha for matrix in dense])
        means -= means.mean(1, keepdims=True)
        explained = (means * means.sum(0)).sum((1, 2)) / (means.sum(0) ** 2).sum()
        priors = np.array([np.trace(matrix) / N - matrix.mean() for matrix in dense])
        found = SUM.summary()
        assert [part.name for part in found.parts] == ["FastClusterKernel", "MondrianKernel"]
        np.testing.assert_allclose([part.explained for part in found.parts], explained, rtol=1e-3)
        np.testing.assert_allclose([part.prior for part in found.parts], priors / priors.sum(), rtol=1e-3)

    def test_it_says_what_the_model_is_made_of(self):
        found = FOREST.summary()
        assert (found.num_rows, found.num_columns, found.constant_columns) == (N, 5, ("c",))
        shares = {name: np.mean(name == CLASSES) for name in ("high", "low", "mid")}
        assert found.frequencies == pytest.approx(shares)
        assert found.log_loss == FOREST.log_loss_
        entropy = -sum(share * np.log(share) for share in shares.values())
        text = str(found)
        assert f"log loss {FOREST.log_loss_:.3f} nats a row (of the classes' shares alone: {entropy:.3f})" in text
        for word in ("kernel='forest'", "90 rows, 5 columns", "mid ", "seconds"):
            assert word in text
        assert found.facts()["trees"] == "30"
        assert found.facts()["constant"].startswith("c (")
        assert "tensor" not in text

    def test_frequencies_are_weighed(self):
        weights = np.where(CLASSES == "low", 3.0, 1.0)
        model = PartitionGPClassifier("mondrian", 10, random_state=0).fit(ROWS, CLASSES, weights)
        low = weights[CLASSES == "low"].sum() / weights.sum()
        assert model.summary().frequencies["low"] == pytest.approx(low)

    def test_unfitted_ones_have_none(self):
        for call in (
            PartitionGPClassifier().summary,
            PartitionGPClassifier().importance,
            lambda: PartitionGPClassifier().nearest_rows(ROWS),
        ):
            with pytest.raises(NotFittedError):
                call()


class TestImportance:
    def test_columns_share_what_is_explained(self):
        found = FOREST.importance()
        assert found.columns == tuple(FRAME)
        np.testing.assert_allclose(found.by_structure.sum(), 1, atol=1e-6)
        assert set(found.order()[:3]) == {0, 1, 3}
        assert found.by_structure[4] == 0

    def test_of_two_classes_it_is_that_of_one_function(self):
        model = PartitionGPClassifier("forest", 30, random_state=0).fit(ROWS, ROWS[:, 1] > 0)
        assert model.importance().order()[0] == 1
        assert model.importance().by_structure[1] > 0.8

    def test_permutations_are_scikit_learns_of_the_log_loss(self):
        found = FOREST.importance(FRAME, CLASSES, n_repeats=2)
        expected = permutation_importance(FOREST, FRAME, CLASSES, scoring="neg_log_loss", n_repeats=2, random_state=0)
        np.testing.assert_array_equal(found.permutation, expected.importances_mean)
        assert "permutation: rise of the log loss" in str(found)
        ax = found.plot(Figure().subplots())
        (above,) = [other for other in ax.figure.axes if other is not ax]
        assert above.get_xlabel() == "dots: rise of the log loss where the column is permuted"


class TestNearestRows:
    def test_numbers_are_those_of_the_rows_that_were_given(self):
        weights = np.where(np.arange(N) < 30, 0.0, 1.0)  # which are left out
        model = PartitionGPClassifier("fast_cluster", 50, random_state=0).fit(ROWS, CLASSES, weights)
        rows, _ = model.nearest_rows(ROWS[40:44], k=1)
        np.testing.assert_array_equal(rows[:, 0], [40, 41, 42, 43])


class TestPartialDependence:
    HOLES = FRAME.assign(b=FRAME["b"].mask(FRAME["b"] > 1), town=FRAME["town"].mask(FRAME["a"] > 1))
    MODEL = PartitionGPClassifier("forest", 30, random_state=0).fit(HOLES, CLASSES)

    @pytest.mark.parametrize("column", ["b", "town"])
    def test_it_is_the_mean_probability_of_rows_with_the_value(self, column):
        found = self.MODEL.partial_dependence(self.HOLES, column, grid_resolution=5, target="mid")
        expected = [self.MODEL.predict_proba(self.HOLES.assign(**{column: value}))[:, 2].mean() for value in found.grid]
        np.testing.assert_allclose(found.mean, expected)
        assert len(found.grid) == (5 if column == "b" else 2)

    def test_of_two_classes_it_is_the_second(self):
        model = PartitionGPClassifier("forest", 10, random_state=0).fit(ROWS, CLASSES == "mid")
        found = model.partial_dependence(ROWS, 0, grid=[0.0])
        assert found.mean == pytest.approx(model.predict_proba(ROWS * [0, 1, 1])[:, 1].mean())

    def test_it_is_drawn_without_intervals(self):
        found = self.MODEL.partial_dependence(self.HOLES, "b", target="low")
        axes = found.plot(Figure().subplots())
        assert axes.get_ylabel() == "mean probability of low"
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["mean over the rows"]
        self.MODEL.partial_dependence(self.HOLES, "town", target="low").plot(Figure().subplots())
        with pytest.raises(ValueError, match="have no intervals"):
            found.interval()

    @pytest.mark.parametrize("target", [None, "none", 0])
    def test_a_class_must_be_one(self, target):
        with pytest.raises(ValueError, match="one of 'high', 'low', 'mid', got target="):
            self.MODEL.partial_dependence(self.HOLES, "b", target=target)
