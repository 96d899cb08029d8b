"""Random generators of the solvers, independent of the global random state."""

from __future__ import annotations

import torch

# Users' seeds are small numbers, and data drawn after torch.manual_seed(0) is common: probe vectors from the same
# stream would equal the data, and a sketch from the same stream as the probes would not be independent of them.
_STREAMS = {"probes": 0x5DEECE66D1B54A35, "sketch": 0x2545F4914F6CDD1D, "samples": 0x369DEA0F31A53F85}


def solver_generator(seed: int, stream: str, device: torch.device) -> torch.Generator:
    """
    A generator for one of the solvers' streams, unrelated to the global one and to the other streams.

    :param seed: Any integer.
    :param stream: `"probes"`, `"sketch"` or `"samples"`.
    :param device: The device on which to draw.

    Example:
        >>> a, b = (solver_generator(0, s, torch.device("cpu")) for s in ("probes", "sketch"))
        >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
        False
    """
    return torch.Generator(device).manual_seed((_STREAMS[stream] + seed) % 2**63)
