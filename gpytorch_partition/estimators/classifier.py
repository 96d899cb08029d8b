"""`PartitionGPClassifier`: probabilities of classes by a Gaussian process, with the scikit-learn API."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.estimators.kernels import KERNELS, KernelLike, check_name, is_built, resolved_kernel
from gpytorch_partition.estimators.machine import KernelMachine, check_count
from gpytorch_partition.inference.prediction.effect_tables import EffectTables
from gpytorch_partition.inputs.seeds import random_state_of
from gpytorch_partition.kernels import IterativeKernel
from gpytorch_partition.operators.addition import structured_terms
from gpytorch_partition.presets.classes import class_parts
from gpytorch_partition.presets.options import Setup
from gpytorch_partition.progress import progress
from gpytorch_partition.training.log_loss import ClassFit, ClassLink, calibrated, minimize_log_loss
from gpytorch_partition.training.predictive_density import Fold, dense_covariances

NAMES = ("auto", *KERNELS)

_FEWEST_ROWS = 20  # fewer choose nothing
_MOST_CHOOSING_ROWS = 1_000  # rows that weights and link are chosen by
_FOLDS, _FEW_ROWS, _FOLDS_OF_FEW = 3, 300, 5  # up to so many rows there are more folds
_ROWS_AT_ONCE = 2**15  # rows predicted at a time


class PartitionGPClassifier(ClassifierMixin, KernelMachine):
    def __init__(
        self,
        kernel: KernelLike = "auto",
        num_partitions: int = 200,
        *,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.num_partitions = num_partitions
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> PartitionGPClassifier:
        self._check_parameters()
        rows, labels = self._checked(X, y)
        check_classification_targets(labels)
        self.classes_, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
        if len(counts) < 2:
            raise ValueError(f"expected two classes or more, got 1 class: {self.classes_.tolist()}")
        x, random = self._training_rows(rows), random_state_of(self.random_state)
        indicators = torch.nn.functional.one_hot(torch.from_numpy(numbers)).double()
        frequencies = torch.from_numpy(counts / counts.sum())
        indicators = indicators[:, 1:] if len(counts) == 2 else indicators
        chosen = self._chosen(x, indicators, numbers, frequencies, random)
        self.log_loss_, self._link = chosen.log_loss, chosen.link
        self._set_model(x, indicators - frequencies[-indicators.shape[1] :], chosen.outputscales, random)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        found = self._log_probabilities(X)
        return found[:, 1] - found[:, 0] if len(self.classes_) == 2 else found

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.exp(self._log_probabilities(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        return self._log_probabilities(X)

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[self._log_probabilities(X).argmax(1)]

    # Inside.

    def _check_parameters(self) -> None:
        if not is_built(self.kernel):
            check_name(self.kernel, NAMES)
        check_count(self.num_partitions, "num_partitions")

    def _parts(self, x: Tensor, indicators: Tensor, random: np.random.RandomState) -> dict[str, Kernel]:
        """Kernels of unit scale, which are to be weighed, built on rows and indicators (`N x q`)."""
        targets = indicators[:, 0] if indicators.shape[1] == 1 else indicators
        if isinstance(self.kernel, str) and self.kernel == "auto":
            return class_parts(x, targets, Setup(random, self.n_jobs))
        options = {"num_partitions": self.num_partitions, "random_state": random, "n_jobs": self.n_jobs}
        return {"kernel": resolved_kernel(self.kernel, x, targets, **options)}

    def _chosen(
        self,
        x: Tensor,
        indicators: Tensor,
        numbers: np.ndarray,
        frequencies: Tensor,
        random: np.random.RandomState,
    ) -> ClassFit:
        """Weights and link, by folds of at most a thousand rows, in each of which classes have their shares."""
        order = random.permutation(len(x))
        order = order[np.argsort(numbers[order], kind="stable")]
        size = min(len(x), _MOST_CHOOSING_ROWS)
        rows = torch.from_numpy(order[np.linspace(0, len(x) - 1, size).round().astype(int)])
        if size < _FEWEST_ROWS:
            parts = self._parts(x, indicators, random)
            return ClassFit.usual(len(parts), frequencies)
        num_folds = _FOLDS_OF_FEW if size <= _FEW_ROWS else _FOLDS
        folds = []
        for number in progress(range(num_folds), "choosing weights"):
            is_held_out = torch.arange(size) % num_folds == number
            kept, held_out = (~is_held_out).nonzero()[:, 0], is_held_out.nonzero()[:, 0]
            parts = self._parts(x[rows[kept]], indicators[rows[kept]], random)
            with settings.iterative():
                folds.append(Fold.of(dense_covariances(parts.values(), x[rows]), kept, held_out))
        return minimize_log_loss(folds, indicators[rows], frequencies)

    @torch.no_grad()
    def _set_model(self, x: Tensor, centred: Tensor, weights: Tensor, random: np.random.RandomState) -> None:
        parts = self._parts(x, (centred > 0).double(), random)
        scaled = [_scaled(part, weight) for part, weight in zip(parts.values(), weights.tolist())]
        self.outputscales_ = dict(zip(parts, weights.tolist()))
        self.kernel_ = IterativeKernel(reduce(add, scaled)).requires_grad_(False).eval()
        self._train_x, self._tables = x, EffectTables()
        with settings.iterative():
            noisy = self._covariance(x).add_diagonal(torch.ones(1, dtype=x.dtype))
            self._weights = noisy.solve(centred)

    def _covariance(self, x: Tensor) -> LinearOperator:
        return to_linear_operator(self.kernel_(x, self._train_x)).evaluate_kernel()

    @torch.no_grad()
    def _log_probabilities(self, X: Any) -> np.ndarray:
        blocks = self._new_rows(X).split(_ROWS_AT_ONCE)
        with settings.iterative():
            return np.concatenate([self._link.log_probabilities(self._excess(x)).numpy() for x in blocks])

    def _excess(self, x: Tensor) -> Tensor:
        terms = enumerate(structured_terms(self._covariance(x)))
        return sum(term.row_values(self._tables.of(place, term, self._weights)) for place, term in terms)


def _scaled(part: Kernel, weight: float) -> ScaleKernel:
    scaled = ScaleKernel(part)
    scaled.outputscale = weight
    return scaled
