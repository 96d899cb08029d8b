"""The page that says which clients are exact and which are refused: docs/clients.md."""

from __future__ import annotations

from tests.clients.cases import (
    ALLOWANCES,
    BOTORCH_CLIENTS,
    DEVIATIONS,
    QUANTITIES,
    SIZES,
    TRAINING,
    Deviation,
    deviation,
)
from tests.clients.client import MODES
from tests.clients.everyone import RECIPES
from tests.clients.problems import KERNELS, NUM_TEST

_INTRODUCTION = f"""\
# Models of GPyTorch and BoTorch with these kernels

The models of GPyTorch's examples and BoTorch's models were run with a kernel of this package in place of their own,
with {SIZES[0]} rows (fewer than `max_cholesky_size`, 800) and {SIZES[1]:,}, {NUM_TEST} test points and float64. Each is
compared with itself on dense matrices and Cholesky factors: marginal likelihood (or bound) and gradient, mean,
variances, covariances, the variance of new targets, and the mean and variance of samples.

- **exact**: all of these agree. Up to `max_cholesky_size` rows they do to 1e-5; above, means to 1e-3 of the scale of
  the targets, variances and covariances to 2 %, and the likelihood and its gradient to .02 nats per datum, which is 3.5
  standard errors of what GPyTorch's 10 probe vectors leave.
- **refused**: an error, whose message says what to do.
- **warned**: inaccurate, as a warning says.

The columns are GPyTorch's default settings, those inside `gpytorch_partition.settings.iterative()` (for BoTorch's
models the settings that BoTorch makes at import take the place of the default ones), and
`gpytorch.settings.fast_pred_var()`. Kernels are {", ".join(KERNELS)}.

`tests/clients/` holds the models, and this page is made of what its tests expect: `python -m tests.clients table`.
`python -m tests.clients check` runs every cell with every kernel.
"""


def page() -> str:
    """The whole page."""
    notes = [f"{number}. {found.note}" for number, found in enumerate(DEVIATIONS, 1)]
    sections = [_INTRODUCTION, "## GPyTorch\n", _table(tuple(RECIPES)), "## BoTorch\n", _table(BOTORCH_CLIENTS)]
    wider = [f"- {each.client} with {each.kernel}, {SIZES[-1]:,} rows: {each.note}" for each in ALLOWANCES]
    return "\n".join([*sections, "## Notes\n", *notes, "\nWider tolerances:\n", *wider]) + "\n"


def _table(clients: tuple[str, ...]) -> str:
    cells = {name: [_cell(name, size, mode) for size in SIZES for mode in MODES] for name in clients}
    exact = "; ".join(name for name, own in cells.items() if set(own) == {"exact"})
    columns = [f"{size:,} rows, {mode}" for size in SIZES for mode in MODES]
    rows = [["model", *columns], ["---"] * (1 + len(columns))]
    rows += [[name, *own] for name, own in cells.items() if set(own) != {"exact"}]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"Exact in all columns: {exact}.\n\n{table}\n"


def _cell(client: str, num_rows: int, mode: str) -> str:
    found = {name: deviation(client, name, num_rows, mode) for name in QUANTITIES}
    kinds = {each.kind for each in found.values() if each is not None}
    words = [_words(found, kind) for kind in sorted(kinds)]
    return "; ".join(words if None not in found.values() else ["exact", *words])


def _words(found: dict[str, Deviation | None], kind: str) -> str:
    """Which quantities deviate in one way, with the numbers of their notes."""
    those = {name: each for name, each in found.items() if each is not None and each.kind == kind}
    numbers = ", ".join(str(1 + DEVIATIONS.index(each)) for each in dict.fromkeys(those.values()))
    if len(those) == len(found):
        return f"{kind} ({numbers})"
    groups = {TRAINING: "training", QUANTITIES[len(TRAINING) :]: "predictions"}
    names = groups.get(tuple(those), ", ".join(those))
    return f"{names} {kind} ({numbers})"
