"""The page with the grid's outcomes: docs/extremes.md."""

from __future__ import annotations

from collections import Counter

from tests.extremes import measure
from tests.extremes.measure import QUANTITIES, Outcome
from tests.extremes.problems import NUM_PARTITIONS, NUM_TEST, PATHS, Cell

_INTRODUCTION = f"""\
# Extreme noise and outputscales

What predictions and likelihoods are where the noise is tiny beside the outputscale, or the other way round, compared
with an eigendecomposition of the dense matrix in float64. Models have {NUM_PARTITIONS} partitions, and targets drawn
from themselves; {NUM_TEST} test points, ten of which are training rows. In sums, the smooth term (100 landmarks, or an
RBF kernel) has the outputscale, and the forest beside it has 1.

Each cell tells of five quantities, in this order: {", ".join(QUANTITIES)}.

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
    """The whole page."""
    return "\n".join([_INTRODUCTION, _counts(found), *_sections(found)]).rstrip() + "\n"


def _counts(found: dict[Cell, dict[str, Outcome]]) -> str:
    kinds = Counter(outcome.kind for outcomes in found.values() for outcome in outcomes.values())
    words = ", ".join(f"{kinds[kind]:,} {kind.lower()}" for kind in ("right", "warned", "refused"))
    return f"Of {kinds.total():,} quantities: {words}, {kinds['WRONG']} silently wrong.\n"


def _sections(found: dict[Cell, dict[str, Outcome]]) -> list[str]:
    tables = dict.fromkeys((cell.kernel, cell.path) for cell in found)
    return [text for kernel, path in tables for text in (f"## {kernel}, {path}\n", _table(found, kernel, path))]


def _table(found: dict[Cell, dict[str, Outcome]], kernel: str, path: str) -> str:
    cells = {cell: outcomes for cell, outcomes in found.items() if (cell.kernel, cell.path) == (kernel, path)}
    noises = sorted({cell.noise for cell in cells})
    header = ["outputscale", "dtype", *(f"noise {noise:.0e}" for noise in noises)]
    rows = [header, ["---"] * len(header)]
    for scale, dtype in dict.fromkeys((cell.outputscale, cell.dtype) for cell in cells):
        own = {
            cell.noise: letters(each)
            for cell, each in cells.items()
            if (cell.outputscale, cell.dtype) == (scale, dtype)
        }
        rows.append(
            [f"{scale:.0e}", str(dtype).removeprefix("torch."), *(f"`{own.get(noise, '-')}`" for noise in noises)]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def letters(outcomes: dict[str, Outcome]) -> str:
    """A letter for each quantity."""
    return "".join(_LETTERS[outcome.kind] for outcome in outcomes.values())
