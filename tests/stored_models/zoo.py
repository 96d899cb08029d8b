"""
Models of every kind of this package, each built from rows, with an unfitted twin that takes its state.

Only public names are imported, so that the same file builds the models of another checkout. Hyperparameters are set by
hand, since a search amplifies rounding; models that are searched say so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any, NamedTuple

import gpytorch
import linear_operator
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import ConstantKernel, Kernel, LinearKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.means import ConstantMean
from gpytorch.models import ExactGP
from sklearn.ensemble import AdaBoostRegressor, ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

from gpytorch_partition import (
    FastClusterKernel,
    GammaMondrianKernel,
    IterativeKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomBinningKernel,
    RandomForestKernel,
    fit_exact_gp,
    settings,
)
from gpytorch_partition.command_line.model_file import SavedModel
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.kernels import OverconfidenceWarning, StandardizedKernel
from gpytorch_partition.likelihoods import FITCGaussianLikelihood, ForestNoiseGaussianLikelihood
from gpytorch_partition.models import FeatureSpaceGP, PartitionGP
from gpytorch_partition.tables import TableEncoder

from . import rows as sets
from .kinds import COUNTED, MODEL_FILE, PROCESS, REGRESSOR, Kind
from .rows import Rows

# On one machine numbers are the same to the last bit, those of counted rows to 2e-15. With other vector instructions,
# or two threads, float64 moved by 1e-11 at most, 2e-10 where searched anew; float32 by 2e-6 in iterative solves (means
# stop at residuals of 1e-5, variances at 1e-4: one more iteration may move them by as much), by 2e-7 in dense ones.
_FLOAT32_RTOL = 1e-4

KernelOf = Callable[[Rows], Kernel]
LikelihoodOf = Callable[[Rows], Likelihood]


class Entry(NamedTuple):
    """A model of the zoo."""

    kind: Kind
    fitted: Callable[[Rows], Any]
    unfitted: Callable[[Rows], Any]  # what the kind restores a state into; it sees the training rows
    draw: Callable[[], Rows] = sets.plain  # only to write the files, which keep the rows
    is_searched: bool = False
    context: Callable[[], AbstractContextManager[Any]] = nullcontext  # to predict in
    rtol: float = 1e-10


# How models are put together.


def _process(kernel: KernelOf, unfitted: KernelOf, likelihood: LikelihoodOf | None = None, **options: Any) -> Entry:
    """An exact Gaussian process; the likelihood of no rows is the unfitted one."""
    is_searched = options.get("is_searched", False)
    likelihood = likelihood or (lambda rows: GaussianLikelihood())
    return Entry(
        PROCESS,
        lambda rows: _with_values(PartitionGP(rows.x, rows.y, likelihood(rows), kernel(rows)), is_searched),
        lambda rows: PartitionGP(rows.x, rows.y, likelihood(None), unfitted(rows)),
        **options,
    )


def _with_values(model: PartitionGP, is_searched: bool) -> PartitionGP:
    if is_searched:
        fit_exact_gp(model, model.likelihood)
        return model
    model.covar_module.outputscale, model.mean_module.constant = 1.25, torch.tensor(0.125).to(model.train_targets)
    model.likelihood.noise = 0.25
    return model


def _kernel(fitted: KernelOf, unfitted: Callable[[], Kernel], **options: Any) -> Entry:
    """The process of one kernel, whose unfitted twin needs no rows."""
    return _process(fitted, lambda rows: unfitted(), **options)


def _forest(heights: str = "all", **options: Any) -> KernelOf:
    return lambda rows: RandomForestKernel(rows.x, rows.y, 12, heights, random_state=0, **options)


def _clusters(rows: Rows) -> FastClusterKernel:
    return FastClusterKernel(rows.x, 20, random_state=0)


def _mondrian(rows: Rows) -> MondrianKernel:
    return MondrianKernel(rows.x, 8, random_state=0)


def _of_ensemble(ensemble: Callable[[], Any], heights: str = "all") -> KernelOf:
    """The kernel of a scikit-learn or LightGBM ensemble, which has seen the targets."""

    def kernel(rows: Rows) -> RandomForestKernel:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OverconfidenceWarning)
            return RandomForestKernel.from_forest(ensemble().fit(rows.x.numpy(), rows.y.numpy()), heights)

    return kernel


def _lightgbm() -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(
        n_estimators=10, num_leaves=8, min_child_samples=5, random_state=0, n_jobs=1, deterministic=True, verbose=-1
    )


def _scaled(kernel: Kernel, outputscale: float) -> ScaleKernel:
    """In float64 first: the logarithm of a float32 outputscale is one more rounding."""
    scaled = ScaleKernel(kernel).double()
    scaled.outputscale = outputscale
    return scaled


# Kernels with something set, and their twins.


def _learned_levels(rows: Rows) -> RandomForestKernel:
    kernel = _forest("learned", min_samples_leaf=5)(rows).double()
    kernel.level_weights = torch.arange(1.0, len(kernel.level_weights) + 1)
    return kernel


def _shorter_lifetime(rows: Rows) -> MondrianKernel:
    kernel = MondrianKernel(rows.x, 8, lifetime=0.75, max_lifetime=1.0, projection="rotations", random_state=0)
    kernel.lifetime = 0.25
    return kernel


def _projected(rows: Rows) -> MondrianKernel:
    inverse_lengths = torch.tensor([1.0, 0.25, 0.5]).double()
    return MondrianKernel(rows.x, 8, lifetime=0.5, projection=inverse_lengths, random_state=0, active_dims=(3, 0, 1))


def _gamma(rows: Rows) -> GammaMondrianKernel:
    return GammaMondrianKernel(rows.x, 8, concentration=1.5, lifetime=0.25, max_lifetime=1.5, random_state=0)


def _bins(rows: Rows) -> RandomBinningKernel:
    return RandomBinningKernel(rows.x, 20, lengthscale=[1.0, 2.0, 4.0, 3.0], random_state=0)


def _mixture(rows: Rows) -> PartitionMixtureKernel:
    return PartitionMixtureKernel([_forest()(rows), _clusters(rows)], [2.0, 1.0])


def _nested_mixture(rows: Rows) -> PartitionMixtureKernel:
    parts = [_forest("leaf")(rows), _mondrian(rows)]
    flat = PartitionMixtureKernel(parts, [1.0, 3.0], learn_weights=False)
    return PartitionMixtureKernel([flat, _forest(active_dims=(1, 2))(rows)], [2.0, 1.0], learn_weights=False)


def _unfitted_nested_mixture() -> PartitionMixtureKernel:
    flat = PartitionMixtureKernel([RandomForestKernel(), MondrianKernel()], learn_weights=False)
    unfitted = RandomForestKernel(active_dims=(1, 2))
    return PartitionMixtureKernel([flat, unfitted], learn_weights=False)


def _local_linear(rows: Rows) -> LocalLinearKernel:
    kernel = LocalLinearKernel(_forest(min_samples_leaf=8)(rows), 4).double()
    kernel.variance = torch.tensor([[0.5, 0.25, 0.125, 0.0625]])
    return kernel


def _landmarks(rows: Rows) -> LandmarkKernel:
    """Its lengthscales are learned, by a search, and then set."""
    kernel = LandmarkKernel(rows.x, rows.y, 30, num_rows=20, random_state=0).double()
    kernel.base_kernel.lengthscale = torch.tensor([[1.0, 2.0, 1.5, 4.0]])
    return kernel


def _rbf() -> RBFKernel:
    kernel = RBFKernel().double()
    kernel.lengthscale = 1.5
    return kernel.requires_grad_(False)


def _sum(forest: Kernel, clusters: Kernel) -> IterativeKernel:
    """With a constant and a linear kernel of GPyTorch."""
    constant, linear = ConstantKernel().double(), LinearKernel().double()
    constant.constant, linear.variance = torch.tensor(0.5), 0.125
    return IterativeKernel(_scaled(forest, 0.75) + _scaled(clusters, 0.5) + constant + linear)


def _standardized(forest: Kernel, clusters: Kernel, slopes: Kernel, rows: Rows | None) -> IterativeKernel:
    total = _scaled(forest, 0.75) + _scaled(clusters, 0.5) + _scaled(slopes, 0.25)
    return IterativeKernel(StandardizedKernel(total, None if rows is None else rows.x))


def _of_standardized_rows(rows: Rows) -> IterativeKernel:
    x = (rows.x - rows.x.mean(0)) / rows.x.std(0, correction=0)
    inside = Rows(x, rows.y, rows.new)
    slopes = LocalLinearKernel(_forest(min_samples_leaf=10)(inside), 3)
    return _standardized(_forest("leaf")(inside), _clusters(inside), slopes, rows)


def _floors(x: Tensor) -> Tensor:
    """A user's partitions."""
    return torch.stack(
        [x[..., 0].floor(), (2 * x[..., 1]).floor(), x[..., 2].round() + 3 * x[..., 3].round()], -1
    ).long()


