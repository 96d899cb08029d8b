"""Random states from seeds, as scikit-learn takes them, but never NumPy's global random state."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state


def random_state_of(seed: int | np.random.RandomState | None) -> np.random.RandomState:
    """
    The random state for a seed: the meaning of every parameter `random_state` of this package.

    None is a fresh state, seeded by the operating system; NumPy's global state is neither read nor changed.

    :param seed: An int, a :class:`numpy.random.RandomState` (used as it is), or None.
    :raises ValueError: If it is anything else.

    Example:
        >>> int(random_state_of(3).randint(100)) == int(random_state_of(3).randint(100))
        True
    """
    return np.random.RandomState() if seed is None else check_random_state(seed)
