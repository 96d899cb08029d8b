"""Whether the width that a sweep of a Mondrian kernel finds is a good start for other kernels (Balog et al., 9)."""

from __future__ import annotations

from collections.abc import Iterator

import gpytorch
import torch
from gpytorch.kernels import MaternKernel, ProductKernel, RBFKernel, ScaleKernel

from gpytorch_partition import MondrianKernel, lifetime_sweep

from .datasets import read_data, split_of
from .processes import ExactModel
from .report import Options, Row, Table, grid, measured

SETS = ("concrete", "energy", "autompg", "housing", "cpu", "yacht")
STEPS = (0, 10, 30, 100)  # of Adam, at a rate of .1


def width_starts(options: Options) -> Iterator[Table]:
    """Train GPs from GPyTorch's lengthscale and from that of a sweep; print the loss along the steps."""
    names = options.pick(SETS, ("diabetes",)) if options.data else ("diabetes",)

    def losses(name: str, kernel: str, start: str) -> Row:
        split = split_of(read_data(options, name), 0, options.pick(400, 40))
        x, y = torch.from_numpy(split.x), torch.from_numpy(split.y)
        built = _laplace(x.shape[1]) if kernel == "Laplace" else RBFKernel()
        if start == "sweep":
            mondrian = MondrianKernel(x, 50, max_lifetime=20.0, random_state=0).double()
            lifetime_sweep(mondrian, x, y)
            for each in built.kernels if isinstance(built, ProductKernel) else [built]:
                each.lengthscale = 1 / mondrian.lifetime
        return _trained(ExactModel(x, y, ScaleKernel(built)), options.pick(STEPS, STEPS[:2]))

    title = "Negative log marginal likelihood per row of exact GPs along steps of Adam, by the lengthscale at the start"
    jobs = grid(data=names, kernel=("Laplace", "RBF"), start=("GPyTorch", "sweep"))
    yield from measured(options, "width_starts", title, jobs, losses)


def _laplace(num_columns: int) -> ProductKernel:
    return ProductKernel(*(MaternKernel(nu=0.5, active_dims=(column,)) for column in range(num_columns)))


def _trained(model: ExactModel, steps: tuple[int, ...]) -> Row:
    mll, row = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model.train()), {}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for step in range(steps[-1] + 1):
        optimizer.zero_grad()
        loss = -mll(model(*model.train_inputs), model.train_targets)
        loss.backward()
        optimizer.step()
        if step in steps:
            row[f"step {step}"] = float(loss)
    return row
