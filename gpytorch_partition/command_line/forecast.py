"""How long a fit is expected to take."""

from __future__ import annotations

# Of the default model, on two cores: least squares of `python -m tests.benchmarks default_cost`, 250 to 10,000 rows.
_SECONDS, _SECONDS_PER_ROW = 3.0, 0.0033


def forecast(kernel: str, num_rows: int) -> float:
    """
    Seconds, or 0 where nobody waits for long.

    :param kernel: Name of the kernel.
    :param num_rows: Number of training rows.

    Example:
        >>> forecast("auto", 10_000), forecast("forest", 10_000)
        (36.0, 0.0)
    """
    return _SECONDS + _SECONDS_PER_ROW * num_rows if kernel == "auto" else 0.0
