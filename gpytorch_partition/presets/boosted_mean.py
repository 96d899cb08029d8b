"""Boosted trees whose predictions are averaged with posterior means, where held-out rows are then predicted better."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Tensor

from gpytorch_partition.inputs.numbers import ShapedBuffers
from gpytorch_partition.inputs.training_rows import decode_missing
from gpytorch_partition.kernels import EncodedKernel, RandomForestKernel, StandardizedKernel
from gpytorch_partition.linalg.parallel import idle_threads, threads_for
from gpytorch_partition.partitions.ensembles.scikit_learn import histogram_values
from gpytorch_partition.partitions.forest import ForestPartition
from gpytorch_partition.presets.data import PartInputs, TrainingData
from gpytorch_partition.presets.mean_error import mean_error_of
from gpytorch_partition.presets.options import Setup
from gpytorch_partition.presets.weights_and_noise import Choice
from gpytorch_partition.progress import stage
from gpytorch_partition.tables import NumberView
from gpytorch_partition.training.predictive_density import FIXED, fit_factors

_TREES: dict[str, Any] = {"learning_rate": 0.03, "min_samples_leaf": 3, "max_features": 0.5}
_FEWEST_LEAVES, _MOST_LEAVES = 15, 63  # of a tree
_LEAVES = 0.6  # of a large tree, for the root of the number of rows
_FIRST_ROUNDS = 200  # after which trees without a share end: on airfoil they gained nothing by 100, 48 nats by 800
_NUM_COMPARED = 2  # numbers of rounds, each twice the one before, after which the better kind of trees is known
_LEAST_DECREASE = 0.01  # of squared errors, by twice as many rounds, without which trees end
_STEP = 20  # between numbers of rounds that are compared
_SHARES = [0.05 * number for number in range(20)]  # of trees in predictions: variances are those of the other share
_DECAY = 2.0  # of the share, for a standard deviation beyond the range of a column
_MOST_LOG_FACTOR = 3.0  # of all variances
_MOST_ROWS = 100_000  # rows that trees are grown on
_ROWS_AT_ONCE = 10_000  # of which the leaves in all trees are held, 128 MB of 3,200 trees
_HELD_OUT_SHARE = 0.2  # of all rows that are left out at a time, at most
_NUM_VALUES = 2  # rounds and share, chosen by the judging rows


class BoostedMean(ShapedBuffers):
    r"""
    Predict targets by boosted trees: a constant plus the values of a point's leaves, one in each tree.

    :class:`.DefaultGP` has it where a choice has a share of boosted trees. Trees are constant beyond the training rows,
    where a process follows trends and knows less, so the share falls there as :math:`e^{-2 d}`, d being the largest
    distance from the range of a column, in its standard deviations.

    :param kernel: The trees' kernel of points in users' units, whose clusters are leaves.
    :param leaf_values: The value of each leaf, in units of the model's targets. (Default: None, for `load_state_dict`,
        as for all others.)
    :param ends: The least and the largest value of each column (`2 x D`), standardized; NaN where there are none.
    :param share: The share of the trees in a model's predictions.
    """

    leaf_values: Tensor
    ends: Tensor
    constant: Tensor
    share: Tensor

    def __init__(
        self,
        kernel: StandardizedKernel,
        leaf_values: Tensor | None = None,
        ends: Tensor | None = None,
        share: float = 0.0,
    ) -> None:
        super().__init__()
        self.kernel = kernel
        self.register_buffer("leaf_values", torch.empty(0).double() if leaf_values is None else leaf_values)
        self.register_buffer("ends", torch.empty(2, 0).double() if ends is None else ends)
        self.register_buffer("constant", torch.tensor(0.0, dtype=torch.float64))
        self.register_buffer("share", torch.tensor(share, dtype=torch.float64))

    @classmethod
    def unfitted(cls, has_view: bool) -> BoostedMean:
        """Return one for `load_state_dict`; rows with categories or missing cells are seen through a view."""
        trees = RandomForestKernel(heights="leaf")
        return cls(StandardizedKernel(EncodedKernel(trees) if has_view else trees))

    def forward(self, x: Tensor) -> Tensor:
        """Return predictions (`*batch x N`) at points (`*batch x N x D`)."""
        blocks = x.reshape(-1, x.shape[-1]).split(_ROWS_AT_ONCE)
        return self.constant.to(x) + torch.cat([self._leaf_sums(block) for block in blocks]).view(x.shape[:-1])

    def _leaf_sums(self, x: Tensor) -> Tensor:
        kernel: Any = self.kernel
        while not isinstance(kernel, RandomForestKernel):
            x, kernel = kernel.seen(x), kernel.base_kernel
        leaves, _ = kernel.partition.incidences(x, x)
        return leaves.row_values(self.leaf_values.to(x).unsqueeze(-1)).squeeze(-1)

    def share_at(self, x: Tensor) -> Tensor:
        """Return the share of the trees (`*batch x N`) in predictions at points (`*batch x N x D`)."""
        points, (low, high) = decode_missing(self.kernel.standardized(x)), self.ends.to(x)
        beyond = torch.maximum(low - points, points - high).nan_to_num(0.0).clamp_min(0.0).amax(-1)
        return self.share.to(x) * (-_DECAY * beyond).exp()


def boosted_mean(choice: Choice, data: TrainingData, setup: Setup) -> BoostedMean | None:
    """Return boosted trees of all rows, for predictions in units of the targets; None where a choice has none."""
    if not choice.boosted_share:
        return None
    inputs, view = _seen(PartInputs.of(data, setup), choice.boosts_large_trees)
    leaves = _num_leaves(len(data.y), choice.boosts_large_trees)
    with threads_for(0):
        boosting = _fitted(_boosting(setup, leaves, max_iter=choice.boosting_rounds), inputs)
    trees = RandomForestKernel(heights="leaf")
    trees.partition = partition = ForestPartition(boosting)
    values = torch.from_numpy(histogram_values(boosting))[partition.layout.leaf_nodes]
    kernel = StandardizedKernel(trees if view is None else EncodedKernel(trees, view), data.columns)
    columns = [column[~column.isnan()] for column in data.x.mT]
    ends = [[column.min(), column.max()] if len(column) else [math.nan] * 2 for column in columns]
    found = BoostedMean(kernel, float(data.unit.scale) * values, torch.tensor(ends).double().mT, choice.boosted_share)
    first = torch.from_numpy(boosting.predict((data.x[:1] if view is None else view(data.x[:1])).numpy()))
    found.constant += (data.unit.undo(first) - found(data.rows[:1]))[0]
    return found.requires_grad_(False)


def with_boosted_mean(choice: Choice, data: TrainingData, setup: Setup) -> Choice:
    """
    Return the choice with a share of boosted trees in its predictions, if held-out rows gain 3 nats by it.

    A Gaussian process and boosted trees err in different ways, so that a weighted average of their predictions has
    smaller errors than both (stacked regressions, Breiman 1996). The process keeps its targets, and its variances up to
    a factor. Trees predict each row that judged the weights without having seen it. The number of rounds minimizes the
    squared errors of these predictions; the share maximizes the density of averages, each with its best factor. Trees
    grow as long as twice as many have clearly smaller errors; of 200 rounds at most, 400 and so on, the ones of the
    largest gain are taken.

    There are two kinds of trees. The kind that gains more by 400 rounds grows on. Small ones have 15 leaves, and see
    categories of many levels as mean targets. Large ones have leaves as the root of the number of rows, 63 at most, and
    see all categories as codes. They are not tried on tables of numbers where they would have fewer than 30 leaves.
    """
    if not setup.options.least_boosting_gain < math.inf:
        return choice
    kinds = [False, True] if data.has_view or _num_leaves(len(data.y), True) >= 2 * _FEWEST_LEAVES else [False]
    with stage("boosted trees"):
        growing = [_growing(choice, data, setup, are_large) for are_large in kinds]
        first = [_best(islice(trees, _NUM_COMPARED)) for trees in growing]
        kind = max(range(len(kinds)), key=lambda place: first[place][1])
        best, gain = _best([first[kind], *growing[kind]])
    return best if gain > setup.options.least_boosting_gain else choice


def _best(found: Iterable[tuple[Choice, float]]) -> tuple[Choice, float]:
    return max(found, key=lambda pair: pair[1])


def _num_leaves(num_rows: int, are_large: bool) -> int:
    return int(np.clip(_LEAVES * math.sqrt(num_rows), _FEWEST_LEAVES, _MOST_LEAVES)) if are_large else _FEWEST_LEAVES


def _growing(choice: Choice, data: TrainingData, setup: Setup, are_large: bool) -> Iterator[tuple[Choice, float]]:
    """Yield the choice with the best share of trees of a kind, and the nats that it gains, for more and more rounds."""
    for errors in _unseen_errors(choice.held_out.rows, data, setup, are_large):
        found, gain = _best_average(choice, errors)
        yield replace(found, boosts_large_trees=are_large), gain
        if not gain > 0:
            return


def _best_average(choice: Choice, errors: Tensor) -> tuple[Choice, float]:
    """Return the choice with the best share of trees, and the nats that it gains."""
    num_rounds = _num_rounds(errors)
    best = errors[num_rounds // _STEP - 1]
    factors = [_factor(_averaged(choice, share, best, 1.0)) for share in _SHARES]
    found = [_averaged(choice, share, best, factor / factors[0]) for share, factor in zip(_SHARES, factors)]
    densities = [float(each.log_densities().sum()) for each in found]
    gain = max(densities) - densities[0]
    log_density = choice.log_density + (gain - _NUM_VALUES) / len(choice.held_out.rows)
    return replace(found[densities.index(max(densities))], boosting_rounds=num_rounds, log_density=log_density), gain


def _averaged(choice: Choice, share: float, errors: Tensor, factor: float) -> Choice:
    rows = choice.held_out.scaled(factor)
    rows = replace(rows, errors=(1 - share) * rows.errors + share * errors)
    offset = mean_error_of(rows.errors, choice.deviations) if len(choice.deviations) else 0.0
    return replace(choice.scaled(factor), held_out=rows, boosted_share=share, offset=offset)


def _factor(choice: Choice) -> float:
    rows, noise = choice.held_out, choice.noise_scales
    bounds = [(-_MOST_LOG_FACTOR, _MOST_LOG_FACTOR), FIXED, FIXED]
    (factor, *_), _ = fit_factors(rows.errors, rows.variances, noise, bounds, df=choice.df)
    return factor


def _unseen_errors(rows: Tensor, data: TrainingData, setup: Setup, are_large: bool) -> Iterator[Tensor]:
    """Yield errors of rows (`numbers of rounds x n`) by trees of other rows, standardized, for more and more rounds."""
    setup = setup.again()
    num_parts = max(2, math.ceil(len(rows) / (_HELD_OUT_SHARE * len(data.y))))
    parts = np.array_split(setup.random.permutation(len(rows)), num_parts)
    trials = [_Trial.of(rows[places], data, setup, are_large) for places in parts]
    order = torch.from_numpy(np.concatenate(parts)).argsort()
    most_rounds = setup.options.most_boosting_rounds
    num_rounds = min(_FIRST_ROUNDS, most_rounds)
    while True:
        with threads_for(0), idle_threads() as submit:  # trees of few leaves, where OpenMP's threads would wait
            errors = [submit(trial.errors, num_rounds) for trial in trials]
        found = torch.cat([each.result() for each in errors], 1)[:, order]
        yield found
        squares = found.square().mean(1)
        has_ended = squares.min() > (1 - _LEAST_DECREASE) * squares[: max(1, len(squares) // 2)].min()
        if has_ended or num_rounds == most_rounds:
            return
        num_rounds = min(2 * num_rounds, most_rounds)


def _num_rounds(errors: Tensor) -> int:
    return _STEP * (1 + int(errors.square().mean(1).argmin()))


class _Trial(NamedTuple):
    """Boosted trees that can grow further, and the rows that they have not seen."""

    boosting: HistGradientBoostingRegressor
    inputs: PartInputs
    x: Tensor  # (n, D) unseen rows
    y: Tensor  # (n,)

    @classmethod
    def of(cls, held_out: Tensor, data: TrainingData, setup: Setup, are_large: bool) -> _Trial:
        kept = np.setdiff1d(np.arange(len(data.y)), held_out)
        inputs, view = _seen(PartInputs.of(data, setup).of_rows(kept), are_large)
        unseen, leaves = data.columns.apply(data.new_rows[held_out]), _num_leaves(len(data.y), are_large)
        unseen = unseen if view is None else view(unseen)
        return cls(_boosting(setup, leaves, warm_start=True), inputs, unseen, data.y[held_out])

    def errors(self, num_rounds: int) -> Tensor:
        """Return errors of the unseen rows (`num_rounds / step x n`)."""
        self.boosting.set_params(max_iter=num_rounds)
        staged = [*_fitted(self.boosting, self.inputs).staged_predict(self.x.numpy())]
        return self.y - torch.from_numpy(np.stack(staged[_STEP - 1 :: _STEP]))


def _boosting(setup: Setup, num_leaves: int, **options: Any) -> HistGradientBoostingRegressor:
    options |= {"max_leaf_nodes": num_leaves, "random_state": setup.random.randint(2**31)}
    return HistGradientBoostingRegressor(early_stopping=False, **_TREES, **options)


def _seen(inputs: PartInputs, as_codes: bool) -> tuple[PartInputs, NumberView | None]:
    """Return the rows on which trees are grown, and the view that they see; None for the rows themselves."""
    if len(inputs.x) > _MOST_ROWS:
        inputs = inputs.of_rows(inputs.setup.random.permutation(len(inputs.x))[:_MOST_ROWS])
    if as_codes or not inputs.has_view:
        return inputs, None
    view = inputs.view()
    return inputs.seen(view), view


def _fitted(boosting: HistGradientBoostingRegressor, inputs: PartInputs) -> HistGradientBoostingRegressor:
    weights = None if inputs.tree_weights is None else inputs.tree_weights.numpy()
    x = inputs.grown_x.numpy()
    x = np.where(np.isnan(x).all(0), 0.0, x)  # scikit-learn needs a known cell in each column
    return boosting.fit(x, inputs.y.numpy(), sample_weight=weights)
