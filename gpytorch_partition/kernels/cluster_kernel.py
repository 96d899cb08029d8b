"""The abstract base class of every kernel whose covariance is a sum over clusters."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import LinearOperator
from torch import Tensor
from torch.nn import ModuleList

from gpytorch_partition.callers import not_compiled
from gpytorch_partition.descriptions import listed, module_repr, without_values
from gpytorch_partition.inference.prediction.strategy import PartitionPredictionStrategy
from gpytorch_partition.inputs.kernel_columns import BuildingRange, Columns, OtherUnitsWarning

_NOT_IN_ALL_STATES = "partition.random_projections"  # of fast clusters, only if they use projections


class ClusterKernel(Kernel):
    """The base class of the kernels that evaluate to this package's operators, by `_covariance` and `_check_points`."""

    has_lengthscale = False
    has_seen_targets = False  #: whether it was built on targets, and so knows those of the rows it was built on
    has_usual_width = False  #: whether nobody has chosen its width, which is that of the median distance of rows
    widens_far_away = True  #: whether points far from all rows have more variance than those among them
    vanishes_far_away = False  #: whether points far from all rows have no covariance with them
    unit: Tensor  # ones (`*batch`), a buffer: GPyTorch sets `requires_grad` of all parameters of a kernel
    _instead_of_lengthscale = "its partitions set how far points look alike"  # for the error message

    def __init__(
        self, *, batch_shape: torch.Size | tuple[int, ...] = (), active_dims: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(batch_shape=torch.Size(batch_shape))
        self.columns = Columns(active_dims)
        self.built_on, self._has_warned = BuildingRange(), False

    @property
    def dtype(self) -> torch.dtype:
        return self._shared("dtype") or torch.get_default_dtype()

    @property
    def device(self) -> torch.device | None:
        return self._shared("device")

    def _shared(self, name: str) -> Any:
        unit = self._buffers.get("unit")
        found = {getattr(tensor, name) for tensor in (*self.parameters(), *([] if unit is None else [unit]))}
        if len(found) > 1:
            raise RuntimeError(f"The kernel's parameters have multiple {name}s, {found}: convert it by .to({name})")
        return next(iter(found), None)

    @property
    def lengthscale(self) -> Tensor:
        """Raise an error, also on assignment, which names the alternative to a lengthscale."""
        return self.__getattr__("lengthscale")

    @lengthscale.setter
    def lengthscale(self, value: Any) -> None:
        self.__getattr__("lengthscale")

    def __getattr__(self, name: str) -> Any:
        """Raise the error of `lengthscale` here, since PyTorch would replace its message in a property."""
        if name == "lengthscale":
            raise AttributeError(f"{type(self).__name__} has no lengthscale: {self._instead_of_lengthscale}.")
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Choose columns if `active_dims` is assigned, as by BoTorch; GPyTorch's own buffer stays None."""
        if name == "active_dims" and value is not None:
            self._choose_columns(value)
        else:
            super().__setattr__(name, value)

    def _choose_columns(self, dims: Any) -> None:
        """Choose columns of wider points; a choice of the kernel's own stays if it is among them."""
        chosen, own = Columns(dims), self.columns.numbers
        if not torch.isin(own, chosen.numbers.to(own.device)).all():
            raise ValueError(
                f"expected active_dims that hold the kernel's own, {tuple(own.tolist())}, got "
                f"{chosen.numbers.tolist()}: build a new kernel for other columns, it keeps those it was built on"
            )
        if not own.numel():
            self.columns = chosen.to(own.device)

    def extra_repr(self) -> str:
        if unknown := without_values(self):
            return unknown
        told = [self._described()]
        told += [f"active_dims={listed(self.columns.numbers.tolist())}"] if self.columns.numbers.numel() else []
        told += [f"batch_shape={tuple(self.batch_shape)}"] if self.batch_shape else []
        return ", ".join(filter(None, told))

    def _described(self) -> str:
        return ""

    @property
    def other_widths(self) -> str:
        """Return advice on how to get another width than the usual one, as text for a warning."""
        return ""

    def __repr__(self) -> str:
        inside = ((key, child) for key, child in self.named_children() if isinstance(child, Kernel | ModuleList))
        return module_repr(self._get_name(), self.extra_repr(), inside)

    @not_compiled
    def __call__(self, x1: Tensor, x2: Tensor | None = None, diag: bool = False, **params: Any) -> Any:
        self._check_call(x1, x1 if x2 is None else x2, params)
        return super().__call__(x1, x2, diag=diag, **params)

    @not_compiled
    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        self._check_call(x1, x2, params)
        self._warn_of_other_units(x1, x2)
        operator = self._covariance(x1, x2)
        return operator.diagonal(dim1=-2, dim2=-1) if diag else operator

    @abstractmethod
    def _covariance(self, x1: Tensor, x2: Tensor) -> LinearOperator:
        """The covariance (`*batch x N1 x N2`) of points with all their columns."""

    @abstractmethod
    def _check_points(self, x: Tensor) -> None:
        """Refuse points (`*batch x N x D`, all columns) that have no covariance."""

    def _check_call(self, x1: Tensor, x2: Tensor, params: dict[str, Any]) -> None:
        """Refuse unsupported calls and points before any work; wrappers may call `forward` itself."""
        name = type(self).__name__
        if torch.jit.is_tracing():
            raise RuntimeError(
                f"{name} cannot be traced for TorchScript: clusters are looked up by the values of points. Save "
                "model.state_dict(), and predict in Python."
            )
        if torch._C._functorch.maybe_current_level() is not None:
            raise RuntimeError(
                f"{name} expected plain tensors, got a transform of torch.func (vmap, jvp, grad, ...), without values: "
                "give a batch (... x N x D) in place of vmap, and differentiate with torch.autograd.grad"
            )
        if params.get("last_dim_is_batch"):
            raise RuntimeError(
                f"{name} does not support last_dim_is_batch, as of AdditiveStructureKernel: add one for each column "
                f"instead, AdditiveKernel(*[{name}(..., active_dims=(i,)) for i in range(D)]), or multiply them."
            )
        for x in (x1, x2):
            self._check_points(x)

    def _warn_of_other_units(self, x1: Tensor, x2: Tensor) -> None:
        """Warn once if most columns lie elsewhere than in the rows that the kernel was built on."""
        if self._has_warned or not (self.training or x1.shape != x2.shape):
            return
        elsewhere = self._elsewhere(x1, x2)
        if 2 * elsewhere.sum() > len(elsewhere):
            self._has_warned = True
            name = type(self).__name__
            told = (
                f"{name} was built on rows in other units than the points it is given: in {int(elsewhere.sum())} of "
                f"{len(elsewhere)} columns nearly all are at the edge of these rows or outside. Build it on what the "
                f"model gives it: with an input_transform in BoTorch, {name}(input_transform(train_X), ...)."
            )
            warnings.warn(told, OtherUnitsWarning, stacklevel=2)

    def _remember(self, train_x: Tensor | None) -> None:
        if train_x is not None:
            self.built_on.remember(self._active(train_x))

    def _elsewhere(self, x1: Tensor, x2: Tensor) -> Tensor:
        judged = [self.built_on.elsewhere(self._active(x)) for x in (x1, x2)]
        judged = [elsewhere for elsewhere in judged if elsewhere.numel()]
        return torch.stack(judged).all(0) if judged else self.built_on.middle.new_zeros(0, dtype=torch.bool)

    def prediction_strategy(
        self, train_inputs: Any, train_prior_dist: Any, train_labels: Tensor, likelihood: Any
    ) -> PartitionPredictionStrategy:
        return PartitionPredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load the whole state or nothing: if keys are missing, all are deleted, and the submodules report them."""
        if not self._is_whole(state_dict, prefix):
            for name in [name for name in state_dict if name.startswith(prefix)]:
                del state_dict[name]
        self._load_unit(state_dict.get(prefix + "unit"))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _load_unit(self, saved: Tensor | None) -> None:
        """Adopt the batch shape of a saved model of MCMC samples, if `load_strict_shapes(False)` was called."""
        if saved is None or saved.shape == self.unit.shape:
            return
        if self._load_strict_shapes:
            raise RuntimeError(
                f"expected the state of a {type(self).__name__} of batch shape {tuple(self.unit.shape)}, got one of "
                f"{tuple(saved.shape)}: give that batch_shape, or, for MCMC, call model.load_strict_shapes(False) first"
            )
        self.unit, self.batch_shape = torch.empty_like(saved, device=self.unit.device, dtype=self.dtype), saved.shape

    def local_load_samples(self, samples_dict: dict[str, Tensor], memo: set[Any], prefix: str) -> None:
        """Turn the kernel into a batch with one element for each sample of its parameters, also in its state."""
        super().local_load_samples(samples_dict, memo, prefix)
        if "unit" in self._buffers:
            self.unit = self.unit.expand(self._batch_shape).clone()

    def _is_whole(self, state_dict: dict[str, Any], prefix: str) -> bool:
        return all(prefix + name in state_dict for name in self.state_dict() if not name.endswith(_NOT_IN_ALL_STATES))

    def _active(self, x: Any) -> Any:
        return self.columns.select(x) if torch.is_tensor(x) else x
