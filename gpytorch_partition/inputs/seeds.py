"""Random states from seeds, as in scikit-learn, but never NumPy's global random state."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state


def random_state_of(seed: int | np.random.RandomState | None) -> np.random.RandomState:
    """
    Return the random state for a seed, as every parameter `random_state` of this package is read.

    :param seed: An int, a :class:`numpy.random.RandomState` (used itself), or None for a fresh one, seeded by the
        operating system.
    :raises ValueError: If it is anything else.

    Example:
        >>> int(random_state_of(3).randint(100)) == int(random_state_of(3).randint(100))
        True
    """
    try:
        return np.random.RandomState() if seed is None else check_random_state(seed)
    except ValueError as error:
        raise ValueError(
            f"expected a random_state from 0 to 2**32 - 1, a RandomState or None: {seed!r} cannot be used to seed"
        ) from error
