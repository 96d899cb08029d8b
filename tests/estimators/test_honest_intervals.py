"""Intervals of 90 % cover 90 % of new rows where something about the rows is not known for certain."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import MaternKernel

from gpytorch_partition.estimators import PartitionGPRegressor


def matern(x, y):
    return MaternKernel(nu=1.5)


def coverage(model, frame, y):
    _, ends = model.predict(frame, quantiles=(0.05, 0.95))
    return 100 * np.mean((ends[:, 0] < y) & (y < ends[:, 1]))


class TestLevelsThatBecomeMeanTargets:
    """A hundred and fifty towns, two rows of each: in-sample means of them hold half of a row's own noise."""

    @staticmethod
    def towns(seed, effect, num_rows=300, num_new=400):
        random = np.random.RandomState(seed)
        towns, effects = random.randint(150, size=num_rows + num_new), effect * random.randn(150)
        frame = pd.DataFrame({"a": random.rand(num_rows + num_new), "town": [f"town {town}" for town in towns]})
        y = np.sin(5 * frame["a"].to_numpy()) + effects[towns] + 0.5 * random.randn(num_rows + num_new)
        return frame[:num_rows], y[:num_rows], frame[num_rows:], y[num_rows:]

    @pytest.mark.parametrize("effect", [0.0, 1.0])
    @pytest.mark.parametrize("kernel", ["mondrian", "fast_cluster", matern])
    def test_intervals_cover_what_they_say(self, kernel, effect):
        found = []
        for seed in range(3):
            frame, y, new, truth = self.towns(seed, effect)
            found.append(coverage(PartitionGPRegressor(kernel, 30, random_state=0).fit(frame, y), new, truth))
        assert 84 < np.mean(found) < 96

    def test_a_state_holds_the_rows_and_predicts_the_same(self):
        frame, y, new, _ = self.towns(0, 1.0)
        model, file = PartitionGPRegressor("mondrian", 20, random_state=0).fit(frame, y), io.BytesIO()
        torch.save(model.to_state(), file)
        file.seek(0)
        twin = PartitionGPRegressor.from_state(torch.load(file, weights_only=True))
        assert np.array_equal(twin.predict(new, return_std=True), model.predict(new, return_std=True))
        assert np.array_equal(twin.predict(new[:1]), model.predict(new)[:1])
        rows, similarities = model.nearest_rows(frame[:5], k=1)
        assert (similarities <= 1).all()

    def test_unlabelled_rows_and_float32(self):
        frame, y, new, truth = self.towns(1, 1.0)
        model = PartitionGPRegressor("fast_cluster", 30, random_state=0, dtype="float32").fit(frame, y, unlabelled=new)
        assert coverage(model, new, truth) > 80
