"""
Calls of GPyTorch and linear_operator on what is theirs: every operator and kernel, distributions and models.

`python -m tests.hosts.calls` imports what the variable IMPORTED names, and prints a digest of what each call gives, to
the last bit. Errors have a digest as well: they are the host's.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import gpytorch
import linear_operator.operators as lo
import torch
from gpytorch import kernels
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from linear_operator import to_linear_operator
from torch import Tensor

N, TASKS = 12, 2
Call = Callable[[], Any]
_ADDRESS = re.compile("0x[0-9a-f]+")  # of an object, in a message


def _matrix(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _covariance(size: int = N) -> Tensor:
    root = _matrix(size, size)
    return root @ root.mT / size + torch.eye(size)


X = 0.6 * _matrix(N, 2).sigmoid()
Y = (6 * X[:, 0]).sin() + X[:, 1]
NEW = 0.6 * _matrix(5, 2).sigmoid()
DIAGONAL = _matrix(N).square() + 0.5
ROOT, LOWER = _matrix(N, 3), _covariance().tril()
OBSERVED = torch.arange(N) % 4 > 0
SMALL, SMALL_TASKS = lo.DenseLinearOperator(_covariance(N // TASKS)), lo.DenseLinearOperator(_covariance(TASKS))


def _dense() -> lo.DenseLinearOperator:
    return lo.DenseLinearOperator(_covariance())


def _interpolated() -> lo.InterpolatedLinearOperator:
    places = torch.arange(N).remainder(TASKS).unsqueeze(-1)
    return lo.InterpolatedLinearOperator(SMALL_TASKS, left_interp_indices=places, right_interp_indices=places)


def _kernel_operator() -> lo.KernelLinearOperator:
    return lo.KernelLinearOperator(X, X, covar_func=lambda x1, x2: torch.exp(-torch.cdist(x1, x2).square()))


OPERATORS: dict[str, Callable[[], lo.LinearOperator]] = {
    "AddedDiag": lambda: lo.AddedDiagLinearOperator(_dense(), lo.DiagLinearOperator(DIAGONAL)),
    "BatchRepeat": lambda: lo.BatchRepeatLinearOperator(_dense(), torch.Size([2])),
    "BlockDiag": lambda: lo.BlockDiagLinearOperator(lo.DenseLinearOperator(_covariance(6).expand(2, 6, 6))),
    "BlockInterleaved": lambda: lo.BlockInterleavedLinearOperator(
        lo.DenseLinearOperator(_covariance(6).expand(2, 6, 6))
    ),
    "Cat": lambda: lo.CatLinearOperator(*(lo.DenseLinearOperator(part) for part in _covariance().split(6))),
    "Chol": lambda: lo.CholLinearOperator(lo.TriangularLinearOperator(LOWER)),
    "ConstantDiag": lambda: lo.ConstantDiagLinearOperator(DIAGONAL[:1], diag_shape=N),
    "ConstantMul": lambda: lo.ConstantMulLinearOperator(_dense(), torch.tensor(1.5)),
    "Dense": _dense,
    "Diag": lambda: lo.DiagLinearOperator(DIAGONAL),
    "Identity": lambda: lo.IdentityLinearOperator(N),
    "Interpolated": _interpolated,
    "Kernel": _kernel_operator,
    "KroneckerProduct": lambda: lo.KroneckerProductLinearOperator(SMALL, SMALL_TASKS),
    "KroneckerProductAddedDiag": lambda: lo.KroneckerProductAddedDiagLinearOperator(
        lo.KroneckerProductLinearOperator(SMALL, SMALL_TASKS), lo.ConstantDiagLinearOperator(DIAGONAL[:1], N)
    ),
    "KroneckerProductDiag": lambda: lo.KroneckerProductDiagLinearOperator(
        lo.DiagLinearOperator(DIAGONAL[:6]), lo.DiagLinearOperator(DIAGONAL[:2])
    ),
    "KroneckerProductTriangular": lambda: lo.KroneckerProductTriangularLinearOperator(
        lo.TriangularLinearOperator(LOWER[:6, :6]), lo.TriangularLinearOperator(LOWER[:2, :2])
    ),
    "SumKronecker": lambda: lo.SumKroneckerLinearOperator(
        lo.KroneckerProductLinearOperator(SMALL, SMALL_TASKS), lo.KroneckerProductLinearOperator(SMALL, SMALL_TASKS)
    ),
    "LowRankRoot": lambda: lo.LowRankRootLinearOperator(ROOT),
    "LowRankRootAddedDiag": lambda: lo.LowRankRootAddedDiagLinearOperator(
        lo.LowRankRootLinearOperator(ROOT), lo.DiagLinearOperator(DIAGONAL)
    ),
    "Masked": lambda: lo.MaskedLinearOperator(lo.DenseLinearOperator(_covariance(N)), OBSERVED, OBSERVED),
    "Matmul": lambda: lo.MatmulLinearOperator(ROOT, ROOT.mT),
    "Mul": lambda: lo.MulLinearOperator(lo.RootLinearOperator(LOWER), lo.RootLinearOperator(LOWER)),
    "Permutation": lambda: lo.PermutationLinearOperator(torch.arange(N).flip(0)),
    "PsdSum": lambda: lo.PsdSumLinearOperator(_dense(), lo.DiagLinearOperator(DIAGONAL)),
    "Root": lambda: lo.RootLinearOperator(LOWER),
    "Sum": lambda: lo.SumLinearOperator(_dense(), _interpolated()),
    "SumBatch": lambda: lo.SumBatchLinearOperator(lo.DenseLinearOperator(_covariance().expand(2, N, N))),
    "Toeplitz": lambda: lo.ToeplitzLinearOperator(0.5 ** torch.arange(N)),
    "TransposePermutation": lambda: lo.TransposePermutationLinearOperator(3),
    "Triangular": lambda: lo.TriangularLinearOperator(LOWER),
    "Zero": lambda: lo.ZeroLinearOperator(N, N),
    "LazyEvaluatedKernel": lambda: kernels.RBFKernel()(X),
}

# What is asked of an operator, given a matrix with as many rows.
ASKED: dict[str, Callable[[Any, Tensor], Any]] = {
    "to_dense": lambda operator, _: operator.to_dense(),
    "diagonal": lambda operator, _: operator.diagonal(),
    "evaluate_kernel": lambda operator, _: operator.evaluate_kernel(),
    "matmul": lambda operator, matrix: operator @ matrix[:, :3],
    "+ tensor": lambda operator, matrix: operator + matrix,
    "+ diagonal": lambda operator, matrix: operator + lo.DiagLinearOperator(matrix.diagonal()),
    "diagonal +": lambda operator, matrix: lo.DiagLinearOperator(matrix.diagonal()) + operator,
    "+ operator": lambda operator, matrix: operator + lo.RootLinearOperator(matrix),
    "add_diagonal": lambda operator, _: operator.add_diagonal(torch.tensor(0.5)),
    "add_jitter": lambda operator, _: operator.add_jitter(0.1),
    "* number": lambda operator, _: operator * 2.0,
    "* operator": lambda operator, matrix: operator * lo.RootLinearOperator(matrix),
    "operator *": lambda operator, matrix: lo.RootLinearOperator(matrix) * operator,
    "expand": lambda operator, _: operator.expand(2, *operator.shape),
    "unsqueeze": lambda operator, _: operator.unsqueeze(0),
    "index": lambda operator, _: operator[..., 2:5, :4],
    "transpose": lambda operator, _: operator.mT,
    "solve": lambda operator, matrix: operator.add_diagonal(torch.tensor(0.5)).solve(matrix[:, :3]),
    "inv_quad_logdet": lambda operator, matrix: operator.add_diagonal(torch.tensor(0.5)).inv_quad_logdet(
        matrix[:, :3], logdet=True
    ),
    "cholesky": lambda operator, _: operator.cholesky(),
    "root": lambda operator, _: operator.root_decomposition(),
    "samples": lambda operator, _: operator.zero_mean_mvn_samples(2),
}

_OTHER_KERNELS: dict[str, Callable[[], kernels.Kernel]] = {
    "AdditiveKernel": lambda: kernels.RBFKernel() + kernels.MaternKernel(),
    "AdditiveStructureKernel": lambda: kernels.AdditiveStructureKernel(kernels.RBFKernel(), 2),
    "ArcKernel": lambda: kernels.ArcKernel(kernels.RBFKernel()),
    "ConstantKernel": kernels.ConstantKernel,
    "CylindricalKernel": lambda: kernels.CylindricalKernel(3, kernels.RBFKernel()),
    "GridKernel": lambda: kernels.GridKernel(kernels.RBFKernel(), [torch.linspace(0, 1, 4), torch.linspace(0, 1, 3)]),
    "HammingIMQKernel": lambda: kernels.HammingIMQKernel(2),
    "GridInterpolationKernel": lambda: kernels.GridInterpolationKernel(
        kernels.RBFKernel(), 8, 2, grid_bounds=[(0.0, 1.0)] * 2
    ),
    "InducingPointKernel": lambda: kernels.InducingPointKernel(kernels.RBFKernel(), NEW, GaussianLikelihood()),
    "LCMKernel": lambda: kernels.LCMKernel([kernels.RBFKernel(), kernels.MaternKernel()], TASKS, 1),
    "MultitaskKernel": lambda: kernels.MultitaskKernel(kernels.RBFKernel(), TASKS),
    "NewtonGirardAdditiveKernel": lambda: kernels.NewtonGirardAdditiveKernel(kernels.RBFKernel(), 2),
    "PiecewisePolynomialKernel": lambda: kernels.PiecewisePolynomialKernel(q=2),
    "PolynomialKernel": lambda: kernels.PolynomialKernel(2),
    "PolynomialKernelGrad": lambda: kernels.PolynomialKernelGrad(2),
    "ProductKernel": lambda: kernels.RBFKernel() * kernels.MaternKernel(),
    "ProductStructureKernel": lambda: kernels.ProductStructureKernel(kernels.RBFKernel(), 2),
    "RFFKernel": lambda: kernels.RFFKernel(num_samples=4),
    "ScaleKernel": lambda: kernels.ScaleKernel(kernels.RBFKernel()),
    "SpectralDeltaKernel": lambda: kernels.SpectralDeltaKernel(2, num_deltas=4),
    "SpectralMixtureKernel": lambda: kernels.SpectralMixtureKernel(2, ard_num_dims=2),
}
_PLAIN_KERNELS = (
    *(kernels.CosineKernel, kernels.LinearKernel, kernels.MaternKernel, kernels.PeriodicKernel, kernels.RBFKernel),
    *(kernels.RQKernel, kernels.Matern52KernelGrad, kernels.RBFKernelGrad, kernels.RBFKernelGradGrad),
)
KERNELS = {**{kind.__name__: kind for kind in _PLAIN_KERNELS}, **_OTHER_KERNELS}
ASKED_OF_KERNELS: dict[str, Callable[[Any], Any]] = {
    "covariance": lambda kernel: kernel(kernel.full_grid if hasattr(kernel, "full_grid") else X),
    "cross-covariance": lambda kernel: kernel(X, NEW),
    "variances": lambda kernel: kernel(X, diag=True),
    "+ noise": lambda kernel: kernel(X).add_diagonal(torch.tensor(0.1)).logdet(),
    "+ RBF": lambda kernel: (kernel + kernels.RBFKernel())(X),
    "RBF *": lambda kernel: (kernels.RBFKernel() * kernel)(X),
    "scaled": lambda kernel: kernels.ScaleKernel(kernel)(X, NEW),
    "posterior": lambda kernel: _posterior(kernel),
}


class _Model(gpytorch.models.ExactGP):
    def __init__(self, kernel: kernels.Kernel) -> None:
        super().__init__(X, Y, GaussianLikelihood())
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class _TaskModel(gpytorch.models.ExactGP):
    def __init__(self) -> None:
        super().__init__(X, torch.stack([Y, -Y], -1), MultitaskGaussianLikelihood(TASKS))
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), TASKS)
        self.covar_module = kernels.MultitaskKernel(kernels.RBFKernel(), TASKS)

    def forward(self, x: Tensor) -> MultitaskMultivariateNormal:
        return MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


class _Variational(gpytorch.models.ApproximateGP):
    def __init__(self) -> None:
        strategy = gpytorch.variational.VariationalStrategy(
            self, X[:4], gpytorch.variational.CholeskyVariationalDistribution(4)
        )
        super().__init__(strategy)
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernels.RBFKernel()

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _posterior(kernel: kernels.Kernel) -> Any:
    model = _Model(kernel).eval()
    return model(NEW), model.likelihood(model(NEW))


def _trained(model: Any, likelihood: Any, objective: Any) -> Any:
    loss = -objective(likelihood, model)(model(X), model.train_targets)
    loss.sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    posterior = model.eval()(NEW)
    return loss, gradients, posterior, posterior.sample(torch.Size([2]))


def _fantasies() -> Any:
    model = _Model(kernels.RBFKernel()).eval()
    model(NEW)
    return model.get_fantasy_model(NEW, NEW.sum(-1))(X)


def _variational() -> Any:
    model, likelihood = _Variational(), GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, N)(model(X), Y)
    bound.backward()
    return bound, [parameter.grad for parameter in model.parameters()], model.eval()(NEW)


def _missing() -> Any:
    model = _Model(kernels.RBFKernel())
    model.set_train_data(X, Y.where(OBSERVED, torch.nan), strict=False)
    with gpytorch.settings.observation_nan_policy("mask"):
        return _trained(model, model.likelihood, gpytorch.mlls.ExactMarginalLogLikelihood)


def _model_call(objective: Any, make: Callable[[], Any] = lambda: _Model(kernels.RBFKernel())) -> Any:
    model = make()
    return _trained(model, model.likelihood, objective)


MODELS: dict[str, Call] = {
    "exact": lambda: _model_call(gpytorch.mlls.ExactMarginalLogLikelihood),
    "leave one out": lambda: _model_call(gpytorch.mlls.LeaveOneOutPseudoLikelihood),
    "tasks": lambda: _model_call(gpytorch.mlls.ExactMarginalLogLikelihood, _TaskModel),
    "fantasies": _fantasies,
    "variational": _variational,
    "missing targets": _missing,
}

NORMALS: dict[str, Callable[[], MultivariateNormal]] = {
    "dense": lambda: MultivariateNormal(Y, _covariance()),
    "lazy": lambda: MultivariateNormal(Y, to_linear_operator(_covariance())),
    "of a kernel": lambda: MultivariateNormal(Y, kernels.RBFKernel()(X).add_jitter(0.1)),
    "of a batch": lambda: MultivariateNormal(Y.expand(2, N), _covariance().expand(2, N, N)),
    "of tasks": lambda: MultitaskMultivariateNormal(Y.view(-1, TASKS), to_linear_operator(_covariance())),
}
ASKED_OF_NORMALS: dict[str, Callable[[Any], Any]] = {
    "moments": lambda normal: (normal.mean, normal.variance, normal.covariance_matrix),
    "log_prob": lambda normal: normal.log_prob(torch.zeros(normal.event_shape)),
    "entropy": lambda normal: normal.entropy(),
    "divergence": lambda normal: torch.distributions.kl_divergence(normal, normal * 2),
    "expand": lambda normal: normal.expand([2, *normal.batch_shape]),
    "unsqueeze": lambda normal: normal.unsqueeze(0),
    "samples": lambda normal: normal.rsample(torch.Size([3])),
    "base samples": lambda normal: normal.rsample(base_samples=normal.get_base_samples(torch.Size([3]))),
    "+": lambda normal: normal + normal + 1,
    "* / [ ]": lambda normal: ((normal * 3) / 2)[..., 1:],
    "confidence": lambda normal: normal.confidence_region(),
    "jitter": lambda normal: normal.add_jitter(0.1),
    "independent": lambda normal: normal.to_data_independent_dist(),
    "repeated": lambda normal: MultitaskMultivariateNormal.from_repeated_mvn(normal, 3),
    "tasks of a batch": lambda normal: MultitaskMultivariateNormal.from_batch_mvn(normal.expand([2])),
    "independent tasks": lambda normal: MultitaskMultivariateNormal.from_independent_mvns([normal, normal]),
}


def calls() -> Iterator[tuple[str, Call]]:
    """Every call, by name."""
    for name, operator in OPERATORS.items():
        for asked, ask in ASKED.items():
            yield (
                f"{name} {asked}",
                lambda make=operator, ask=ask: (each := make(), ask(each, _matrix(*each.shape[-2:]))),
            )
    for name, kernel in KERNELS.items():
        for asked, ask in ASKED_OF_KERNELS.items():
            yield f"{name} {asked}", lambda make=kernel, ask=ask: ask(make())
    for name, normal in NORMALS.items():
        for asked, ask in ASKED_OF_NORMALS.items():
            yield f"normal {name} {asked}", lambda make=normal, ask=ask: ask(make())
    for name, call in MODELS.items():
        yield f"model {name}", call


def _told(value: Any) -> list[Any]:
    """The type of a value, and the bytes of the numbers in it."""
    if isinstance(value, tuple | list):
        return [_told(each) for each in value]
    if isinstance(value, lo.LinearOperator):
        return [type(value).__name__, *_told(value.to_dense())]
    if isinstance(value, torch.distributions.Distribution):
        of_normal = [value.covariance_matrix] if isinstance(value, MultivariateNormal) else []
        return [type(value).__name__, *map(_told, [value.mean, value.variance, *of_normal])]
    return [str(value.dtype), list(value.shape), value.detach().numpy().tobytes().hex()]


def digest(call: Call) -> str:
    """What a call gives, or its error, as a text."""
    torch.manual_seed(0)
    try:
        told = repr(_told(call()))
    except Exception as error:
        return f"{type(error).__name__}: {_ADDRESS.sub('', str(error))}"
    return hashlib.sha256(told.encode()).hexdigest()


if __name__ == "__main__":
    if package := os.environ.get("IMPORTED"):
        import_module(package)
    print(json.dumps({name: digest(call) for name, call in calls()}))