# Noise that varies.


def _forest_noise(rows: Rows | None) -> ForestNoiseGaussianLikelihood:
    if rows is None:
        return ForestNoiseGaussianLikelihood()
    likelihood = ForestNoiseGaussianLikelihood(rows.x, rows.y, num_trees=15, random_state=0).double()
    likelihood.exponent = 0.75
    return likelihood


def _fitc(rows: Rows | None) -> FITCGaussianLikelihood:
    landmarks = LandmarkKernel.from_kernel(_rbf(), None if rows is None else rows.x[:15])
    exact, approximation = _scaled(landmarks.base_kernel, 1.25), _scaled(landmarks, 1.25)
    return FITCGaussianLikelihood(HomoskedasticNoise().double(), exact, approximation, 0.0625)


# Two outputs.


class _TwoOutputs(ExactGP):
    """A batch of two processes with one forest."""

    def __init__(self, rows: Rows, kernel: Kernel) -> None:
        x, batch = rows.x.expand(2, *rows.x.shape), torch.Size([2])
        super().__init__(x, rows.y, GaussianLikelihood(batch_shape=batch))
        self.mean_module = ConstantMean(batch_shape=batch)
        self.covar_module = ScaleKernel(kernel, batch_shape=batch)
        self.double()

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _two_outputs(rows: Rows) -> _TwoOutputs:
    forest = RandomForestKernel(rows.x, rows.y.mT, 12, random_state=0, batch_shape=(2,))
    model = _TwoOutputs(rows, forest)
    model.covar_module.outputscale, model.likelihood.noise = torch.tensor([1.25, 2.0]), torch.tensor([[0.25], [0.5]])
    model.mean_module.constant = torch.tensor([0.125, -1.0]).double()
    return model


