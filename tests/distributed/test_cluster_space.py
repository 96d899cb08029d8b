"""Solvers in cluster space find on rows in shards what they find on rows in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition import settings
from gpytorch_partition.distributed import DaskRows
from gpytorch_partition.models import ClusterSpaceGP, FeatureSpaceGP
from tests.distributed.dask_problems import chunks, fast_clusters, forest, rows, workers
from tests.distributed.test_dask_regressor import arrays, regressor


@pytest.mark.parametrize("kind", [fast_clusters, forest])
def test_likelihoods_are_those_of_the_feature_space(client, kind):
    kernel = kind(*rows())
    model, exact = ClusterSpaceGP(kernel, DaskRows(kernel, chunks(), client)), FeatureSpaceGP(kernel)
    exact.add_rows(*rows())
    found = model.fit()
    value = exact.log_marginal_likelihood(found.outputscale, found.noise, found.mean)
    assert found.log_likelihood == pytest.approx(value, rel=1e-8)
    assert abs(model.fit(num_probes=100).log_likelihood - value) < 3 * model.standard_error
    found = model.values
    values = exact.fit()
    assert found.noise == pytest.approx(values.noise, rel=0.1)
    exact.values = found
    torch.testing.assert_close(model.means(rows()[0]), exact.predict(rows()[0])[0], rtol=0, atol=0.02)


@pytest.mark.slow
def test_the_regressor_of_many_clusters_is_that_of_few_with_the_same_bits_for_any_number_of_workers(
    monkeypatch, client
):
    exact = regressor(kernel="forest", client=client).fit(*arrays())
    expected = exact.predict(rows()[0], return_std=True)
    monkeypatch.setattr("gpytorch_partition.distributed.dask_regressor._MOST_COUNTED", 1)
    found = []
    for number in (1, 2, 3):
        with workers(number) as own, settings.num_variance_samples(64):
            model = regressor(kernel="forest", client=own).fit(*arrays())
            assert isinstance(model.model_, ClusterSpaceGP)
            lazy = model.predict(arrays()[0], return_std=True)
            found.append([part.compute() for part in lazy])
            np.testing.assert_array_equal(model.predict(rows()[0]), found[-1][0])
    for others in found[1:]:
        np.testing.assert_array_equal(others, found[0])
    np.testing.assert_allclose(found[0][0], expected[0], atol=0.05 * expected[1].mean())
    np.testing.assert_allclose(found[0][1], expected[1], rtol=0.1)
