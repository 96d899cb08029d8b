"""Heteroskedastic Gaussian noise, whose logarithm a forest predicts that was grown on squared residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.likelihoods.noise_models import Noise
from linear_operator.operators import DiagLinearOperator
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from gpytorch_partition.descriptions import without_values
from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.inputs.training_rows import checked_rows, decode_missing
from gpytorch_partition.likelihoods.noise_likelihoods import NoiseLikelihood, inputs_of
from gpytorch_partition.partitions.forest import ForestPartition

# Added to squared residuals, in units of their mean: logarithms of the smallest carry no information about the noise.
_FLOOR = 0.02
_MAX_SAMPLES = 20_000  # rows of each tree
_MAX_EXPONENT = 3.0


class ForestNoise(Noise):
    r"""
    Give noise the variance :math:`\sigma^2(x) = \sigma^2 \exp(b\, z(x))`, which a forest predicts.

    :class:`ForestNoiseGaussianLikelihood` uses it. Construct it yourself as the base noise of another likelihood here.

    z(x) is a forest's prediction of the log squared residuals, less their mean: one product with the one-hot rows of
    its leaves gives all variances in :math:`O(N m)`. Two parameters are trained: `noise`, :math:`\sigma^2`, and
    `exponent`, b between 0 (the noise is constant) and 3; b = 1 is the forest's own prediction.

    :param train_x: `N x D` rows; NaN is a missing value. (Default: None, an unfitted noise for `load_state_dict`.)
    :param residuals: `N` *out-of-sample* residuals, of a cross-validation or out of bag; only relative sizes matter.
    :param noise_constraint: Constraint of `noise`. (Default: greater than 1e-4.)
    :param options: `num_trees`, `min_samples_leaf`, `random_state` and `n_jobs` of :func:`grow_residual_forest`.
    :raises ValueError: If rows, residuals or an option cannot be used; in calls, without inputs.
    """

    leaf_values: Tensor  # (p,) mean of the log squared residuals in each leaf, over m

    def __init__(
        self,
        train_x: Tensor | None = None,
        residuals: Tensor | None = None,
        *,
        noise_constraint: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.register_parameter("raw_noise", torch.nn.Parameter(torch.zeros(1)))
        self.register_parameter("raw_exponent", torch.nn.Parameter(torch.zeros(1)))
        self.register_constraint("raw_noise", noise_constraint or GreaterThan(1e-4))
        self.register_constraint("raw_exponent", Interval(0.0, _MAX_EXPONENT, initial_value=1.0))
        self.register_buffer("leaf_values", torch.empty(0))
        self.partition = ForestPartition()
        if (train_x is None) != (residuals is None):
            raise ValueError("expected both rows and residuals, or neither for an unfitted noise, got one of them")
        if train_x is not None and residuals is not None:
            self._set_forest(grow_residual_forest(train_x, residuals, **options))

    @classmethod
    def from_forest(cls, forest: RandomForestRegressor, noise_constraint: Any = None) -> ForestNoise:
        """Return the noise that a forest of :func:`grow_residual_forest` predicts; other arguments as of the class."""
        noise = cls(noise_constraint=noise_constraint)
        noise._set_forest(forest)
        return noise

    def extra_repr(self) -> str:
        return without_values(self) or f"level {self.noise.item():.4g}, exponent {self.exponent.item():.4g}"

    def _set_forest(self, forest: RandomForestRegressor) -> None:
        self.partition = ForestPartition(forest)
        values = np.concatenate([tree.tree_.value[:, 0, 0] for tree in forest.estimators_])
        self.leaf_values = torch.from_numpy(values)[self.partition.layout.leaf_nodes].float() / len(forest)

    @property
    def noise(self) -> Tensor:
        """Return the level of the noise, its variance where z(x) is 0."""
        return self.raw_noise_constraint.transform(self.raw_noise)

    @noise.setter
    def noise(self, value: Tensor | float) -> None:
        self._set("noise", value)

    @property
    def exponent(self) -> Tensor:
        """Return the exponent b: 0 for a constant noise, 1 for the forest's own prediction."""
        return self.raw_exponent_constraint.transform(self.raw_exponent)

    @exponent.setter
    def exponent(self, value: Tensor | float) -> None:
        self._set("exponent", value)

    def _set(self, name: str, value: Tensor | float) -> None:
        raw = getattr(self, f"raw_{name}")
        constraint = getattr(self, f"raw_{name}_constraint")
        self.initialize(**{f"raw_{name}": constraint.inverse_transform(torch.as_tensor(value).to(raw))})

    def log_ratio(self, x: Tensor) -> Tensor:
        """Return z(x) (`*batch x N`), the logarithm of the noise at points over its level, for an exponent of 1."""
        rows, _ = self.partition.incidences(x, x)
        return rows.row_values(self.leaf_values.to(x).unsqueeze(-1)).squeeze(-1)

    def forward(self, *params: Any, shape: Any = None, **kwargs: Any) -> DiagLinearOperator:
        """Return the noise's covariance at the inputs given (a tensor `*batch x N x D`, or a list of one)."""
        x = inputs_of(params)
        return DiagLinearOperator(self.noise.to(x) * (self.exponent.to(x) * self.log_ratio(x)).exp())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(prefix + "leaf_values")
        if saved is not None:
            self.leaf_values = self.leaf_values.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


