"""Copies of fitted regressors: what their states, stored as plain values, and pickles give back."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import torch

from gpytorch_partition.estimators import PartitionGPRegressor


def stored(model: PartitionGPRegressor) -> PartitionGPRegressor:
    """The regressor of a state that was written and read without running code."""
    file = io.BytesIO()
    torch.save(model.to_state(), file)
    file.seek(0)
    return PartitionGPRegressor.from_state(torch.load(file, weights_only=True))


def assert_copies_predict_the_same(model: PartitionGPRegressor, rows: Any) -> PartitionGPRegressor:
    """To the last bit; a kernel without a name has no state. Returns a copy."""
    copies = [pickle.loads(pickle.dumps(model))]
    copies += [stored(model)] if isinstance(model.kernel, str | type) or hasattr(model.kernel, "fit") else []
    for copy in copies:
        for expected, found in zip(model.predict(rows, return_std=True), copy.predict(rows, return_std=True)):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(copy.noise_, model.noise_)
        assert copy.log_marginal_likelihood_value_ == model.log_marginal_likelihood_value_
        assert copy.log_predictive_density_ == model.log_predictive_density_
    return copies[-1]
