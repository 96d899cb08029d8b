"""Solvers in cluster space find on rows in shards what they find on rows in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition import settings
from gpytorch_partition.distributed import DaskRows
from gpytorch_partition.inference.spaces.cluster_space import space_product, space_root
from gpytorch_partition.linalg.lanczos import LanczosRun
from gpytorch_partition.models import ClusterSpaceGP, FeatureSpaceGP
from gpytorch_partition.models.cluster_space_gp import local_rows
from tests.distributed.dask_problems import chunks, fast_clusters, forest, rows, workers
from tests.distributed.test_dask_regressor import arrays, regressor


@pytest.mark.parametrize("kind", [fast_clusters, forest])
def test_lanczos_steps_are_those_of_rows_in_memory(client, kind):
    kernel = kind(*rows())
    model = ClusterSpaceGP(kernel, local_rows(kernel, *rows()))
    root = space_root(model._kernels_operator(model._index.sizes))

    def run(own):
        generator = torch.Generator().manual_seed(0)
        probes = torch.randn(root.shape[-1], 2, generator=generator, dtype=torch.float64)
        sums = own.moments().moved(torch.full((1,), 5.0, dtype=torch.float64)).sums
        steps = LanczosRun(space_product(own, root), root._t_matmul(sums), probes, generator)
        steps.extend(6)
        nodes, coefficients = steps.block_quadrature()
        return coefficients.mT @ (coefficients / (nodes + 0.1).unsqueeze(-1)), steps.probe_quadratures()[0]

    found, expected = run(DaskRows(kernel, chunks(), client)), run(local_rows(kernel, *rows()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8 * float(other.abs().max()))


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


def test_chunks_of_no_rows_at_all_are_refused(client):
    kernel, (x, y) = fast_clusters(*rows()), rows()
    with pytest.raises(ValueError, match="expected one row or more, got rows of none"):
        ClusterSpaceGP(kernel, DaskRows(kernel, [(x[:0], y[:0])] * 3, client))


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
