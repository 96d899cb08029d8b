"""
Forest kernels in Ax (`pip install "gpytorch_partition[ax]"`).

Importing it registers :class:`AxForestKernel` with Ax's `covar_module_argparse`. The two classes go together: Ax's own
optimizers of acquisition functions follow gradients, which these kernels do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import ScaleKernel
from torch import Tensor

try:
    from ax.core.search_space import SearchSpaceDigest
    from ax.generators.torch.botorch_modular.acquisition import Acquisition
    from ax.generators.torch.botorch_modular.input_constructors.covar_modules import covar_module_argparse
except ImportError as error:
    raise ImportError(
        'gpytorch_partition.ax expected Ax, which is not installed: pip install "gpytorch_partition[ax]"'
    ) from error

from gpytorch_partition.botorch import optimize_acqf_cells
from gpytorch_partition.kernels import DeferredKernel, RandomForestKernel

__all__ = ["AxForestKernel", "CellAcquisition"]


class AxForestKernel(ScaleKernel):
    """
    Build a scaled :class:`~gpytorch_partition.RandomForestKernel` on the rows and targets of a model of Ax.

    Use it as `covar_module_class` of `ModelConfig`, with :class:`CellAcquisition` as the generator's
    `acquisition_class`. The forest is grown on the rows as the model's transformations leave them, at the first call.

    :param train_y: `N` targets of the rows, which Ax gives.
    :param options: Parameters of the forest kernel, which are the `covar_module_options` of `ModelConfig`.
    :raises ValueError: If Ax models several outcomes together.
    """

    def __init__(self, train_y: Tensor, **options: Any) -> None:
        super().__init__(DeferredKernel(lambda x: RandomForestKernel(x, train_y, **options)))


@covar_module_argparse.register(AxForestKernel)
def _arguments(covar_module_class: Any, botorch_model_class: Any = None, dataset: Any = None, **options: Any) -> Any:
    if dataset.Y.shape[-1] != 1:
        raise ValueError(f"expected one outcome for a forest, got {dataset.Y.shape[-1]}: give a ModelConfig to each")
    options.pop("remove_task_features", None)
    return {"train_y": dataset.Y[:, 0], **options}


class CellAcquisition(Acquisition):
    """
    Search cells for the best acquisition value (:func:`~gpytorch_partition.botorch.optimize_acqf_cells`).

    Use it as a generator's `acquisition_class` where the kernel is made of partition kernels. Points that were
    evaluated, or are pending, are not proposed again.
    """

    def optimize(
        self,
        n: int,
        search_space_digest: SearchSpaceDigest,
        inequality_constraints: list[tuple[Tensor, Tensor, float]] | None = None,
        equality_constraints: list[tuple[Tensor, Tensor, float]] | None = None,
        fixed_features: dict[int, float] | None = None,
        rounding_func: Callable[[Tensor], Tensor] | None = None,
        optimizer_options: dict[str, Any] | None = None,
        candidate_set: Tensor | None = None,
        sampling_strategy: Any = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """
        Return `n` candidates (`n x d`), their joint acquisition value, and their weights, which are 1.

        :param optimizer_options: Options of the search, such as `num_restarts` and `random_state`. (Default: none.)
        :raises ValueError: For equality constraints. Other parameters are those of Ax.
        """
        if candidate_set is not None or sampling_strategy is not None:
            given = {"candidate_set": candidate_set, "sampling_strategy": sampling_strategy}
            return super().optimize(n, search_space_digest, **given)
        if equality_constraints:
            raise ValueError("expected no equality constraints in a search of cells: substitute one of the parameters")
        space, known = search_space_digest, [each for each in (self.X_observed, self.X_pending) if each is not None]
        values = {column: [*map(float, choices)] for column, choices in space.discrete_choices.items()}
        categories = {column: values.pop(column) for column in space.categorical_features if column in values}
        points, value = optimize_acqf_cells(
            self.acqf,
            torch.tensor(space.bounds, dtype=self.dtype, device=self.device).T,
            values,
            categories,
            q=n,
            fixed_features=fixed_features,
            inequality_constraints=inequality_constraints,
            X_avoid=torch.cat(known) if known else None,
            **(optimizer_options or {}),
        )
        rounded = points if rounding_func is None else torch.stack([rounding_func(point) for point in points])
        return rounded, value, torch.ones(n, dtype=self.dtype)
