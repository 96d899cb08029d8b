"""Random small tables of the kinds that break numerical methods, and what a model of one must do without a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.presets import Options
from tests.few_trees import few_trees

# Of fewer trees for the noise, some rows are in all trees, of which scikit-learn warns.
SMALL = few_trees(8, num_folds=3, num_noise_trees=50, num_calibrated_noise_trees=50)
_MOST_ROWS = 400

Random = np.random.RandomState


class Table(NamedTuple):
    """Training rows, new ones, and the names of what was done to make them."""

    kinds: tuple[str, ...]
    X: pd.DataFrame | np.ndarray
    y: np.ndarray
    new: pd.DataFrame | np.ndarray
    weights: np.ndarray | None


def random_table(seed: int, num_rows: int | None = None) -> Table:
    random = Random(seed)
    rows = num_rows or int(np.exp(random.uniform(np.log(2), np.log(_MOST_ROWS))))
    kinds = [_name(random, _KNOWN), *(_name(random, _COLUMNS) for _ in range(int(12 * random.rand() ** 2)))]
    columns: list[np.ndarray] = []
    for kind in kinds:
        columns.append(_COLUMNS[kind](random, rows, columns))
    target, change = _name(random, _TARGETS), _name(random, _ROWS)
    y = _TARGETS[target](random, _numbers(columns, rows))
    X = pd.DataFrame({f"{number} {kind}": column for number, (kind, column) in enumerate(zip(kinds, columns))})
    X, y = _ROWS[change](random, X, y)
    new = X.iloc[random.randint(len(X), size=20)].reset_index(drop=True)
    for name in new.select_dtypes("float"):
        new[name] += random.choice([0, 1e-6, 0.1, 1]) * new[name].abs().mean() * random.randn(len(new))
    weights = random.choice([1e-6, 0.5, 1, 1e3], len(X)) if random.rand() < 0.15 else None
    if set(X.dtypes) == {np.dtype(float)} and random.rand() < 0.5:
        X, new = X.to_numpy(), new.to_numpy()
    return Table((*sorted(set(kinds)), target, change), X, y, new, weights)


def _name(random: Random, kinds: Iterable[str]) -> str:
    return str(random.choice(list(kinds)))


def _numbers(columns: list[np.ndarray], rows: int) -> np.ndarray:
    found = [column for column in columns if column.dtype == float and not np.isnan(column).any()]
    return np.stack(found, 1) if found else np.arange(rows, dtype=float)[:, None]


def _known(random: Random, rows: int, columns: list[np.ndarray]) -> np.ndarray:
    numbers = _numbers(columns, rows)
    return numbers[:, random.randint(numbers.shape[1])]


def _texts(random: Random, rows: int, num_levels: int) -> np.ndarray:
    return np.array([f"level {number}" for number in random.randint(num_levels, size=rows)], dtype=object)


def _missing(random: Random, rows: int, columns: list[np.ndarray]) -> np.ndarray:
    return np.where(random.rand(rows) < random.choice([0.1, 0.9, 1]), np.nan, random.randn(rows))


def _dates(random: Random, rows: int, columns: list[np.ndarray]) -> np.ndarray:
    return np.datetime64("2020-01-01", "s") + random.randint(10**8, size=rows).astype("timedelta64[s]")


_COLUMNS: dict[str, Callable[[Random, int, list[np.ndarray]], np.ndarray]] = {
    "normal": lambda random, rows, _: random.randn(rows),
    "uniform": lambda random, rows, _: random.rand(rows),
    "constant": lambda random, rows, _: np.full(rows, random.choice([0, 1, 1e12, 0.1])),
    "two values": lambda random, rows, _: random.randint(2, size=rows).astype(float),
    "integers": lambda random, rows, _: random.randint(-3, 4, size=rows),
    "booleans": lambda random, rows, _: random.rand(rows) < 0.3,
    "zeros": lambda random, rows, _: np.where(random.rand(rows) < 0.95, 0.0, random.randn(rows)),
    "Cauchy": lambda random, rows, _: random.standard_cauchy(rows).clip(-1e12, 1e12),
    "powers": lambda random, rows, _: 10.0 ** random.uniform(-12, 12, rows),
    "tiny unit": lambda random, rows, _: 10.0 ** random.uniform(-90, -20) * random.randn(rows),
    "large unit": lambda random, rows, _: 10.0 ** random.uniform(10, 30) * random.randn(rows),
    "far from zero": lambda random, rows, _: 1e9 + random.randn(rows),
    "rounding": lambda random, rows, _: 1 + 1e-15 * random.randint(9, size=rows),
    "copy": lambda random, rows, columns: _known(random, rows, columns).copy(),
    "collinear": lambda random, rows, columns: _numbers(columns, rows) @ random.randn(_numbers(columns, rows).shape[1]),
    "near copy": lambda random, rows, columns: (
        _known(random, rows, columns) * (1 + 10.0 ** random.uniform(-9, -3) * random.randn(rows))
    ),
    "missing": _missing,
    "few levels": lambda random, rows, _: _texts(random, rows, 3),
    "many levels": lambda random, rows, _: _texts(random, rows, rows),
    "ids": lambda random, rows, _: np.array([f"row {number}" for number in random.permutation(rows)], dtype=object),
    "missing texts": lambda random, rows, _: np.where(random.rand(rows) < 0.5, None, _texts(random, rows, 4)),
    "dates": _dates,
}
_KNOWN = [kind for kind in _COLUMNS if "missing" not in kind and kind != "ids"]  # a table of the others is refused


def _function(random: Random, numbers: np.ndarray) -> np.ndarray:
    scaled = (numbers - numbers.mean(0)) / np.where(numbers.std(0) > 0, numbers.std(0), 1)
    return np.sin(2 * scaled @ random.randn(scaled.shape[1]))


def _noisy(random: Random, numbers: np.ndarray) -> np.ndarray:
    return _function(random, numbers) + 0.1 * random.randn(len(numbers))


_TARGETS: dict[str, Callable[[Random, np.ndarray], np.ndarray]] = {
    "a function": _function,
    "a noisy function": _noisy,
    "noise": lambda random, numbers: random.randn(len(numbers)),
    "a column": lambda random, numbers: numbers[:, random.randint(numbers.shape[1])].copy(),
    "a sum of columns": lambda random, numbers: numbers.sum(1),
    "a constant": lambda random, numbers: np.full(len(numbers), random.choice([0, 1.5, -1e9])),
    "one that differs": lambda random, numbers: (np.arange(len(numbers)) == 0).astype(float),
    "two values": lambda random, numbers: random.randint(2, size=len(numbers)).astype(float),
    "mostly zeros": lambda random, numbers: np.where(random.rand(len(numbers)) < 0.9, 0, random.randn(len(numbers))),
    "heavy tails": lambda random, numbers: random.standard_cauchy(len(numbers)).clip(-1e12, 1e12),
    "outliers": lambda random, numbers: (
        _noisy(random, numbers) + np.where(random.rand(len(numbers)) < 0.1, 10.0 ** random.uniform(0, 12), 0)
    ),
    "powers": lambda random, numbers: 10.0 ** random.uniform(-12, 12, len(numbers)),
    "a tiny unit": lambda random, numbers: 1e-90 * _noisy(random, numbers),
    "a large unit": lambda random, numbers: 1e30 * _noisy(random, numbers),
    "far from zero": lambda random, numbers: 1e9 + _noisy(random, numbers),
    "counts": lambda random, numbers: random.poisson(1, len(numbers)),
    "steps": lambda random, numbers: np.round(_noisy(random, numbers), 1),
}


def _repeated(random: Random, X: pd.DataFrame, y: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    rows = random.randint(max(1, len(X) // 3), size=len(X))
    return X.iloc[rows].reset_index(drop=True), y[rows]


def _with_other_targets(random: Random, X: pd.DataFrame, y: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    return _repeated(random, X, y)[0], y


def _nearly_repeated(random: Random, X: pd.DataFrame, y: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    X, y = _repeated(random, X, y)
    distance = 10.0 ** random.uniform(-9, -3)
    for name in X.select_dtypes("float"):
        X[name] *= 1 + distance * random.randn(len(X))
    return X, y


_ROWS: dict[str, Callable[[Random, pd.DataFrame, np.ndarray], tuple[pd.DataFrame, np.ndarray]]] = {
    "rows as they are": lambda random, X, y: (X, y),
    "repeated rows": _repeated,
    "repeated rows of other targets": _with_other_targets,
    "near-duplicates": _nearly_repeated,
}


def check(table: Table, options: Options | None = SMALL) -> PartitionGPRegressor:
    """Fit a model and ask it; the warnings of this package point here, those of libraries to where they come from."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PartitionGPRegressor(random_state=0, options=options, verbose=0)
        model.fit(table.X, table.y, sample_weight=table.weights)
        for X in (table.X, table.new):
            mean, deviation, ends = model.predict(X, return_std=True, quantiles=(0.05, 0.95))
            _check_predictions(mean, deviation, ends)
            noise = model._fitted.noise_of(model._fitted.points(model._checked_rows(X)))
            assert (deviation**2 >= 0.99 * noise).all()
        assert str(model.summary())
        judgement = model.judge(table.X, table.y)
        assert all(np.isfinite(values).all() for values in (judgement.log_density, judgement.crps))
    foreign = [warning for warning in caught if warning.filename != __file__]
    assert not foreign, [f"{each.filename}:{each.lineno}: {each.message}" for each in foreign]
    return model


def _check_predictions(mean: np.ndarray, deviation: np.ndarray, ends: np.ndarray) -> None:
    assert np.isfinite(mean).all()
    assert np.isfinite(deviation).all()
    assert (deviation > 0).all()
    assert np.isfinite(ends).all()
    assert (ends[:, 0] <= ends[:, 1]).all()
