"""
A Gaussian process of several targets, with one kernel of the rows for all and a covariance between targets.

See :mod:`gpytorch_partition.training.coregionalization` for the model. Where every target of every row is known, T
independent processes of N rows represent the targets. Else the known entries are rows of their own, with K's clusters
times T targets as clusters, or, where errors of a row are correlated, whitened with loadings on T functions.
"""

from __future__ import annotations

from functools import cached_property, reduce
from operator import add
from types import SimpleNamespace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from linear_operator.operators import (
    ConstantDiagLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    InterpolatedLinearOperator,
    LinearOperator,
)
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.clusters.cache import without_computed
from gpytorch_partition.inference.prediction.cluster_posterior import EffectTables
from gpytorch_partition.inference.prediction.predictive_covariance import (
    PredictiveCovarianceLinearOperator,
    predictive_covariance,
)
from gpytorch_partition.inputs.numbers import checked_count
from gpytorch_partition.inputs.training_rows import encode_missing
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.operators.algebra import low_rank_operator, product, structured_terms
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.solvers.entries import Entries, EntriesPlusNoise, WhiteEntries
from gpytorch_partition.solvers.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator
from gpytorch_partition.training.coregionalization import Coregionalization, Rotation

_LEAST_SIGNAL = 1e-9  # least variance of an independent target, relative to its noise


