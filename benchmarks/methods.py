"""Ways to regress, each in the same three stages, and what a whole job takes: partitions, training, predictions."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from scipy.stats import norm
from sklearn.metrics import root_mean_squared_error
from torch import Tensor

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel, fit_exact_gp, settings
from gpytorch_partition.inference.cluster_space.spectrum import space_width
from gpytorch_partition.models import PartitionGP

from .measure import held_gib, peak_gib, seconds, timed
from .problems import friedman, model_of
from .report import Row

KERNELS: dict[str, Callable[[Tensor, Tensor, int], Kernel]] = {
    "fast cluster": lambda x, y, m: FastClusterKernel(x, m, height=8, random_state=0),
    "Mondrian": lambda x, y, m: MondrianKernel(x, m, random_state=0),
    "forest": lambda x, y, m: RandomForestKernel(x, y, m, random_state=0),
}


class Prediction(NamedTuple):
    """Means, and standard deviations of new targets (noise included) where there are any."""

    mean: Tensor
    std: Tensor | None = None


class Method(ABC):
    """One way to regress; it can be sent to another process until it is trained."""

    name: str
    num_partitions: int | None = None
    fitted_by: str | None = None  # how it was trained, where that is not always the same
    num_features: int | None = None  # clusters, or nodes of trees: q, which decides how it is trained

    @abstractmethod
    def train(self, x: Tensor, y: Tensor) -> None:
        """Everything else that is done before the first prediction."""

    @abstractmethod
    def predict(self, x: Tensor) -> Prediction:
        """Predict all of the points."""


class PartitionMethod(Method):
    """One that has partitions."""

    num_partitions: int

    @abstractmethod
    def partition(self, x: Tensor, y: Tensor) -> None:
        """Build them and code the training rows."""


class PartitionKernelGP(PartitionMethod):
    """An exact GP of this package, fitted in one pass."""

    model: PartitionGP

    def __init__(self, kernel: str, num_partitions: int) -> None:
        self.kernel, self.num_partitions = kernel, num_partitions
        self.name = f"GP, {kernel} kernel"

    def partition(self, x: Tensor, y: Tensor) -> None:
        """Also the first product, which sorts the rows by cluster."""
        self.model = model_of(x, y, KERNELS[self.kernel](x, y, self.num_partitions))
        covariance = self.model.covar_module(x).evaluate_kernel()
        covariance @ y
        self.num_features = space_width(covariance.cluster_operator)

    def train(self, x: Tensor, y: Tensor) -> None:
        """By the method that is expected to be fastest."""
        self.fitted_by = fit_exact_gp(self.model, self.model.likelihood).method

    def predict(self, x: Tensor) -> Prediction:
        """All points in one call."""
        self.model.eval()
        with torch.no_grad(), settings.iterative():
            posterior = self.model(x)
            return Prediction(posterior.mean, (posterior.variance + self.model.likelihood.noise).sqrt())


def attempted(job: Row, measure: Callable[[], Row]) -> Row:
    """What a job is and what was measured; of one that fails, why, so that the next job begins all the same."""
    try:
        return job | measure()
    except Exception as error:  # whatever it is: memory, a solver, a process that was killed
        return job | {"error": f"{type(error).__name__}: {error}".splitlines()[0]}


def measured(method: Method, num_rows: int, num_points: int) -> Row:
    """Seconds of the three stages, memory beyond the data, and how good the predictions are."""
    warnings.simplefilter("ignore")
    x, y = friedman(num_rows + num_points)
    (x, points), (y, targets) = (values.split([num_rows, num_points]) for values in (x, y))
    before = held_gib()
    partition = seconds(lambda: method.partition(x, y)) if isinstance(method, PartitionMethod) else None
    train = seconds(lambda: method.train(x, y))
    prediction, predict = timed(lambda: method.predict(points))
    return {
        "seconds, partitions": partition,
        "seconds, training": train,
        "seconds, prediction": predict,
        "seconds, total": (partition or 0.0) + train + predict,
        "GiB beyond the data": peak_gib() - before,
        **scores(targets, prediction),
        "fitted by": method.fitted_by,
        "q / N": method.num_features and method.num_features / num_rows,
    }


def scores(targets: Tensor, prediction: Prediction) -> Row:
    """Root mean squared error, and negative log density where there are standard deviations."""
    y, mean = targets.double().numpy(), prediction.mean.double().numpy()
    std = None if prediction.std is None else prediction.std.double().numpy()
    density = None if std is None else float(-norm.logpdf(y, mean, std).mean())
    return {"RMSE": root_mean_squared_error(y, mean), "NLPD": density}
