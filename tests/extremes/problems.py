"""The cells of the grid, and their exact answers by one eigendecomposition of a dense float64 matrix."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import gpytorch
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

from gpytorch_partition import (
    FastClusterKernel,
    GammaMondrianKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    RandomForestKernel,
)

NUM_PARTITIONS = 20
NUM_TEST = 40  # the last ten are training rows
NUM_COLUMNS = 3
SIZES = (1e-8, 1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4)
FEW_SIZES = (1e-8, 1e-4, 1.0, 1e4)
PATHS = {
    "dense": 300,
    "defaults": 1000,
    "iterative": 2050,
    "feature space": 2050,
    "many rows": 6500,  # iterative too, with a factor of clusters where iterations fail, as the coarse forest has few
    "few rows": 500,  # for tests: the limits of dense algebra are 400 there, and else as on the path that is named
    "few rows, defaults": 500,
    "few rows, feature space": 500,
    "few rows, many rows": 500,
}
MEASURED = tuple(PATHS)[:5]
TESTED = ("dense", *tuple(PATHS)[5:])
DTYPES = (torch.float32, torch.float64)
COARSE = "coarse forest"
KERNELS = ("forest", "fast cluster", "mondrian", "gamma mondrian", "local linear", "landmark sum", "RBF sum", COARSE)
PLAIN = KERNELS[:3]  # which have a feature space
SUMS = KERNELS[5:7]


@dataclass(frozen=True)
class Cell:
    """One model with one outputscale and noise, in one dtype, on one of the paths of computation."""

    kernel: str
    dtype: torch.dtype
    path: str
    outputscale: float
    noise: float

    @property
    def num_rows(self) -> int:
        return PATHS[self.path]

    @property
    def name(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.kernel}, {dtype}, {self.path}, outputscale {self.outputscale:.0e}, noise {self.noise:.0e}"


def cells(sizes=FEW_SIZES, kernels=KERNELS, dtypes=DTYPES, paths=MEASURED) -> list[Cell]:
    """The cells, those with the same dense matrix one after another."""
    return [
        Cell(kernel, dtype, path, outputscale, noise)
        for kernel, path, outputscale, dtype, noise in itertools.product(kernels, paths, sizes, dtypes, sizes)
        if ("feature space" not in path or kernel in PLAIN) and ("many rows" in path) == (kernel == COARSE)
    ]


@lru_cache
def rows(num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Training rows and test points, which float32 holds exactly."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(num_rows + NUM_TEST, NUM_COLUMNS, generator=generator).double()
    x[-10:] = x[:10]
    return x[:num_rows], x[num_rows:]


@lru_cache
def _trees_kernel(name: str, num_rows: int) -> Kernel:
    x = rows(num_rows)[0]
    y = (6 * x[:, 0]).sin() + x[:, 1]
    if name == "fast cluster":
        return FastClusterKernel(x, num_partitions=NUM_PARTITIONS, random_state=0)
    if name == "mondrian":
        return MondrianKernel(x, num_trees=NUM_PARTITIONS, random_state=0)
    if name == "gamma mondrian":
        return GammaMondrianKernel(x, num_trees=NUM_PARTITIONS, random_state=0)
    if name == "landmarks":
        return LandmarkKernel(x, y, 100, num_rows=200, random_state=0)
    leaves = {"min_samples_leaf": max(50, num_rows // 50)} if name == COARSE else {}
    return RandomForestKernel(x, y, num_trees=NUM_PARTITIONS, random_state=0, **leaves)


def _kernel(name: str, num_rows: int, outputscale: float) -> Kernel:
    forest = _trees_kernel("forest", num_rows)
    if name in (*PLAIN, "gamma mondrian", COARSE):
        return _scaled(_trees_kernel(name, num_rows), outputscale)
    if name == "local linear":
        return _scaled(LocalLinearKernel(_trees_kernel("fast cluster", num_rows), NUM_COLUMNS), outputscale)
    smooth = RBFKernel() if name == "RBF sum" else _trees_kernel("landmarks", num_rows)
    return _scaled(smooth, outputscale) + forest


def _scaled(kernel: Kernel, outputscale: float) -> ScaleKernel:
    scaled = ScaleKernel(kernel, outputscale_constraint=Positive()).double()
    scaled.outputscale = outputscale
    return scaled


class Model(gpytorch.models.ExactGP):
    """An exact GP of zero mean."""

    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def model_of(cell: Cell) -> Model:
    """The model of a cell, in its dtype."""
    likelihood = GaussianLikelihood(noise_constraint=Positive()).to(cell.dtype)
    with torch.no_grad():  # softplus in float32 would round what is small to zero
        likelihood.noise_covar.raw_noise.fill_(_inverse_softplus(cell.noise))
    kernel = _kernel(cell.kernel, cell.num_rows, cell.outputscale)
    x, y = rows(cell.num_rows)[0].to(cell.dtype), exact(cell).targets.to(cell.dtype)
    model = Model(x, y, likelihood, _copied(kernel)).to(cell.dtype)
    return model.requires_grad_(False)


def _inverse_softplus(value: float) -> float:
    return value + math.log(-math.expm1(-value))


def _copied(kernel: Kernel) -> Kernel:
    """A copy whose dtype can change; partitions are shared."""
    import copy

    return copy.deepcopy(kernel)


@dataclass(frozen=True)
class Spectrum:
    """Eigenpairs of the covariance of training rows, and the prior of the test points in that basis."""

    values: torch.Tensor
    vectors: torch.Tensor
    cross: torch.Tensor  # N x N_test
    prior: torch.Tensor


@lru_cache(maxsize=2)
def _spectrum(kernel: str, num_rows: int, outputscale: float) -> Spectrum:
    points = torch.cat(rows(num_rows))
    with gpytorch.settings.max_cholesky_size(10**6), gpytorch.settings.lazily_evaluate_kernels(False), torch.no_grad():
        joint = _kernel(kernel, num_rows, outputscale)(points).to_dense()
    values, vectors = torch.linalg.eigh(joint[:num_rows, :num_rows])
    cross = vectors.mT @ joint[:num_rows, num_rows:]
    return Spectrum(values.clamp_min(0), vectors, cross, joint[num_rows:, num_rows:])


class Exact:
    """Exact answers, and how far float64 lets them be known: what moving eigenvalues by their rounding changes."""

    def __init__(self, cell: Cell) -> None:
        is_sum = cell.kernel in SUMS
        scale = 1.0 if is_sum else cell.outputscale
        found = _spectrum(cell.kernel, cell.num_rows, cell.outputscale if is_sum else 1.0)
        self.noise, self.vectors = cell.noise, found.vectors
        self.values, self.cross, self.prior = scale * found.values, scale * found.cross, scale * found.prior
        self.rounding = 4 * torch.finfo(torch.float64).eps * float(self.values.max())

    @cached_property
    def targets(self) -> torch.Tensor:
        """A draw from the model, which float32 holds exactly (up to its range)."""
        normal = torch.randn(len(self.values), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return (self.vectors @ ((self.values + self.noise).sqrt() * normal)).float().double()

    def mean(self, shift: float = 0.0) -> torch.Tensor:
        return self.cross.mT @ ((self.vectors.mT @ self.targets) / (self.values + self.noise + shift))

    def covariance(self, shift: float = 0.0) -> torch.Tensor:
        return self.prior - self.cross.mT @ (self.cross / (self.values + self.noise + shift).unsqueeze(-1))

    def log_likelihood(self, shift: float = 0.0, noise: float | None = None) -> float:
        """In nats per datum."""
        shifted = self.values + (self.noise if noise is None else noise) + shift
        form = ((self.vectors.mT @ self.targets).square() / shifted).sum()
        return float(-0.5 * (form + shifted.log().sum()) / len(shifted) - 0.5 * math.log(2 * math.pi))

    @property
    def log_spread(self) -> float:
        """Standard deviation of the logarithms of the eigenvalues."""
        return float((self.values + self.noise).log().std())


@lru_cache(maxsize=1)
def _exact(kernel: str, num_rows: int, outputscale: float, noise: float) -> Exact:
    path = next(path for path, size in PATHS.items() if size == num_rows)
    return Exact(Cell(kernel, torch.float64, path, outputscale, noise))


def exact(cell: Cell) -> Exact:
    """The exact answers of a cell, the same for both dtypes."""
    return _exact(cell.kernel, cell.num_rows, cell.outputscale, cell.noise)
