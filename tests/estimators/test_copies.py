"""Copies of regressors of every kind, by pickles, states and files, predict the same to the last bit."""

from __future__ import annotations

import pickle
from copy import deepcopy
from functools import partial

import numpy as np
import pandas as pd
import pytest
from gpytorch.kernels import RBFKernel
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.likelihoods import StudentTLikelihood
from gpytorch_partition.presets import Options
from tests.estimators.copies import stored
from tests.few_trees import few_trees

RANDOM = np.random.RandomState(0)
X, NEW = RANDOM.randn(60, 2), RANDOM.randn(9, 2)
Y = X[:, 0] + 0.3 * RANDOM.randn(60)
HOLES = np.where(RANDOM.rand(60, 2) < 0.1, np.nan, X)
TWO = np.stack([Y, RANDOM.randn(60)], 1)
HALF = np.where(np.arange(60)[:, None] % 3 == [0, 1], np.nan, TWO)
FRAME = pd.DataFrame(
    {
        "size": HOLES[:, 0],
        "color": np.array(["red", "blue", None], dtype=object)[RANDOM.randint(3, size=60)],
        "town": [f"town {number}" for number in RANDOM.randint(25, size=60)],
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(RANDOM.randint(500, size=60), "D"),
    }
)
NEW_FRAME = FRAME[:9].assign(color=["green", *FRAME["color"][1:9]], day=[pd.NaT, *FRAME["day"][1:9]])
OF_FRAME = Y + (FRAME["color"] == "red")
MANY = RANDOM.randn(600, 2)
OUTLIERS = np.where(np.arange(120) % 12 == 0, 8.0, 3 * MANY[:120, 0])
FEW = few_trees(5, num_folds=2)
CALIBRATED = Options(**{**vars(FEW), "fewest_choosing_rows": 30, "most_choosing_rows": 30})


def rbf(x, y):
    return RBFKernel()


def fitted(kernel, x=X, y=Y, options=None, **weights):
    return PartitionGPRegressor(kernel, 5, random_state=0, options=options).fit(x, y, **weights)


def counted(kernel):
    return PartitionGPRegressor(kernel, 5, random_state=0).fit_chunks([(MANY[:400], MANY[:400, 0]), (MANY, MANY[:, 0])])


REGRESSORS = {
    **{kernel: (partial(fitted, kernel), NEW) for kernel in ("forest", "fast_cluster", "mondrian")},
    "auto": (partial(fitted, "auto", options=FEW), NEW),
    "calibrated": (partial(fitted, "auto", options=CALIBRATED), np.concatenate([NEW, NEW + [100.0, 0.0]])),
    "outliers": (partial(fitted, "auto", MANY[:120], OUTLIERS, FEW), NEW),
    "function": (partial(fitted, rbf), NEW),
    "ensemble": (partial(fitted, RandomForestRegressor(5, random_state=0)), NEW),
    "ensemble of holes": (partial(fitted, HistGradientBoostingRegressor(max_iter=9), HOLES), HOLES),
    **{
        f"weights, {kernel}": (partial(fitted, kernel, options=FEW, sample_weight=1 + abs(X[:, 1])), NEW)
        for kernel in ("forest", "auto")
    },
    **{f"targets, {kernel}": (partial(fitted, kernel, y=TWO), NEW) for kernel in ("forest", "mondrian")},
    **{f"some targets, {kernel}": (partial(fitted, kernel, y=HALF), NEW) for kernel in ("forest", "mondrian")},
    "targets, auto": (partial(fitted, "auto", y=TWO, options=FEW), NEW),
    **{
        f"table, {kernel if isinstance(kernel, str) else 'function'}": (
            partial(fitted, kernel, FRAME, OF_FRAME, options=FEW),
            NEW_FRAME,
        )
        for kernel in ("forest", "fast_cluster", "mondrian", "auto", rbf)
    },
    **{f"chunks, {kernel}": (partial(counted, kernel), NEW) for kernel in ("auto", "forest", "fast_cluster")},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REGRESSORS)
def test_they_predict_the_same_to_the_last_bit(name, tmp_path):
    make, rows = REGRESSORS[name]
    model = make()
    copies = [pickle.loads(pickle.dumps(model)), deepcopy(model)]
    if model.kernel is not rbf:  # which has no name
        model.save(tmp_path / "model.gp")
        loaded = PartitionGPRegressor.load(tmp_path / "model.gp")
        copies += [stored(model), loaded, stored(loaded)]
        summaries = [str(each.summary()).partition("\n")[2] for each in (loaded, model)]  # below the kernel's name
        assert summaries[0] == summaries[1]
    for copy in copies:
        for found, expected in zip(*(each.predict(rows, return_std=True, quantiles=(0.1,)) for each in (copy, model))):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(copy.noise_, model.noise_)
        assert copy.log_marginal_likelihood_value_ == model.log_marginal_likelihood_value_
        assert copy.log_predictive_density_ == model.log_predictive_density_
        assert copy.n_features_in_ == model.n_features_in_
        if name == "outliers":
            assert isinstance(copy.likelihood_, StudentTLikelihood)
        if rows is NEW_FRAME:
            assert copy.feature_names_in_.tolist() == list(FRAME)
            with pytest.raises(TypeError, match="expected text in column 'town'"):
                copy.predict(rows.assign(town=1))
        if name.startswith(("targets", "some")):
            np.testing.assert_array_equal(copy.target_covariance_, model.target_covariance_)
            np.testing.assert_array_equal(copy.noise_covariance_, model.noise_covariance_)