class ForestNoiseGaussianLikelihood(NoiseLikelihood):
    r"""
    Observe a function with Gaussian noise whose variance a forest predicts, :math:`\sigma^2 \exp(b\, z(x))`.

    Use it when some rows are noisier than others, and columns predict which. Residuals must be out of sample, since a
    flexible model's residuals at its own training rows are too small. Level and exponent are trained with the model.

    Like GPyTorch's others, it needs the inputs: `likelihood(model(x), x)`, and `mll(model(train_x), train_y, train_x)`.

    All parameters and errors are those of :class:`ForestNoise`.

    Example:
        >>> from gpytorch.distributions import MultivariateNormal
        >>> x = torch.linspace(0, 1, 400).unsqueeze(-1)
        >>> residuals = (0.1 + x.squeeze(-1)) * torch.randn(400, generator=torch.Generator().manual_seed(0))
        >>> likelihood = ForestNoiseGaussianLikelihood(x, residuals, random_state=0)
        >>> prior = MultivariateNormal(torch.zeros(2), torch.eye(2))
        >>> low, high = (likelihood(prior, torch.tensor([[0.1], [0.9]])).variance - 1).tolist()
        >>> high > 5 * low
        True
    """

    def __init__(self, train_x: Tensor | None = None, residuals: Tensor | None = None, **options: Any) -> None:
        super().__init__(ForestNoise(train_x, residuals, **options))

    @property
    def exponent(self) -> Tensor:
        return self.noise_covar.exponent

    @exponent.setter
    def exponent(self, value: Tensor | float) -> None:
        self.noise_covar.exponent = value


def grow_residual_forest(
    x: Tensor,
    residuals: Tensor,
    *,
    num_trees: int = 100,
    min_samples_leaf: int | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> RandomForestRegressor:
    """
    Return a forest of scikit-learn that predicts the logarithms of squared residuals, less their mean.

    Call it to look at the forest before it becomes a noise (:meth:`ForestNoise.from_forest`), or for its out-of-bag
    predictions, `oob_prediction_`. Its leaves are large, since single residuals carry little information. Each tree is
    grown on at most 20,000 rows. Rows, residuals and errors are those of :class:`ForestNoise`.

    :param num_trees: Number m of trees. (Default: 100.)
    :param min_samples_leaf: Fewest rows in a leaf. (Default: None, half the square root of N, but at least 5.)
    :param random_state: Seed or `RandomState`; `None` is a fresh one, never NumPy's global one.
    :param n_jobs: Trees grown at a time, as in scikit-learn. (Default: None, one.)

    Example:
        >>> x = torch.linspace(0, 1, 400).unsqueeze(-1)
        >>> residuals = (0.1 + x.squeeze(-1)) * torch.randn(400, generator=torch.Generator().manual_seed(0))
        >>> low, high = grow_residual_forest(x, residuals, random_state=0).predict([[0.1], [0.9]])
        >>> bool(high > low + 1)
        True
    """
    rows = decode_missing(checked_rows(x, "ForestNoise", missing=True)).cpu().numpy()
    squares = _checked_residuals(residuals, len(rows)) ** 2
    logs = np.log(squares / squares.mean() + _FLOOR)
    forest = RandomForestRegressor(
        num_trees,
        min_samples_leaf=max(5, int(len(rows) ** 0.5 / 2)) if min_samples_leaf is None else min_samples_leaf,
        max_features=0.5,
        max_samples=min(len(rows), _MAX_SAMPLES),
        oob_score=True,
        random_state=random_state_of(random_state),
        n_jobs=n_jobs,
    )
    return forest.fit(rows, logs - logs.mean())


def _checked_residuals(residuals: Any, num_rows: int) -> np.ndarray:
    try:
        given = torch.is_tensor(residuals)
        values = residuals.detach().cpu().double().numpy() if given else np.asarray(residuals, float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected {num_rows} finite residuals, one per row, got {residuals!r}") from error
    if values.shape != (num_rows,) or not np.isfinite(values).all():
        got = f"shape {values.shape}" if values.shape != (num_rows,) else "NaN or infinity"
        raise ValueError(f"expected {num_rows} finite residuals, one per row, got {got}")
    if not values.any():
        raise ValueError("expected residuals that are not all 0, got zeros: give residuals that are out of sample")
    return values
