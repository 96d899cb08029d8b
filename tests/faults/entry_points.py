"""All public entry points that take input: arguments that are right, and values that are wrong for any of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import gpytorch
import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import SGDRegressor

import gpytorch_partition as package
from gpytorch_partition import estimators, kernels, lifetimes, likelihoods, models, partitions, presets, tables
from gpytorch_partition.partitions import ensembles
from tests.faults.estimators_zoo import FEW_TREES

FOLDERS = (package, kernels, partitions, ensembles, estimators, models, lifetimes, presets, likelihoods, tables)

# Public names that take no input of users: results, base classes, warnings, constants, and what others build.
WITHOUT_INPUT = {
    "LifetimeModel", "LifetimePath", "LifetimeSweep", "SpectralTruncation", "Trees", "ZERO", "Partition", "Options",
    "OtherUnitsWarning", "OverconfidenceWarning", "OutsideRangeWarning", "MisreadColumnWarning", "CoregionalizedGP",
    "GroupPartition", "TreeCutPartition", "FITCGaussianLikelihood", "UnspannedNoise", "StudentTLikelihood",
    "StudentTNoise", "WeightedNoise", "student_t_noise", "weights_of", "needs_view", "view_in_folds",
    "NumberView", "EncodedKernel", "bart_trees",
}  # fmt: skip

_generator = torch.Generator().manual_seed(0)
X = torch.rand(24, 2, generator=_generator, dtype=torch.float64)
Y = X[:, 0] + 0.1 * torch.randn(24, generator=_generator, dtype=torch.float64)
CLASSES = np.where(Y.numpy() > Y.numpy().mean(), "b", "a")
MEMBERS = torch.randint(0, 2, (6, 4), generator=_generator).double()

NAN = float("nan")
WRONG_NUMBERS = (
    None, "text", "", NAN, float("inf"), -float("inf"), -1, 0, 2.5, -1e300, 1e300, [1], (), {}, object(), 1j
)  # fmt: skip
WRONG_TENSORS = (
    None, "text", 3, 2.5, [], {}, object(), [[1.0, "a"]], torch.zeros(0, 2), torch.zeros(0), torch.zeros(24, 0),
    torch.zeros(24), torch.zeros(3, 24, 2), torch.zeros(5, 7), torch.zeros(()), torch.full((24, 2), NAN),
    torch.full((24,), NAN), torch.full((24, 2), float("inf")), torch.full((24,), -float("inf")),
    torch.full((24, 2), 1e300, dtype=torch.float64), torch.full((24,), 1e300, dtype=torch.float64),
    torch.ones(24, 2, dtype=torch.int64), torch.ones(24, dtype=torch.int64), torch.ones(24, 2, dtype=torch.bool),
    torch.zeros(24, 2, dtype=torch.complex64), torch.zeros(24, 2, dtype=torch.float16), np.zeros((24, 2)),
    np.array([["a", "b"]] * 24), np.zeros((24, 2), dtype=object), [[0.0, 1.0]] * 24,
)  # fmt: skip
TENSORS = {"x", "y", "X", "train_x", "train_y", "residuals", "x1", "x2"}
TENSORS |= {"memberships", "scores", "weights", "sample_weight"}
# What a caller gives as an object: anything else is refused.
SKIPPED = {"verbose", "n_jobs", "batch_shape", "ensemble_", "description", "options", "original"}


def wrong_values(argument: str) -> tuple[Any, ...]:
    """Wrong types, shapes and numbers for an argument."""
    return WRONG_TENSORS if argument in TENSORS else WRONG_NUMBERS


def _noise_level() -> Any:
    return gpytorch.likelihoods.GaussianLikelihood().double()


@cache
def _clusters() -> Any:
    return package.FastClusterKernel(X, 3, height=2, random_state=0)


def _cells() -> Any:
    return package.MondrianKernel(X, 3, lifetime=2.0, random_state=0)


def _forest() -> Any:
    return RandomForestRegressor(3, random_state=0).fit(X.numpy(), Y.numpy())


def _called_on_rows(kernel: Any) -> Any:
    return kernel.double()(X).to_dense()


def _fitted(kind: Any, X: Any, y: Any, **parameters: Any) -> Any:
    return kind(**parameters).fit(X, y)


def _predicted(kind: Any, X: Any) -> Any:
    model = _model(kind)
    use = getattr(model, "predict", None) or model.transform
    return use(X)


@cache
def _model(kind: Any) -> Any:
    parameters = {"random_state": 0} if "random_state" in inspect.signature(kind).parameters else {}
    if "kernel" in inspect.signature(kind).parameters and kind is not estimators.LAGORanker:
        parameters |= {"kernel": "fast_cluster", "num_partitions": 3}
    return kind(**parameters).fit(X.numpy(), _targets(kind))


def _targets(kind: Any) -> np.ndarray:
    is_classifier = kind in (
        estimators.PartitionGPClassifier, estimators.PartitionSVC, estimators.MondrianClassifier, estimators.LAGORanker
    )  # fmt: skip
    return CLASSES if is_classifier else Y.numpy()


def _exact_fit(**options: Any) -> Any:
    likelihood = _noise_level()
    model = models.PartitionGP(X, Y, likelihood, _clusters()).double()
    return package.fit_exact_gp(model, likelihood, **options)


def _counted(x: Any, y: Any, max_clusters: Any) -> Any:
    model = models.FeatureSpaceGP(_clusters(), max_clusters=max_clusters)
    model.add_rows(x, y)
    return model.fit()


def _removed(x: Any, y: Any) -> Any:
    model = models.FeatureSpaceGP(_cells())
    model.add_rows(X, Y)
    values = model.fit()
    before = model.predict(X[:3])
    try:
        return model.remove_rows(x, y)
    except (ValueError, TypeError):  # nothing is lost
        assert model.num_rows == 24
        assert model.values == values
        assert all(torch.allclose(a, b) for a, b in zip(model.predict(X[:3]), before))
        raise


def _asked(x: Any) -> Any:
    model = models.FeatureSpaceGP(_cells())
    model.add_rows(X, Y)
    model.fit()
    return model.predict(x), model.covariance(x), model.sample(x, 2)


def _in_cluster_space(x: Any, y: Any, num_probes: Any) -> Any:
    model = models.ClusterSpaceGP(_clusters(), models.local_rows(_clusters(), x, y))
    return model.fit(num_probes=num_probes)


def _asked_in_cluster_space(x: Any, num_samples: Any, random_state: Any) -> Any:
    model = models.ClusterSpaceGP(_clusters(), models.local_rows(_clusters(), X, Y))
    model.fit()
    return model.predict(x), model.sample(x, num_samples, random_state)


def _model_on(train_x: Any, train_y: Any) -> Any:
    likelihood = _noise_level()
    model = models.PartitionGP(train_x, train_y, likelihood, _clusters()).double()
    return model.eval()(X).mean


def _predicted_exactly(x: Any) -> Any:
    model = models.PartitionGP(X, Y, _noise_level(), _clusters()).double()
    return model.eval()(x).variance


def _path(lifetimes: Any, epochs: Any, x: Any, y: Any) -> Any:
    from gpytorch_partition.lifetimes import fit_along_lifetimes

    return fit_along_lifetimes(_cells(), SGDRegressor(random_state=0), x, y, lifetimes, epochs=epochs, random_state=0)


Entries = dict[str, tuple[Callable[..., Any], dict[str, Any]]]


def _entry(name: str, call: Callable[..., Any], **right: Any) -> Entries:
    return {name: (call, right)}


def _kernel(name: str, case: str = "", **right: Any) -> Entries:
    kind = getattr(kernels, name)
    return {name + case: (lambda **arguments: _called_on_rows(kind(**arguments)), right)}


def _kernel_of_rows(name: str, case: str = "", **right: Any) -> Entries:
    count = "num_trees" if name in ("GammaMondrianKernel", "MondrianKernel", "RandomForestKernel") else "num_partitions"
    return _kernel(name, case, **{"train_x": X, count: 3, "random_state": 0, **right})


def _partition(name: str, **right: Any) -> Entries:
    kind = getattr(partitions, name)
    return {name: (lambda **arguments: kind(**arguments).labels(X), right)}


def _estimator(name: str, asks: bool = True, **parameters: Any) -> Entries:
    kind = getattr(estimators, name)
    found = {name: (partial(_fitted, kind), {"X": X.numpy(), "y": _targets(kind), **parameters})}
    return found | ({f"{name}.predict": (partial(_predicted, kind), {"X": X.numpy()})} if asks else {})


_DATA = {"x": X, "y": Y}
_COMMON = {"kernel": "fast_cluster", "num_partitions": 3, "random_state": 0}
_TREES = {"max_samples": 0.9, "min_samples_leaf": 3, "max_features": 0.5, "categories": ()}
_NOISE = {"outputscale": 1.0, "noise": 0.1}
_DEFAULT = {"train_x": X, "train_y": Y, "random_state": 0, "options": FEW_TREES}
_STUMP = (np.array([[1, 2], [-1, -1], [-1, -1]]), np.array([0, -1, -1]), np.array([0.5, 0.0, 0.0]))
# By name: a function that calls the entry point, and right arguments. What is after the dot or the bracket is a case.
ENTRIES: Entries = {
    **_kernel_of_rows("ClusteringKernel", clusterer=KMeans(3, n_init=1), rows=0.5, columns=1, projection=None),
    **_kernel("DeferredKernel", build=lambda x: _clusters()),
    **_kernel_of_rows("FastClusterKernel", height=2, columns="random", projection=None),
    **_kernel_of_rows("FastClusterKernel", "[centers]", num_centers=4),
    **_kernel_of_rows("GammaMondrianKernel", concentration=2.0, lifetime=1.0, max_lifetime=3.0),
    **_entry(
        "GroupKernel",
        lambda x, **arguments: kernels.GroupKernel(**arguments).double()(x).to_dense(),
        **{"x": torch.ones(24, 2, dtype=torch.float64), "columns": (0, 1), "nested": False, "weights": (1.0, 2.0)},
    ),
    **_kernel("IterativeKernel", base_kernel=_clusters()),
    **_kernel("LandmarkKernel", train_x=X, train_y=Y, num_landmarks=5, num_rows=20, random_state=0),
    **_kernel("LocalLinearKernel", base_kernel=_clusters(), num_dims=2),
    **_entry(
        "MembershipKernel",
        lambda x, **arguments: kernels.MembershipKernel(**arguments).double()(x).to_dense(),
        **{"x": torch.arange(6.0, dtype=torch.float64)[:, None], "memberships": MEMBERS, "set_weights": None},
    ),
    **_kernel_of_rows("MondrianKernel", lifetime=1.0, max_lifetime=3.0, projection=None),
    **_kernel("PartitionKernel", partition=lambda x: (4 * x).floor().long()),
    **_kernel(
        "PartitionMixtureKernel", kernels=[_clusters(), package.FastClusterKernel(X, 2, height=1)], weights=(1.0, 2.0)
    ),
    **_kernel_of_rows("RandomBinningKernel", lengthscale=0.5),
    **_kernel_of_rows("RandomForestKernel", train_y=Y, heights="all", sample_weight=torch.ones(24), **_TREES),
    **_kernel("StandardizedKernel", base_kernel=_clusters(), train_x=X),
    **_entry("KERNEL(x)", lambda x: _clusters()(x).to_dense(), x=X),
    **_entry("KERNEL(x1, x2)", lambda x1, x2: _cells()(x1, x2).to_dense(), x1=X, x2=X[:5]),
    **_partition("CallablePartition", function=lambda x: x.long(), num_partitions=2),
    **_partition(
        "ClusteringPartition", x=X, clusterer=KMeans(3, n_init=1), num_partitions=2, noise="alone", random_state=0
    ),
    **_partition("FastClusterPartition", x=X, num_partitions=2, random_state=0),
    **_partition("ForestPartition", ensemble=_forest()),
    **_entry("MembershipPartition", partitions.MembershipPartition, memberships=MEMBERS, set_weights=None),
    **_partition("MondrianPartition", x=X, num_trees=2, lifetime=1.0, random_state=0),
    **_entry(
        "PitmanYorMixture",
        lambda x, **arguments: partitions.PitmanYorMixture(**arguments).fit(x),
        **{"x": X.numpy(), "concentration": 1.0, "discount": 0.0, "scale": 0.5, "spread": 1.0, "num_sweeps": 2},
    ),
    **_partition("RandomBinningPartition", x=X, num_partitions=2, lengthscale=0.5, random_state=0),
    **_partition(
        "SampledPartition", draw=lambda seed: lambda x: (x[:, :1] * 3).long(), num_partitions=2, random_state=0
    ),
    **_entry("grow_forest", partitions.grow_forest, **_DATA, num_trees=2, random_state=0, **_TREES),
    **_entry("array_trees", ensembles.array_trees, trees=[_STUMP], num_columns=2),
    **_entry("trees_of", ensembles.trees_of, ensemble=_forest()),
    **_estimator("PartitionGPRegressor", max_iterations=5, dtype="auto", categorical_features=None, **_COMMON),
    **_estimator("PartitionGPClassifier", **_COMMON),
    **_estimator("PartitionSVC", C=1.0, tol=1e-2, max_iter=100, class_weight=None, **_COMMON),
    **_estimator("PartitionSVR", C=1.0, epsilon=0.1, tol=1e-2, max_iter=100, **_COMMON),
    **_estimator("PartitionFeatures", **_COMMON),
    **_estimator("PartitionKernelPCA", n_components=2, tol=1e-6, **_COMMON),
    **_estimator("PartitionSpectralClustering", False, n_clusters=3, n_components=2, n_init=2, tol=1e-6, **_COMMON),
    **_estimator(
        "MondrianClassifier",
        **{"num_trees": 3, "loss": "log_loss", "alpha": 1e-4, "lifetime": 1.0, "num_lifetimes": 2},
        **{"validation_fraction": 0.2, "max_choosing_rows": 100, "epochs": 2, "random_state": 0},
    ),
    **_estimator("LAGORanker", False, shape="spherical", n_neighbors=3, alpha=1.0, kernel="gaussian", rare_class=None),
    **_estimator(
        "ParallelEvolutionSelector",
        False,
        **{"criterion": "aic", "n_universes": 2, "population_size": 4, "n_generations": 2, "mutation_rate": 0.1},
        **{"votes": "population", "threshold": "gap", "random_state": 0},
    ),
    **_estimator("BaggedStepwiseSelector", False, criterion="aic", n_samples=2, threshold="gap", random_state=0),
    **_entry("hit_curve", estimators.hit_curve, y=(CLASSES == "a").astype(int), scores=Y.numpy()),
    **_entry("ClusterFeatures", models.ClusterFeatures, kernel=_clusters(), train_x=X),
    **_entry("cluster_features", models.cluster_features, kernel=_clusters(), x=X[:3], train_x=X),
    **_entry("PartitionGP", _model_on, train_x=X, train_y=Y),
    **_entry("PartitionGP(x)", _predicted_exactly, x=X),
    **_entry("FeatureSpaceGP", _counted, **_DATA, max_clusters=100),
    **_entry("FeatureSpaceGP.remove_rows", _removed, x=X[:3], y=Y[:3]),
    **_entry("FeatureSpaceGP.predict", _asked, x=X[:3]),
    **_entry("ClusterSpaceGP", _in_cluster_space, **_DATA, num_probes=3),
    **_entry("ClusterSpaceGP.predict", _asked_in_cluster_space, x=X[:3], num_samples=2, random_state=0),
    **_entry("local_rows", models.local_rows, kernel=_clusters(), **_DATA),
    **_entry("array_chunks", lambda **a: list(models.array_chunks(**a)), x=X.numpy(), y=Y.numpy(), num_rows=7, start=0),
    **_entry("kernel_distance", models.kernel_distance, kernel=_clusters(), x1=X, x2=X[:3]),
    **_entry(
        "spectral_embedding",
        models.spectral_embedding,
        **{"kernel": _clusters(), "x": X, "num_components": 2, "tolerance": 1e-6, "random_state": 0},
    ),
    **_entry(
        "spectral_truncation",
        models.spectral_truncation,
        **{"kernel": _clusters(), "x": X, "rank": 2, "tolerance": 1e-6, "random_state": 0},
    ),
    **_entry(
        "MondrianForest", lambda **a: lifetimes.MondrianForest(**a).predict(X), kernel=_cells(), **_DATA, **_NOISE
    ),
    **_entry("expected_cells", lifetimes.expected_cells, lifetime=1.0, widths=[1.0, 2.0]),
    **_entry("trees_for_error", lifetimes.trees_for_error, error=0.1, lifetime=1.0, widths=[1.0], probability=0.1),
    **_entry("joint_weights", lifetimes.joint_weights, kernel=_cells(), **_DATA, **_NOISE),
    **_entry(
        "expected_gradient_projection",
        lifetimes.expected_gradient_projection,
        **{**_DATA, "num_trees": 3, "num_iterations": 1, "lifetime": 2.0, "random_state": 0},
    ),
    **_entry("fit_along_lifetimes", _path, **_DATA, lifetimes=[0.5, 1.0], epochs=1),
    **_entry(
        "lifetime_sweep",
        lambda **a: lifetimes.lifetime_sweep(_cells(), **a).predict(X),
        **{**_DATA, **_NOISE, "lifetimes": [0.5, 1.0], "validation": (X[:3], Y[:3])},
    ),
    **_entry("default_model", presets.default_model, **_DEFAULT, weights=torch.ones(24)),
    **_entry("default_kernel", presets.default_kernel, **_DEFAULT, categories={}),
    **_entry("ensemble_model", presets.ensemble_model, **_DEFAULT, ensemble=RandomForestRegressor(3)),
    **_entry("fit_exact_gp", _exact_fit, method="auto", num_probes=3, max_iterations=3),
    **_entry(
        "fit_weights_by_cross_validation",
        lambda x, y, **a: package.fit_weights_by_cross_validation([_clusters(), _cells()], x, y, **a),
        **{**_DATA, "folds": 3, "max_rows": 100, "random_state": 0},
    ),
    **_entry("encode_missing", package.encode_missing, x=X),
    **_entry(
        "ForestNoise",
        lambda train_x, **a: likelihoods.ForestNoise(train_x, **a)(train_x),
        **{"train_x": X, "residuals": Y, "num_trees": 3, "min_samples_leaf": 3, "random_state": 0},
    ),
    **_entry(
        "ForestNoiseGaussianLikelihood",
        likelihoods.ForestNoiseGaussianLikelihood,
        **{"train_x": X, "residuals": Y, "num_trees": 3, "random_state": 0},
    ),
    **_entry(
        "grow_residual_forest",
        likelihoods.grow_residual_forest,
        **{"x": X, "residuals": Y, "num_trees": 3, "min_samples_leaf": 3, "random_state": 0},
    ),
    **_entry("WeightedGaussianLikelihood", likelihoods.WeightedGaussianLikelihood, weights=torch.ones(24), unit=1.0),
    **_entry(
        "TableEncoder",
        lambda X, **a: tables.TableEncoder(**a).fit(X).transform(X),
        **{"X": X.numpy(), "categorical_features": None},
    ),
}


def cases() -> list[tuple[str, str]]:
    """Every argument of every entry point."""
    return [(name, argument) for name, (_, right) in ENTRIES.items() for argument in right if argument not in SKIPPED]


def public_names() -> set[str]:
    """All names that the package and its folders export, but for modules."""
    return {
        name
        for folder in FOLDERS
        for name, value in vars(folder).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    } - {"annotations"}
