"""Products with tall, thin matrices, in the memory order that is faster on a CPU."""

from __future__ import annotations

from torch import Tensor


def transposed_product(tall: Tensor, values: Tensor) -> Tensor:
    r"""
    Return :math:`R^\top V` (`*batch x k x t`); for a dozen columns, 2 to 4 times as fast as `tall.mT @ values`.

    :param tall: `*batch x N x k` R.
    :param values: `*batch x N x t` V.
    """
    return (values.mT @ tall).mT if values.shape[-1] <= tall.shape[-1] else tall.mT @ values


def tall_product(tall: Tensor, weights: Tensor) -> Tensor:
    r"""
    Return :math:`R W` (`*batch x N x t`); for a dozen columns, 2 times as fast as `tall @ weights`.

    :param tall: `*batch x N x k` R.
    :param weights: `*batch x k x t` W.
    """
    return (weights.mT @ tall.mT).mT.contiguous() if weights.shape[-1] <= tall.shape[-1] else tall @ weights