# Regressors and counted rows.


def _fitted_regressor(rows: Rows, *, kernel: str, **options: Any) -> PartitionGPRegressor:
    return PartitionGPRegressor(kernel, 20, random_state=0, **options).fit(rows.x.numpy(), rows.y.numpy())


def _regressor(kernel: str, draw: Callable[[], Rows]) -> Entry:
    fitted = partial(_fitted_regressor, kernel=kernel)
    return Entry(REGRESSOR, fitted, lambda rows: PartitionGPRegressor, draw, is_searched=True)


_COLUMNS = ["east", "north", "depth"]


def _saved(rows: Rows) -> SavedModel:
    regressor = _fitted_regressor(rows, kernel="forest", dtype="float32")
    reader = TableEncoder().fit(dict(zip([*_COLUMNS, "gold"], [*rows.x.numpy().T, rows.y.numpy()], strict=True)))
    return SavedModel(regressor, reader, _COLUMNS, "gold")


def _names_only(rows: Rows) -> SavedModel:
    return SavedModel(PartitionGPRegressor(), TableEncoder(), _COLUMNS, "gold")


def _counted_forest(rows: Rows) -> FeatureSpaceGP:
    kernel = RandomForestKernel(rows.x, rows.y, 8, min_samples_leaf=6, max_samples=60, random_state=0)
    model = FeatureSpaceGP(kernel)
    model.add_chunks(zip(rows.x.split(50), rows.y.split(50)))
    model.fit()
    return model


def _counted_mondrian(rows: Rows) -> FeatureSpaceGP:
    model = FeatureSpaceGP(MondrianKernel(rows.x, 6, lifetime=0.25, random_state=0))
    model.add_rows(rows.x, rows.y)
    model.fit()
    return model


def _counted(fitted: Callable[[Rows], FeatureSpaceGP], unfitted: Callable[[], PartitionKernel]) -> Entry:
    return Entry(COUNTED, fitted, lambda rows: unfitted(), is_searched=True)


# Solvers for many rows.


def _few_rows_are_many(tolerance: float, variances: str) -> AbstractContextManager[Any]:
    """Solvers that are otherwise for thousands of rows, with a preconditioner."""
    stack = ExitStack()
    for context in (
        settings.iterative(),
        linear_operator.settings.max_cholesky_size(50),
        linear_operator.settings.min_preconditioning_size(50),
        settings.preconditioner_rank(20),
        gpytorch.settings.max_eager_kernel_size(50),
        gpytorch.settings.eval_cg_tolerance(tolerance),
        settings.variance_tolerance(1e-4),
        settings.predictive_variances(variances),
    ):
        stack.enter_context(context)
    return stack