class CoregionalizedGP(torch.nn.Module):
    r"""
    Model T targets by an exact Gaussian process, :math:`f_t \sim GP(\mu_t, k(x, x') B_{tt'})`, with noise covariance S.

    Use it for targets that covary, above all where entries are missing and known targets inform about missing ones. It
    costs as much as T processes of N rows that share one kernel if every entry is known; as one process of n rows if n
    entries are known, and T times as much if errors of a row are correlated too. Memory is linear in rows and entries.

    :param train_x: `N x D` rows; NaN is a missing value, for kernels that take it.
    :param train_y: `N x T` targets; NaN is a missing entry.
    :param kernel: The kernel k, with nothing left to train, and linear products above `max_cholesky_size` rows.
    :param coregionalization: B, noise and means.
    :param description: Description of the kernel in plain values, as of :class:`.DefaultGP`. (Default: None.)

    Example:
        >>> from gpytorch_partition import MondrianKernel
        >>> x = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
        >>> y = torch.cat([x, -x], 1)
        >>> y[:20, 1] = torch.nan
        >>> B = torch.tensor([[1.0, -0.99], [-0.99, 1.0]], dtype=torch.float64)
        >>> both = Coregionalization(B, torch.full((2,), 1e-4).double(), torch.zeros(2).double(), 0.0)
        >>> model = CoregionalizedGP(x, y, MondrianKernel(x, num_trees=50, random_state=0), both)
        >>> bool((model.means(x[:20]) + x[:20] * torch.tensor([-1.0, 1.0])).abs().max() < 0.1)
        True
    """

    task_covariance: Tensor  # B
    noise: Tensor  # (T,) variances
    noise_correlations: Tensor  # of the errors of a row, T x T
    constant: Tensor  # (T,) means
    train_targets: Tensor

    def __init__(
        self,
        train_x: Tensor,
        train_y: Tensor,
        kernel: Kernel,
        coregionalization: Coregionalization,
        description: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.train_inputs, self.train_targets = (encode_missing(train_x),), train_y
        self.covar_module, self.description = kernel.to(train_x), description
        self.register_buffer("task_covariance", coregionalization.covariance.double().clone())
        self.register_buffer("noise", coregionalization.noise.double().clone())
        correlations = coregionalization.noise_correlations
        correlations = torch.eye(len(self.noise)) if correlations is None else correlations
        self.register_buffer("noise_correlations", correlations.double().clone())
        self.register_buffer("constant", coregionalization.mean.double().clone())
        self.requires_grad_(False).eval()

    @property
    def num_targets(self) -> int:
        return len(self.noise)

    @cached_property
    def is_complete(self) -> bool:
        """Return whether every target of every row is known."""
        return not bool(self.train_targets.isnan().any())

    @property
    def noise_covariance(self) -> Tensor:
        """Return S (`T x T`, float64), the covariance of the errors of a row."""
        root = self.noise.sqrt()
        return self.noise_correlations * root * root.unsqueeze(-1)

    @cached_property
    def has_independent_errors(self) -> bool:
        """Return whether errors of a row are independent."""
        return torch.equal(self.noise_correlations, torch.eye(self.num_targets).to(self.noise_correlations))

    def __getstate__(self) -> dict[str, Any]:
        return without_computed(self)

    # Results of training, computed when they are first used.

    @cached_property
    def _covariance(self) -> LinearOperator:
        return self._cross(self.train_inputs[0])

    def _cross(self, x: Tensor) -> LinearOperator:
        return to_linear_operator(self.covar_module(x, self.train_inputs[0])).evaluate_kernel()

    @cached_property
    def _rotation(self) -> Rotation:
        found = Rotation.of(self.task_covariance, self.noise_covariance)
        return found._replace(signal=found.signal.clamp_min(_LEAST_SIGNAL))

    @cached_property
    def _each(self) -> list[PartitionAddedDiagLinearOperator]:
        r""":math:`K + I / \lambda_s` of the independent targets s, up to a factor their covariances."""
        signal = self._rotation.signal.to(self.train_inputs[0])
        return [self._covariance.add_diagonal(1 / value) for value in signal]

    @cached_property
    def _entries(self) -> tuple[Tensor, Tensor]:
        """Row and target numbers (`n` each) of the known entries."""
        rows, targets = (~self.train_targets.isnan()).nonzero(as_tuple=True)
        return rows, targets

    @cached_property
    def _white(self) -> WhiteEntries:
        return WhiteEntries.of(~self.train_targets.isnan(), self.noise_covariance)

    @cached_property
    def _white_mixing(self) -> Tensor:
        """Loadings of the whitened entries on the independent functions (`n x T`)."""
        return self._white.whitening @ self._rotation.mixing

    @cached_property
    def _noisy(self) -> PartitionAddedDiagLinearOperator:
        """Covariance plus noise (`n x n`) of the known entries, whitened where errors are correlated."""
        rows, targets = self._entries
        x = self.train_inputs[0][rows]
        covariance = self._of_entries(x, self._training_loadings, x, self._training_loadings)
        if self.has_independent_errors:
            entries = Entries(self._covariance, self.task_covariance, self.noise, rows, targets)
            return EntriesPlusNoise(covariance, DiagLinearOperator(self.noise[targets].to(x)), entries=entries)
        ones = torch.ones_like(self.noise)
        entries = Entries(self._covariance, self._rotation.signal.diag(), ones, rows, targets, self._white_mixing)
        return EntriesPlusNoise(covariance, ConstantDiagLinearOperator(ones[:1].to(x), len(rows)), entries=entries)

    @cached_property
    def _training_loadings(self) -> Tensor:
        return self._entries[1] if self.has_independent_errors else self._scaled(self._white_mixing)

    def _scaled(self, mixing: Tensor) -> Tensor:
        """Loadings (`n x T`) on functions of covariance k, given those on the independent functions."""
        return (mixing * self._rotation.signal.sqrt()).to(self.train_inputs[0])

    def _of_entries(self, x1: Tensor, loadings1: Tensor, x2: Tensor, loadings2: Tensor) -> LinearOperator:
        """Return covariances of entries, by points and targets, or loadings where errors are correlated."""
        own = to_linear_operator(self.covar_module(x1, x2)).evaluate_kernel()
        if not self.has_independent_errors:
            return product(own, low_rank_operator(self.noise.new_ones(()), loadings1, loadings2))
        between = InterpolatedLinearOperator(
            base_linear_op=DenseLinearOperator(self.task_covariance.to(x1)),
            left_interp_indices=loadings1.unsqueeze(-1),
            right_interp_indices=loadings2.unsqueeze(-1),
        )
        return product(own, between)

    @cached_property
    @torch.no_grad()
    def dual_weights(self) -> Tensor:
        r"""Return the weights (`N x T`) of the training rows in the posterior means, :math:`\mu_t + k(x, X) w_t`."""
        residuals = self.train_targets.double() - self.constant
        dtype = self.train_inputs[0].dtype
        with settings.iterative(), settings.no_debug():
            if self.is_complete:
                rotated = (residuals @ self._rotation.vectors).to(dtype)
                weights = [each.solve(column.unsqueeze(-1)) for each, column in zip(self._each, rotated.mT)]
                return torch.cat(weights, -1) @ self._rotation.mixing.mT.to(dtype)
            if self.has_independent_errors:
                rows, targets = self._entries
                solved = torch.zeros(self.train_targets.shape, dtype=dtype, device=residuals.device)
                solved[rows, targets] = self._noisy.solve(residuals[rows, targets].to(dtype).unsqueeze(-1)).squeeze(-1)
                return solved @ self.task_covariance.to(dtype)
            solved = self._noisy.solve(self._white.of_targets(residuals).to(dtype).unsqueeze(-1)).squeeze(-1)
            return (self._white.to_targets(solved.double()) @ self.task_covariance).to(dtype)

    @cached_property
    def _tables(self) -> EffectTables:
        return EffectTables()

    # Predictions.

    @torch.no_grad()
    def means(self, x: Tensor) -> Tensor:
        """Return posterior means (`n x T`, float64) at points (`n x D`)."""
        weights = self.dual_weights
        with settings.iterative(), settings.no_debug():
            terms = enumerate(structured_terms(self._cross(encode_missing(x))))
            found = reduce(add, (self._mean_of(place, term, weights) for place, term in terms))
        return self.constant + found.double()

    def _mean_of(self, place: int, term: LinearOperator, weights: Tensor) -> Tensor:
        if not isinstance(term, PartitionLinearOperator):
            return term @ weights
        return term.row_values(self._tables.of(place, term, weights))

    @torch.no_grad()
    def variances(self, x: Tensor) -> Tensor:
        """Return posterior variances of the functions (`n x T`, float64) at points (`n x D`)."""
        x = encode_missing(x)
        with settings.iterative(), settings.no_debug():
            if self.is_complete:
                found = torch.stack([each.diagonal(dim1=-2, dim2=-1) for each in self._posteriors(x)], -1)
                return (found.double() * self._rotation.signal) @ self._rotation.mixing.square().mT
            return self._posterior_of_entries(x).diagonal(dim1=-2, dim2=-1).double().view(len(x), -1)

    @torch.no_grad()
    def covariances(self, x: Tensor) -> Tensor:
        """Return dense posterior covariances between points (`n x D`), for each target (`n x n x T`, float64)."""
        x = encode_missing(x)
        with settings.iterative(), settings.no_debug():
            if self.is_complete:
                found = torch.stack([each.to_dense() for each in self._posteriors(x)], -1)
                found = (found.double() * self._rotation.signal) @ self._rotation.mixing.square().mT
            else:
                dense = self._posterior_of_entries(x).to_dense().double()
                found = dense.view(len(x), self.num_targets, len(x), self.num_targets)
                found = found.diagonal(dim1=1, dim2=3)
        return 0.5 * (found + found.transpose(0, 1))

    @torch.no_grad()
    def samples(self, x: Tensor, num_samples: int, *, include_noise: bool) -> Tensor:
        """Return joint samples of all targets at points (`num_samples x n x T`) by PyTorch's global generator."""
        checked_count(num_samples, "samples", "num_samples")
        points, shape = encode_missing(x), torch.Size([num_samples, len(x), self.num_targets])
        means = self.means(x)
        with settings.iterative(), settings.no_debug():
            if self.is_complete:
                drawn = [each.zero_mean_mvn_samples(num_samples) for each in self._posteriors(points)]
                rotation = self._rotation
                found = (torch.stack(drawn, -1).double() * rotation.signal.sqrt()) @ rotation.mixing.mT
            else:
                found = self._posterior_of_entries(points).zero_mean_mvn_samples(num_samples).double().view(shape)
        if not include_noise:
            return means + found
        return means + found + torch.randn(shape, dtype=torch.float64) @ stable_cholesky(self.noise_covariance).mT

    def views(self) -> list[TargetView]:
        """Return each target as a model of its own, for functions that explain models."""
        return [TargetView(self, number) for number in range(self.num_targets)]

    def _posteriors(self, x: Tensor) -> list[PredictiveCovarianceLinearOperator]:
        r"""Predictive covariances (`n x n`) of the independent targets, over :math:`\lambda_s`."""
        prior = to_linear_operator(self.covar_module(x, x)).evaluate_kernel()
        cross = self._cross(x)
        return [predictive_covariance(prior, cross, noisy) for noisy in self._each]

    def _posterior_of_entries(self, x: Tensor) -> PredictiveCovarianceLinearOperator:
        """The predictive covariance (`nT x nT`) of all targets at points; entry n T + t is point n of target t."""
        training = self._training_loadings
        if self.has_independent_errors:
            own = torch.arange(self.num_targets, device=self.noise.device).repeat(len(x))
        else:
            own = self._scaled(self._rotation.mixing).repeat(len(x), 1)
        points = x.repeat_interleave(self.num_targets, 0)
        prior = self._of_entries(points, own, points, own)
        cross = self._of_entries(points, own, self.train_inputs[0][self._entries[0]], training)
        return predictive_covariance(prior, cross, self._noisy)


class TargetView:
    """One of several targets as a model with the mean `constant + k(x, X) w`, for functions that explain models."""

    def __init__(self, model: CoregionalizedGP, number: int) -> None:
        self.model, self.number = model, number
        self.train_inputs, self.covar_module = model.train_inputs, model.covar_module
        self.prediction_strategy = SimpleNamespace(mean_cache=model.dual_weights[:, number])
        self.constant = model.constant[number]

    @torch.no_grad()
    def variances_of(self, priors: Tensor, cross: Tensor) -> Tensor:
        """Return posterior variances (`G`, float64) of linear functionals from prior ones and covariances (`G x N`)."""
        model, number = self.model, self.number
        with settings.iterative(), settings.no_debug():
            if model.is_complete:
                prior, left = DiagLinearOperator(priors), to_linear_operator(cross)
                posteriors = [predictive_covariance(prior, left, noisy) for noisy in model._each]
                found = [each.diagonal(dim1=-2, dim2=-1).double() for each in posteriors]
                rotation = model._rotation
                return torch.stack(found, -1) @ (rotation.signal * rotation.mixing[number].square())
            with_all = model.task_covariance[number]  # covariances, over k, with the known entries' functions
            own = with_all[model._entries[1]] if model.has_independent_errors else model._white.whitening @ with_all
            own = own.to(cross)
            prior = DiagLinearOperator(model.task_covariance[number, number].to(cross) * priors)
            left = to_linear_operator(cross[:, model._entries[0]] * own)
            return predictive_covariance(prior, left, model._noisy).diagonal(dim1=-2, dim2=-1).double()
