"""The page with the grid's outcomes: docs/extremes.md."""

from __future__ import annotations

from collections import Counter

from tests.extremes import measure
from tests.extremes.measure import QUANTITIES, Outcome
from tests.extremes.problems import NUM_PARTITIONS, NUM_TEST, PATHS, Cell

_INTRODUCTION = f"""\
# Extreme noise and outputscales

Predictions and likelihoods where the noise is tiny beside the outputscale, or the other way round, are compared with
an eigendecomposition of the dense matrix in float64. Models have {NUM_PARTITIONS} partitions, and targets drawn
from themselves; {NUM_TEST} test points, ten of which are training rows. In sums, the smooth term (100 landmarks, or an
RBF kernel) has the outputscale, and the forest beside it has 1.

A cell has a letter for each of five quantities, in this order: {", ".join(QUANTITIES)}.

- `.` right: the mean to {measure.MEAN} standard deviations of a new target, variances to {100 * measure.VARIANCE:.1f} %
  of the latent variance, covariances to {100 * measure.CORRELATION:.0f} % of the product of two standard deviations,
  the variances of {measure.NUM_SAMPLES} samples to what chance allows, the log likelihood to
  {measure.LOG_LIKELIHOOD} nats per datum and four standard errors of its {measure.NUM_PROBES} probe vectors.
- `w` warned: it may be wrong, and a `NumericalWarning` says so.
- `r` refused: an error says what to do.
- `X` silently wrong: a defect. There must be none.
- `-` not measured in this run.

Paths: dense, {PATHS["dense"]} rows; defaults, {PATHS["defaults"]:,} rows in GPyTorch's default settings, above the 800
up to which its algebra is dense; iterative, {PATHS["iterative"]:,} rows, above the {2000:,} up to which algebra is
dense inside `gpytorch_partition.settings.iterative()`; feature space, as many rows, with
`predictive_variances("feature_space")`; many rows, {PATHS["many rows"]:,}, where the matrix is not factorized, as it
is up to 10,000, but that of clusters, with a forest of leaves of 130 rows. GPyTorch's own `variance` is at least
1e-6 in float32 and 1e-10 in float64, with a warning. `python -m tests.extremes > docs/extremes.md` makes this
page, in an hour of one core; `--all` takes all decades but every other one.
"""

_LETTERS = {"right": ".", "warned": "w", "refused": "r", "WRONG": "X"}


def page(found: dict[Cell, dict[str, Outcome]]) -> str:
    """The whole page: all cells are counted, and those that are not right are shown."""
    return "\n".join([_INTRODUCTION, _counts(found), _measured(found), _table(found)]).rstrip() + "\n"


def _counts(found: dict[Cell, dict[str, Outcome]]) -> str:
    kinds = Counter(outcome.kind for outcomes in found.values() for outcome in outcomes.values())
    words = ", ".join(f"{kinds[kind]:,} {kind.lower()}" for kind in ("right", "warned", "refused"))
    return f"{kinds.total():,} quantities: {words}, {kinds['WRONG']} silently wrong.\n"


def _measured(found: dict[Cell, dict[str, Outcome]]) -> str:
    paths: dict[str, list[str]] = {}
    for kernel, path in dict.fromkeys((cell.kernel, cell.path) for cell in found):
        paths.setdefault(kernel, []).append(path)
    sizes = ", ".join(f"{size:.0e}" for size in sorted({cell.outputscale for cell in found}))
    lines = [f"- {kernel}: {', '.join(names)}" for kernel, names in paths.items()]
    return "\n".join([f"Measured at outputscales {sizes}, in float32 and float64, were\n", *lines, ""])


def _table(found: dict[Cell, dict[str, Outcome]]) -> str:
    noises = sorted({cell.noise for cell in found})
    header = ["kernel, path", "outputscale", "dtype", *(f"noise {noise:.0e}" for noise in noises)]
    rows = {}
    for cell, outcomes in found.items():
        name = (f"{cell.kernel}, {cell.path}", f"{cell.outputscale:.0e}", str(cell.dtype).removeprefix("torch."))
        rows.setdefault(name, dict.fromkeys(noises, "-"))[cell.noise] = letters(outcomes)
    shown = [
        [*name, *(f"`{own[noise]}`" for noise in noises)]
        for name, own in rows.items()
        if set("".join(own.values())) - {"."}
    ]
    lines = [f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *shown]]
    return "\n".join(["Rows that are not right at every noise:\n", *lines]) + "\n"


def letters(outcomes: dict[str, Outcome]) -> str:
    """A letter for each quantity."""
    return "".join(_LETTERS[outcome.kind] for outcome in outcomes.values())
