"""The sweep over lifetimes against a dense Gaussian process at each of them."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from scipy import stats
from scipy.optimize import minimize
from torch.distributions import Gamma, MultivariateNormal, Uniform

from gpytorch_partition import FastClusterKernel, MondrianKernel, lifetime_sweep

OUTPUTSCALE, NOISE = 0.8, 0.05
USES_COUNTS = "gpytorch_partition.lifetimes.likelihood_sweep.uses_counts"
IS_DENSE = "gpytorch_partition.lifetimes.lifetime_likelihoods._is_dense"
LIFETIMES = [0.05, 0.5, 2.0, 5.0, 20.0]


def data(n=120, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    y = (8 * x[:, 0]).sin() + 0.2 * torch.randn(n, generator=generator, dtype=torch.float64)
    return x, y - y.mean()


X, Y = data()
NEW, NEW_Y = data(40, seed=1)


def kernel_of(x=X, num_trees=10, max_lifetime=20.0, **kwargs):
    return MondrianKernel(x, num_trees, max_lifetime=max_lifetime, random_state=0, **kwargs)


class Dense:
    """Likelihood, mean and variance at a lifetime, by kernels that are built with it."""

    def __init__(self, lifetime, x=X, y=Y, new=NEW, **kwargs):
        kernel = kernel_of(x, max_lifetime=20.0, lifetime=lifetime, **kwargs)
        labels, new_labels = kernel.cluster_ids(x), kernel.cluster_ids(new)
        noisy = OUTPUTSCALE * share(labels, labels) + NOISE * torch.eye(len(x), dtype=torch.float64)
        cross = OUTPUTSCALE * share(new_labels, labels)
        self.value = float(MultivariateNormal(torch.zeros_like(y), noisy).log_prob(y))
        self.mean = cross @ torch.linalg.solve(noisy, y)
        self.variance = OUTPUTSCALE - (cross * torch.linalg.solve(noisy, cross.mT).mT).sum(-1)

    @property
    def error(self):
        return float((self.mean - NEW_Y).square().mean().sqrt())


def share(labels1, labels2):
    return (labels1[:, None] == labels2[None]).double().mean(-1)


def sweep_of(kernel=None, lifetimes=LIFETIMES, **kwargs):
    options = dict(outputscale=OUTPUTSCALE, noise=NOISE, lifetimes=lifetimes, **kwargs)
    return lifetime_sweep(kernel or kernel_of(), X, Y, **options)


@pytest.fixture(scope="module")
def exact():
    return [Dense(lifetime) for lifetime in LIFETIMES]


def values(exact, name):
    return torch.tensor([getattr(each, name) for each in exact], dtype=torch.float64)


class TestOnAGrid:
    def test_likelihoods_and_errors(self, exact):
        sweep = sweep_of(validation=(NEW, NEW_Y))
        torch.testing.assert_close(sweep.log_marginal_likelihood, values(exact, "value"), rtol=1e-9, atol=1e-8)
        torch.testing.assert_close(sweep.validation_error, values(exact, "error"), rtol=1e-9, atol=1e-9)
        assert not sweep.standard_error.any()

    def test_by_clusters_however_many(self, exact, monkeypatch):
        """The p x p matrix at every lifetime, each coarsened from the one before."""
        monkeypatch.setattr(USES_COUNTS, lambda *_: True)
        sweep = sweep_of(validation=(NEW, NEW_Y))
        torch.testing.assert_close(sweep.log_marginal_likelihood, values(exact, "value"), rtol=1e-9, atol=1e-8)
        torch.testing.assert_close(sweep.validation_error, values(exact, "error"), rtol=1e-9, atol=1e-9)

    def test_by_lanczos(self, exact, monkeypatch):
        for name in (USES_COUNTS, IS_DENSE):
            monkeypatch.setattr(name, lambda *_: False)
        sweep = sweep_of(validation=(NEW, NEW_Y))
        errors = (sweep.log_marginal_likelihood - values(exact, "value")).abs()
        assert (errors <= 4 * sweep.standard_error + 0.05).all()
        assert (sweep.standard_error > 0).all()
        assert sweep.standard_error.max() < 3
        torch.testing.assert_close(sweep.validation_error, values(exact, "error"), rtol=1e-3, atol=1e-4)

    def test_the_best_lifetime_is_written_into_the_kernel(self, exact):
        kernel = kernel_of()
        sweep = sweep_of(kernel)
        assert sweep.best_lifetime == kernel.lifetime == LIFETIMES[int(values(exact, "value").argmax())]
        codes = kernel(X).evaluate_kernel().to_dense()
        torch.testing.assert_close(codes, share(kernel.cluster_ids(X), kernel.cluster_ids(X)))

    def test_default_lifetimes(self):
        sweep = sweep_of(lifetimes=None)
        grid = 20.0 * torch.logspace(-3, 0, 30, dtype=torch.float64)
        assert set(grid.log().round(decimals=9).tolist()) < set(sweep.lifetimes.log().round(decimals=9).tolist())
        assert sweep.lifetimes[-1] == 20.0
        torch.testing.assert_close(sweep.lifetimes[0].item(), 0.02)
        assert ((sweep.lifetimes > sweep.edges[:-1]) & (sweep.lifetimes <= sweep.edges[1:])).all()
        assert sweep.edges[-1] == 20.0  # no lifetime beyond the trees has a probability

    def test_active_dims(self):
        wide = torch.cat([torch.rand(len(X), 1, dtype=torch.float64), X], -1)
        kernel = kernel_of(wide, active_dims=(1, 2))
        sweep = lifetime_sweep(kernel, wide, Y, outputscale=OUTPUTSCALE, noise=NOISE, lifetimes=LIFETIMES)
        assert torch.equal(sweep.log_marginal_likelihood, sweep_of().log_marginal_likelihood)

    @pytest.mark.parametrize("dense", [True, False])
    def test_rows_in_single_precision_lose_no_digits(self, monkeypatch, dense):
        """Far from zero a share of 1 / 10 in float32 would cost tens of nats."""
        monkeypatch.setattr(USES_COUNTS, lambda *_: not dense)
        x, y = X.float(), (Y + 1e3).float()
        sweep = lifetime_sweep(kernel_of(x), x, y, outputscale=OUTPUTSCALE, noise=NOISE, lifetimes=[2.0])
        exact = Dense(2.0, x, y.double() - y.double().mean(), NEW.float()).value
        assert abs(float(sweep.log_marginal_likelihood[0]) - exact) < 1e-3


class TestAtEveryCut:
    @pytest.fixture(scope="class")
    @staticmethod
    def sweep():
        kernel = kernel_of(num_trees=4, max_lifetime=8.0)
        return sweep_of(kernel, "cuts", validation=(NEW, NEW_Y))

    def test_likelihoods_and_errors(self, sweep):
        for number in (0, 1, 2, 30, 100, len(sweep.lifetimes) - 1):
            dense = Dense(float(sweep.lifetimes[number]), num_trees=4)
            assert abs(float(sweep.log_marginal_likelihood[number]) - dense.value) < 1e-8
            assert abs(float(sweep.validation_error[number]) - dense.error) < 1e-9

    def test_too_many_cells(self, monkeypatch):
        monkeypatch.setattr("gpytorch_partition.lifetimes.likelihood_sweep._MOST_CELLS", 100)
        with pytest.raises(ValueError, match="shorter max_lifetime"):
            sweep_of(lifetimes="cuts")


class TestPosterior:
    def test_of_a_prior(self, exact):
        sweep = sweep_of()
        prior = Gamma(torch.tensor(2.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))
        edges = torch.cat([torch.zeros(1), sweep.edges[1:-1], torch.full((1,), 1e9)]).double()
        masses = prior.cdf(edges).diff()
        expected = (values(exact, "value") - values(exact, "value").max()).exp() * masses
        torch.testing.assert_close(sweep.posterior(prior), expected / expected.sum(), rtol=1e-6, atol=1e-12)
        torch.testing.assert_close(sweep.posterior(prior.cdf), sweep.posterior(prior))

    @pytest.mark.parametrize("lifetimes", [LIFETIMES, "cuts"])
    def test_the_whole_of_a_prior_counts(self, lifetimes):
        """Of a flat likelihood nothing but the prior is left: the ends stand for all beyond them."""
        sweep = sweep_of(kernel_of(num_trees=2, max_lifetime=20.0), lifetimes)
        object.__setattr__(sweep, "log_marginal_likelihood", torch.zeros_like(sweep.log_marginal_likelihood))
        prior = Uniform(torch.tensor(0.0).double(), torch.tensor(8.0).double())
        for each in (prior, stats.uniform(0, 8)):
            weights = sweep.posterior(each)
            torch.testing.assert_close(weights[0].item(), float(sweep.edges[1]) / 8)
            assert not weights[sweep.edges[:-1] >= 8].any()

    def test_a_prior_elsewhere(self):
        with pytest.raises(ValueError, match="probability"):
            sweep_of().posterior(lambda lifetimes: torch.ones_like(lifetimes))

    def test_predictions_are_averages(self, exact):
        sweep = sweep_of()
        prior = lambda lifetimes: lifetimes.clamp(max=20.0) ** 0.01  # noqa: E731
        # Flatten the likelihood, so that several lifetimes count.
        object.__setattr__(sweep, "log_marginal_likelihood", sweep.log_marginal_likelihood / 100)
        weights = sweep.posterior(prior)
        assert (weights > 0.01).sum() > 2
        mean, variance = sweep.predict(NEW, prior)
        means, variances = (torch.stack([getattr(each, name) for each in exact]) for name in ("mean", "variance"))
        expected = weights @ means
        torch.testing.assert_close(mean, expected, rtol=1e-4, atol=1e-4)
        second = weights @ (variances + means**2)
        torch.testing.assert_close(variance, second - expected**2, rtol=1e-3, atol=1e-4)


class TestRefinement:
    """The default grid is refined where the posterior is."""

    def test_the_posterior_is_that_of_a_fine_grid(self):
        sweep = lifetime_sweep(kernel_of(), X, Y)
        every = torch.linspace(0, math.log(20.0), 300).double().exp().clamp_max(20)
        fine = lifetime_sweep(kernel_of(), X, Y, lifetimes=every)
        (mean, spread), (exact_mean, exact_spread) = map(self.moments, (sweep, fine))
        assert abs(mean - exact_mean) < 0.15 * exact_spread
        assert 0.8 < spread / exact_spread < 1.25
        assert sweep.posterior().max() < 0.1
        assert float(sweep.log_marginal_likelihood.max()) > float(fine.log_marginal_likelihood.max()) - 0.5

    @staticmethod
    def moments(sweep):
        logs, weights = sweep.lifetimes.log(), sweep.posterior()
        mean = float(weights @ logs)
        return mean, float(weights @ (logs - mean).square()) ** 0.5

    def test_trees_that_are_too_short(self):
        with pytest.warns(UserWarning, match="longer max_lifetime") as caught:
            lifetime_sweep(kernel_of(max_lifetime=2.0), X, Y)
        assert caught[0].filename == __file__
        kernel = kernel_of(max_lifetime=2.0)
        before = kernel.lifetime
        with warnings.catch_warnings(action="error"), pytest.raises(UserWarning, match="longer max_lifetime"):
            lifetime_sweep(kernel, X, Y)
        assert kernel.lifetime == before

    @pytest.mark.parametrize("seed", range(4))
    def test_pure_noise_needs_no_longer_trees(self, recwarn, seed):
        """Every lifetime is as likely as another: that the longest is the best by rounding or chance says nothing."""
        noise = torch.randn(len(X), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        sweep = lifetime_sweep(kernel_of(max_lifetime=2.0), X, noise)
        assert float(sweep.log_marginal_likelihood.max() - sweep.log_marginal_likelihood[0]) < 3
        assert not [each for each in recwarn if "max_lifetime" in str(each.message)]


class TestMostLikelyScales:
    """Outputscale and noise of maximum likelihood at each lifetime."""

    @staticmethod
    def best(lifetime):
        """Outputscale, noise and mean by a simplex search on the dense density."""
        labels = kernel_of(lifetime=lifetime).cluster_ids(X)
        covariance, eye = share(labels, labels), torch.eye(len(X), dtype=torch.float64)

        def loss(logs):
            noisy = math.exp(logs[0]) * covariance + math.exp(logs[1]) * eye
            return -float(MultivariateNormal(torch.full_like(Y, logs[2]), noisy).log_prob(Y))

        starts, options = ([0, -2, 0], [-2, 0, 0]), {"xatol": 1e-5, "fatol": 1e-6, "maxiter": 2000}
        return min(
            (minimize(loss, start, method="Nelder-Mead", options=options) for start in starts), key=lambda r: r.fun
        )

    @pytest.mark.parametrize("way", ["dense", "counts", "lanczos"])
    def test_against_a_search(self, monkeypatch, way):
        monkeypatch.setattr(USES_COUNTS, lambda *_: way == "counts")
        monkeypatch.setattr(IS_DENSE, lambda *_: way == "dense")
        lifetimes = [0.5, 5.0]
        found = lifetime_sweep(kernel_of(), X, Y, lifetimes=lifetimes, validation=(NEW, NEW_Y))
        exact = way != "lanczos"
        for number, lifetime in enumerate(lifetimes):
            best = self.best(lifetime)
            least = -best.fun - 4 * float(found.standard_error[number])
            assert least - 1e-4 <= found.log_marginal_likelihood[number] <= -best.fun + (1e-4 if exact else 4)
            logs = torch.stack([found.outputscales[number], found.noises[number]]).log()
            tolerance = 1e-2 if exact else 0.3
            torch.testing.assert_close(logs, torch.from_numpy(best.x[:2]), rtol=0, atol=tolerance)
            assert abs(float(found.means[number]) - best.x[2]) < (1e-3 if exact else 0.05)

    def test_predictions_use_them(self):
        """A dense process with the values that were found, their mean included: few rows, which have another mean."""
        few, targets = X[:30], Y[:30] + 5 * X[:30, 1] + 3
        found = lifetime_sweep(kernel_of(), few, targets, lifetimes=[2.0])
        assert abs(float(found.means[0] - targets.mean())) > 1e-2
        kernel = kernel_of(lifetime=2.0)
        labels, new_labels = kernel.cluster_ids(few), kernel.cluster_ids(NEW)
        noisy = found.outputscales[0] * share(labels, labels) + found.noises[0] * torch.eye(30, dtype=torch.float64)
        cross = found.outputscales[0] * share(new_labels, labels)
        expected = found.means[0] + cross @ torch.linalg.solve(noisy, targets - found.means[0])
        mean, variance = found.predict(NEW)
        torch.testing.assert_close(mean, expected, rtol=1e-6, atol=1e-6)
        explained = (cross * torch.linalg.solve(noisy, cross.mT).mT).sum(-1)
        torch.testing.assert_close(variance, found.outputscales[0] - explained, rtol=1e-5, atol=1e-6)

    def test_both_or_neither(self):
        for given in ({"outputscale": 1.0}, {"noise": 1.0}):
            with pytest.raises(ValueError, match="both outputscale and noise, or neither"):
                lifetime_sweep(kernel_of(), X, Y, **given)
        with pytest.raises(ValueError, match='with lifetimes="cuts"'):
            lifetime_sweep(kernel_of(), X, Y, lifetimes="cuts")

    def test_targets_without_noise(self):
        found = lifetime_sweep(kernel_of(), X, torch.zeros(len(X), dtype=torch.float64), lifetimes=[1.0])
        assert bool(found.log_marginal_likelihood.isfinite().all())


def test_very_short_lifetimes():
    sweep = sweep_of(lifetimes=[1e-300, 1.0])
    assert bool(sweep.posterior().isfinite().all())
    assert abs(float(sweep.posterior().sum()) - 1) < 1e-12
    assert bool(sweep.predict(X)[0].isfinite().all())


class TestBadInput:
    def test_kernels(self):
        with pytest.raises(TypeError, match="FastClusterKernel"):
            sweep_of(FastClusterKernel(X, 5, random_state=0))
        with pytest.raises(RuntimeError, match="not fitted"):
            sweep_of(MondrianKernel())

    @pytest.mark.parametrize("lifetimes", [[], [0.0, 1.0], [-1.0], [1.0, 21.0], [math.nan]])
    def test_lifetimes(self, lifetimes):
        kernel = kernel_of()
        before = kernel.lifetime
        with pytest.raises(ValueError, match="max_lifetime"):
            sweep_of(kernel, lifetimes)
        assert kernel.lifetime == before

    def test_one_lifetime_is_no_list(self):
        kernel = kernel_of()
        with pytest.raises(ValueError, match="put it into a list"):
            sweep_of(kernel, 2.0)
        assert not kernel.partition._cached_rows  # no row was led down

    def test_noise_that_rounding_takes(self, monkeypatch):
        monkeypatch.setattr(USES_COUNTS, lambda *_: True)
        with pytest.raises(ValueError, match="noise that float64 resolves"):
            lifetime_sweep(kernel_of(), X, Y, outputscale=1.0, noise=1e-18)

    @pytest.mark.parametrize("name", ["outputscale", "noise"])
    @pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
    def test_values(self, name, value):
        options = {"outputscale": 1.0, "noise": 1.0, name: value}
        with pytest.raises(ValueError, match=name):
            lifetime_sweep(kernel_of(), X, Y, **options)

    def test_rows(self):
        for x, y in ((X, Y[:-1]), (X[:, :1], Y), (X, Y.clone().fill_(math.nan)), (X[:0], Y[:0])):
            with pytest.raises(ValueError, match="expected|built on"):
                lifetime_sweep(kernel_of(), x, y, outputscale=1.0, noise=1.0)
        for x, y in ((X.numpy(), Y), (X, Y.numpy())):
            with pytest.raises(TypeError, match="as a tensor of real numbers, got ndarray"):
                lifetime_sweep(kernel_of(), x, y)
        with pytest.raises(ValueError, match=r"expected lifetimes as numbers, or \"cuts\", got \['a'\]"):
            sweep_of(lifetimes=["a"])
        with pytest.raises(ValueError, match="as many targets"):
            sweep_of(validation=(NEW, NEW_Y[:3]))


@pytest.mark.parametrize("given", [True, False])
def test_targets_far_from_zero(given):
    """Likelihoods, values and errors are those of centred targets; the sweep lost 40 nats at 1e6."""
    options = {"outputscale": OUTPUTSCALE, "noise": NOISE} if given else {}

    def sweep(shift):
        return lifetime_sweep(
            kernel_of(), X, Y + shift, lifetimes=LIFETIMES, validation=(NEW, NEW_Y + shift), **options
        )

    near, far = sweep(0.0), sweep(1e6)
    for name in ("log_marginal_likelihood", "validation_error", "outputscales", "noises"):
        torch.testing.assert_close(getattr(far, name), getattr(near, name), rtol=1e-6, atol=1e-6)
    for found, wanted in zip(far.predict(NEW), near.predict(NEW)):
        torch.testing.assert_close(found - 1e6 * (found > 1e5), wanted, rtol=0, atol=1e-5)
