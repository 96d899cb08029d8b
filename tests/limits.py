"""The settings for many rows, at a few hundred: what is above the limits of dense algebra is tested at less cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from linear_operator.settings import max_cholesky_size, min_preconditioning_size

from gpytorch_partition import settings


@contextmanager
def many_rows(limit: int = 500) -> Iterator[None]:
    """Inside `iterative()`, whose limit of 2,000 rows is this one, with a preconditioner from here on as well."""
    with settings.iterative(), max_cholesky_size(limit), min_preconditioning_size(limit):
        yield