ZOO = {
    "forest": _kernel(_forest(), RandomForestKernel),
    "forest_sampled": _kernel(_forest("sampled"), RandomForestKernel),
    "forest_leaf": _kernel(_forest("leaf"), RandomForestKernel),
    "forest_learned": _kernel(_learned_levels, RandomForestKernel),
    "forest_impurity": _kernel(_forest("impurity"), RandomForestKernel),
    "forest_of_missing_values": _kernel(_forest(), RandomForestKernel, draw=sets.with_missing_values),
    "forest_of_some_columns": _kernel(
        _forest("leaf", active_dims=(3, 0)), partial(RandomForestKernel, active_dims=(3, 0))
    ),
    "extra_trees": _kernel(
        _of_ensemble(partial(ExtraTreesRegressor, 10, min_samples_leaf=4, random_state=0)), RandomForestKernel
    ),
    "ada_boost": _kernel(
        _of_ensemble(partial(AdaBoostRegressor, DecisionTreeRegressor(max_depth=4), n_estimators=8, random_state=0)),
        RandomForestKernel,
    ),
    "histogram_boosting": _kernel(
        _of_ensemble(
            partial(
                HistGradientBoostingRegressor, max_iter=12, categorical_features=[0], min_samples_leaf=5, random_state=0
            ),
            "leaf",
        ),
        RandomForestKernel,
        draw=sets.with_categories,
    ),
    "lightgbm": _kernel(_of_ensemble(_lightgbm, "learned"), RandomForestKernel, draw=sets.with_missing_values),
    "fast_cluster": _kernel(_clusters, FastClusterKernel),
    "mondrian": _kernel(_mondrian, MondrianKernel),
    "mondrian_rotated": _kernel(_shorter_lifetime, MondrianKernel),
    "mondrian_projected": _kernel(_projected, partial(MondrianKernel, active_dims=(3, 0, 1))),
    "gamma_mondrian": _kernel(_gamma, GammaMondrianKernel),
    "random_binning": _kernel(_bins, RandomBinningKernel),
    "mixture": _kernel(_mixture, lambda: PartitionMixtureKernel([RandomForestKernel(), FastClusterKernel()])),
    "nested_mixture": _kernel(_nested_mixture, _unfitted_nested_mixture),
    "local_linear": _kernel(_local_linear, lambda: LocalLinearKernel(RandomForestKernel(), 4)),
    "landmark": _kernel(_landmarks, LandmarkKernel),
    "landmark_of_kernel": _kernel(
        lambda rows: LandmarkKernel.from_kernel(_rbf(), rows.x[:25]), lambda: LandmarkKernel.from_kernel(_rbf(), None)
    ),
    "sum": _kernel(
        lambda rows: _sum(_forest()(rows), _clusters(rows)), lambda: _sum(RandomForestKernel(), FastClusterKernel())
    ),
    "standardized": _kernel(
        _of_standardized_rows,
        lambda: _standardized(
            RandomForestKernel(), FastClusterKernel(), LocalLinearKernel(RandomForestKernel(), 3), None
        ),
        draw=sets.in_other_units,
    ),
    "user_function": _kernel(lambda rows: PartitionKernel(_floors), lambda: PartitionKernel(_floors)),
    "forest_noise": _kernel(_clusters, FastClusterKernel, likelihood=_forest_noise, draw=sets.uneven),
    "fitc": _kernel(
        lambda rows: LandmarkKernel.from_kernel(_rbf(), rows.x[:15]),
        lambda: LandmarkKernel.from_kernel(_rbf(), None),
        likelihood=_fitc,
    ),
    "two_outputs": Entry(
        PROCESS,
        _two_outputs,
        lambda rows: _TwoOutputs(rows, RandomForestKernel(batch_shape=(2,))),
        sets.of_two_outputs,
    ),
    "searched_forest": _kernel(_forest("sampled"), RandomForestKernel, is_searched=True),
    "searched_mondrian": _kernel(_shorter_lifetime, MondrianKernel, is_searched=True),
    "searched_landmark": _kernel(
        lambda rows: LandmarkKernel(rows.x, rows.y, 30, num_rows=60, random_state=0), LandmarkKernel, is_searched=True
    ),
    "iterative": _kernel(
        _clusters,
        FastClusterKernel,
        context=partial(_few_rows_are_many, 1e-13, "feature_space"),
    ),
    "iterative_float32": _kernel(
        _forest(),
        RandomForestKernel,
        draw=sets.in_single_precision,
        context=partial(_few_rows_are_many, 1e-5, "conjugate_gradients"),
        rtol=_FLOAT32_RTOL,
    ),
    "regressor_forest": _regressor("forest", sets.with_missing_values),
    "regressor_fast_cluster": _regressor("fast_cluster", sets.even),
    "regressor_mondrian": _regressor("mondrian", sets.uneven),
    "regressor_auto_even": _regressor("auto", sets.even),
    "regressor_auto_uneven": _regressor("auto", sets.uneven),
    "regressor_auto_missing": _regressor("auto", sets.with_missing_values),
    "regressor_auto_many": _regressor("auto", sets.many),
    "counted_forest": _counted(_counted_forest, RandomForestKernel),
    "counted_mondrian": _counted(_counted_mondrian, MondrianKernel),
    "model_file": Entry(MODEL_FILE, _saved, _names_only, sets.even, is_searched=True, rtol=_FLOAT32_RTOL),
}
