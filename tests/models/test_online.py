"""Rows that come one after another, against models of all rows at once."""

from __future__ import annotations

import pytest
import torch

from gpytorch_partition import MondrianKernel, RandomForestKernel
from gpytorch_partition.models import FeatureSpaceGP


def rows(n, seed, reach=1.0):
    generator = torch.Generator().manual_seed(seed)
    x = reach * torch.rand(n, 2, generator=generator, dtype=torch.float64)
    y = (4 * x[:, 0]).sin() + 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)
    return x, y


X, Y = rows(200, seed=0)
MORE, MORE_Y = rows(60, seed=1, reach=3.0)  # most of them where no row was
NEW = torch.cat([rows(20, seed=2, reach=4.0)[0], MORE[:5]])


def mondrian():
    return MondrianKernel(X, 10, lifetime=4.0, random_state=0).double()


def forest():
    return RandomForestKernel(X, Y, 5, min_samples_leaf=5, random_state=0).double()


def fitted(kernel, x=X, y=Y, **kwargs):
    model = FeatureSpaceGP(kernel, **kwargs)
    model.add_rows(x, y)
    model.fit()
    return model


def batch_model(kernel, x, y, values):
    """A model of all rows, solved at given values."""
    model = FeatureSpaceGP(kernel)
    model.add_rows(x, y)
    model.values = values
    return model


def same_predictions(model, expected, tolerance=1e-9):
    for found, wanted in zip(model.predict(NEW), expected.predict(NEW)):
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(model.covariance(NEW), expected.covariance(NEW), rtol=tolerance, atol=tolerance)


def refuse_decomposition(monkeypatch):
    """No solution is found anew from here on."""
    name = "gpytorch_partition.models.feature_space_gp.FeatureSpace"
    monkeypatch.setattr(name, lambda *_: pytest.fail("the solution was found anew"))


class TestUpdates:
    @pytest.mark.parametrize("kernel", [mondrian, forest])
    @pytest.mark.parametrize("size", [1, 7])
    def test_agree_with_all_rows_at_once(self, kernel, size, monkeypatch):
        model, own = fitted(kernel()), kernel()
        _ = model.predict(NEW)
        with monkeypatch.context() as context:
            refuse_decomposition(context)
            for x, y in zip(MORE[:21].split(size), MORE_Y[:21].split(size)):
                model.add_rows(x, y)
            _ = model.predict(NEW)
        expected = batch_model(own, torch.cat([X, MORE[:21]]), torch.cat([Y, MORE_Y[:21]]), model.values)
        assert model.num_rows == 221
        same_predictions(model, expected)

    def test_of_many_rows_are_found_anew(self):
        model = fitted(mondrian())
        model.add_rows(MORE.repeat(40, 1), MORE_Y.repeat(40))
        expected = batch_model(mondrian(), torch.cat([X, *[MORE] * 40]), torch.cat([Y, *[MORE_Y] * 40]), model.values)
        same_predictions(model, expected, 1e-8)

    def test_can_be_followed_by_removals_and_another_fit(self):
        model = fitted(mondrian())
        model.add_rows(MORE[:3], MORE_Y[:3])
        model.remove_rows(MORE[:3], MORE_Y[:3])
        same_predictions(model, batch_model(mondrian(), X, Y, model.values), 1e-8)
        model.add_rows(MORE, MORE_Y)
        values = fitted(mondrian(), torch.cat([X, MORE]), torch.cat([Y, MORE_Y])).values
        assert model.fit().log_likelihood == pytest.approx(values.log_likelihood, rel=1e-9)

    def test_another_lifetime_is_an_error(self):
        kernel = mondrian()
        model = fitted(kernel)
        kernel.lifetime = 1.0
        for call in (lambda: model.predict(NEW), lambda: model.add_rows(MORE, MORE_Y)):
            with pytest.raises(RuntimeError, match="lifetime"):
                call()


class TestCap:
    def test_rows_that_open_too_many_cells_are_refused(self):
        size = len(fitted(mondrian()).statistics.sums)
        model = fitted(mondrian(), max_clusters=size + 12)
        before = model.predict(NEW)
        model.add_rows(MORE[:1], MORE_Y[:1])
        with pytest.raises(ValueError, match=f"at most {size + 12:,} clusters"):
            model.add_rows(MORE, MORE_Y)
        assert model.num_rows == 201
        assert not torch.equal(model.predict(NEW)[0], before[0])
        model.add_rows(X[:5], Y[:5])  # opens none
        assert model.num_rows == 206

    def test_of_a_new_model(self):
        with pytest.raises(ValueError, match="at most 3 clusters"):
            FeatureSpaceGP(forest(), max_clusters=3)
