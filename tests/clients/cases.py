"""What is expected of every client: exact answers, but for the cases that are listed here."""

from __future__ import annotations

from dataclasses import dataclass

from tests.clients.client import MODES

SIZES = (300, 1500)
TRAINING = ("likelihood", "gradient")
QUANTITIES = (*TRAINING, "mean", "variance", "covariance", "observed variance", "sample mean", "sample variance")
BOTORCH_CLIENTS = (
    "SingleTaskGP",
    "SingleTaskGP, b x q points",
    "SingleTaskGP, RBF + kernel",
    "SingleTaskGP, RBF * kernel",
    "SingleTaskGP, known noise",
    "SingleTaskGP, two outcomes",
    "SingleTaskGP, two outcomes, b x q points",
    "SingleTaskGP, Normalize",
    "MultiTaskGP",
    "KroneckerMultiTaskGP",
    "ModelListGP",
    "condition_on_observations",
    "condition_on_observations, batch",
    "fantasize",
    "LogExpectedImprovement",
    "LogExpectedImprovement, gradient by x",
    "qLogNEI, cache_root",
    "qLogNEI",
)


@dataclass(frozen=True)
class Deviation:
    """
    Cases that are not exact.

    :param clients: Names of clients.
    :param kind: `"refused"`, or `"warned"` (inaccurate, with a warning).
    :param says: A regular expression of the message, for what is refused with the remedy in it.
    :param note: What the table says of it.
    :param quantities: The quantities concerned; None is all.
    :param sizes: The numbers of rows concerned.
    :param modes: The modes concerned.
    :param not_of: Kernels that are exact here.
    """

    clients: tuple[str, ...]
    kind: str
    says: str
    note: str
    quantities: tuple[str, ...] | None = None
    sizes: tuple[int, ...] = SIZES
    modes: tuple[str, ...] = MODES
    not_of: tuple[str, ...] = ()

    def concerns(self, client: str, quantity: str, num_rows: int, mode: str) -> bool:
        """Whether a quantity of a case is among these, for some kernel."""
        is_case = client in self.clients and num_rows in self.sizes and mode in self.modes
        return is_case and (self.quantities is None or quantity in self.quantities)


_NO_GRADIENT = "piecewise constant in x.*learn_inducing_locations=False.*requires_grad_.False.*without gradients"

DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        ("SVGP", "SGPR", "deep kernel"),
        "refused",
        _NO_GRADIENT,
        "These kernels have no gradient by x: fix the inducing points (`learn_inducing_locations=False`, or "
        "`covar_module.inducing_points.requires_grad_(False)`), and train features of x with another kernel. "
        "`LandmarkKernel` has such gradients.",
        quantities=TRAINING,
        not_of=("landmark",),
    ),
    Deviation(
        ("gradients of predictions by x", "LogExpectedImprovement, gradient by x"),
        "refused",
        _NO_GRADIENT,
        "Search the cells: `gpytorch_partition.botorch.optimize_acqf_cells`, or `optimize_acqf_discrete`. "
        "`LandmarkKernel` has such gradients.",
        not_of=("landmark",),
    ),
    Deviation(
        ("leave-one-out",),
        "refused",
        "expected one partition kernel plus one level of noise, with fewer clusters than rows",
        "The leave-one-out likelihood is exact if there are fewer clusters than rows; else it would need a dense "
        "Cholesky factor: raise `max_cholesky_size`, or stay inside `iterative()`.",
        quantities=TRAINING,
        sizes=(1500,),
        modes=("default", "fast_pred_var"),
        not_of=("fast cluster", "learned heights", "random binning", "function"),
    ),
    Deviation(
        ("Bernoulli classification at all rows",),
        "warned",
        "$^",
        "As many inducing points as rows, and solves without noise: above `max_cholesky_size` rows they do not "
        "converge, and a `NumericalWarning` says so. Stay inside `iterative()`, where it is 2,000, or take fewer.",
        sizes=(1500,),
        modes=("default", "fast_pred_var"),
    ),
)


@dataclass(frozen=True)
class Allowance:
    """
    A tolerance of one cell that is wider than the others'.

    :param client: The client.
    :param kernel: The kernel.
    :param quantity: What is less accurate.
    :param tolerance: How far it may be.
    :param note: Why, for the page.
    """

    client: str
    kernel: str
    quantity: str
    tolerance: float
    note: str


ALLOWANCES = (
    Allowance(
        "deep kernel",
        "landmark",
        "gradient",
        0.2,
        "derivatives by the weights of features, up to 2.4 nats per datum here, are traces; estimates of them from 10 "
        "probe vectors are 6 % off (200: 2 %, 2,000: 1 %): raise `num_trace_samples`.",
    ),
    Allowance(
        "CIQ",
        "landmark",
        "mean",
        2e-3,
        "the inducing points' covariance is nearly singular, and GPyTorch's quadrature for its root is 7 to 15 % off, "
        "with a dense matrix as well.",
    ),
)


def tolerance_of(client: str, kernel: str, quantity: str, usual: float) -> float:
    """How far a quantity may be from the oracle's."""
    wider = {(each.client, each.kernel, each.quantity): each.tolerance for each in ALLOWANCES}
    return wider.get((client, kernel, quantity), usual)


def deviation(client: str, quantity: str, num_rows: int, mode: str, kernel: str | None = None) -> Deviation | None:
    """How a quantity of a case deviates, with most kernels if none is named; None if it is exact."""
    for found in DEVIATIONS:
        if kernel not in found.not_of and found.concerns(client, quantity, num_rows, mode):
            return found
    return None
