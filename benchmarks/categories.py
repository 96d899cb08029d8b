"""Tables with categories: sets of levels against codes and one-hot columns, for forests and the default model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import OneHotEncoder

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.presets import Options as ModelOptions

from .measure import timed
from .problems import read_arrays
from .report import Options, Row, Table

_MOST_COLUMNS = 20  # one-hot columns of a category; rarer levels share one
_INTERVAL = 1.645  # standard deviations on either side, 90 %
_SMALL = ModelOptions(num_trees=10, num_slope_trees=5, num_boosted_trees=5, num_shallow_boosted_trees=5)


class Problem(NamedTuple):
    """A table whose categories are text, and targets."""

    table: pd.DataFrame
    y: np.ndarray


def categories(options: Options) -> Iterator[Table]:
    """Error, predictive density and coverage of every method on every problem, means of random splits."""
    num_splits, rows = options.pick(3, 1, 1), []
    for name, problem in _problems(options).items():
        for method, predict in _methods(options).items():
            found = [_scored(predict, problem, seed, options) for seed in range(num_splits)]
            scores = {score: float(np.mean([split[score] for split in found])) for score in found[0]}
            rows.append({"problem": name, "levels": _levels(problem), "method": method, **scores})
        yield Table("categories", _title(num_splits, options), rows, complete=False)
    yield Table("categories", _title(num_splits, options), rows)


def _title(num_splits: int, options: Options) -> str:
    return (
        f"Tables with categories, {_num_training(options)} training rows, {num_splits} random split(s). Sets: the "
        "table as it is; codes: categories as arbitrary numbers; one-hot: up to "
        f"{_MOST_COLUMNS} columns each. RMSE and negative log predictive density (nats) in standard deviations of the "
        "targets, and how many of the intervals of 90 % hold (of LightGBM by the residuals of five folds)"
    )


def _num_training(options: Options) -> int:
    return options.pick(1_000, 300, 60)


def _levels(problem: Problem) -> str:
    text = problem.table.select_dtypes(exclude="number")
    return ", ".join(str(text[name].nunique()) for name in text)


def _scored(predict: Callable[..., Any], problem: Problem, seed: int, options: Options) -> Row:
    order, size = np.random.RandomState(seed).permutation(len(problem.y)), _num_training(options)
    train, test = order[:size], order[size : 3 * size]
    center, scale = problem.y[train].mean(), problem.y[train].std()
    y = (problem.y - center) / scale
    (mean, std), seconds = timed(lambda: predict(problem.table.iloc[train], y[train], problem.table.iloc[test], seed))
    errors = y[test] - mean
    return {
        "RMSE": float(np.sqrt(np.mean(errors**2))),
        "density": float(-norm.logpdf(errors, scale=std).mean()),
        "coverage (%)": 100 * float(np.mean(np.abs(errors) <= _INTERVAL * std)),
        "seconds": seconds,
    }


# Methods: from training table and targets, test table and seed to means and standard deviations.


def _methods(options: Options) -> dict[str, Callable[..., Any]]:
    views = {"sets": _as_it_is, "codes": _codes, "one-hot": _one_hot}
    methods = {
        f"{kernel}, {name}": _of_kernel(kernel, view, options)
        for kernel in ("forest", "auto")
        for name, view in views.items()
    }
    return {**methods, "LightGBM, sets": _lightgbm}


def _of_kernel(kernel: str, view: Callable[..., Any], options: Options) -> Callable[..., Any]:
    def predict(table: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, seed: int) -> Any:
        rows, points = view(table, new)
        model = PartitionGPRegressor(kernel, random_state=seed, options=options.pick(None, None, _SMALL))
        return model.fit(rows, y).predict(points, return_std=True)

    return predict


def _as_it_is(table: pd.DataFrame, new: pd.DataFrame) -> tuple[Any, Any]:
    return table, new


def _codes(table: pd.DataFrame, new: pd.DataFrame) -> tuple[Any, Any]:
    """Text as the number of its place among the names of all levels."""
    both = pd.concat([table, new])
    for name in both.select_dtypes(exclude="number"):
        both[name] = both[name].astype("category").cat.codes.astype(float)
    return both[: len(table)].to_numpy(), both[len(table) :].to_numpy()


def _one_hot(table: pd.DataFrame, new: pd.DataFrame) -> tuple[Any, Any]:
    text = list(table.select_dtypes(exclude="number"))
    encoder = OneHotEncoder(max_categories=_MOST_COLUMNS, handle_unknown="ignore", sparse_output=False).fit(table[text])
    rows = [np.concatenate([part.drop(columns=text), encoder.transform(part[text])], axis=1) for part in (table, new)]
    return rows[0], rows[1]


def _lightgbm(table: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, seed: int) -> Any:
    from lightgbm import LGBMRegressor

    both = pd.concat([table, new])
    both = both.assign(**{name: both[name].astype("category") for name in both.select_dtypes(exclude="number")})
    model, rows = LGBMRegressor(random_state=seed, verbose=-1, n_jobs=1), both[: len(table)]
    residuals = y - cross_val_predict(model, rows, y, cv=5)
    mean = model.fit(rows, y).predict(both[len(table) :])
    return mean, np.full(len(new), np.sqrt(np.mean(residuals**2)))


# Problems.


def _problems(options: Options) -> dict[str, Problem]:
    number = 3 * _num_training(options)
    found = {"prices": _prices(number), "sales": _sales(number), "clients": _clients(number)}
    if options.data is not None:
        found |= {"bike": _bike(options, number), "flights": _flights(options, number)}
    return found


def _names(prefix: str, codes: np.ndarray) -> np.ndarray:
    """Text for codes, whose order says nothing."""
    order = np.random.RandomState(9).permutation(int(codes.max()) + 1)
    return np.array([f"{prefix} {order[code]}" for code in codes.astype(int)], dtype=object)


def _prices(number: int) -> Problem:
    """Houses in 400 districts of very different sizes, of five types and four conditions; 50 colors that do nothing."""
    random = np.random.RandomState(1)
    district = np.minimum(random.zipf(1.3, number) - 1, 399)
    kind, condition, age = random.randint(5, size=number), random.randint(4, size=number), 80 * random.rand(number)
    size = np.exp(0.4 * random.randn(number) + 4.4)
    y = 0.8 * np.log(size) + 0.4 * random.randn(400)[district] + np.array([0, 0.2, -0.3, 0.5, 0.1])[kind]
    y += np.array([0, 0.3, -0.2, 0.1])[condition] * (age > 30) + 0.15 * np.sin(age / 12) + 0.2 * random.randn(number)
    text = {"district": district, "kind": kind, "condition": condition, "color": random.randint(50, size=number)}
    return Problem(pd.DataFrame({"size": size, "age": age, **{n: _names(n, c) for n, c in text.items()}}), y)


def _sales(number: int) -> Problem:
    """Forty items in 150 stores on weekdays that matter by group of items."""
    random = np.random.RandomState(2)
    store, item, day = (random.randint(size, size=number) for size in (150, 40, 7))
    group, is_promoted = random.randint(3, size=40)[item], random.rand(number) < 0.2
    item_effect = 0.7 * random.randn(40)
    price = 2 * random.rand(number) + 0.3 * item_effect[item]
    y = 0.5 * random.randn(150)[store] + item_effect[item] + 0.3 * random.randn(3, 7)[group, day]
    y += is_promoted * (0.4 + 0.3 * group) - 0.5 * price + 0.25 * random.randn(number)
    table = {"store": _names("store", store), "item": _names("item", item), "day": _names("day", day)}
    return Problem(pd.DataFrame({**table, "promoted": is_promoted.astype(float), "price": price}), y)


def _clients(number: int) -> Problem:
    """As many clients as a quarter of the rows, who differ, beside three numbers."""
    random = np.random.RandomState(3)
    client, x = random.randint(number // 4, size=number), random.rand(number, 3)
    y = 0.7 * random.randn(number // 4)[client] + np.sin(6 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * random.randn(number)
    return Problem(pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "client": _names("client", client)}), y)


def _bike(options: Options, number: int) -> Problem:
    """Logarithms of hourly rentals; without the columns that the target was computed from."""
    return _shared(options, "bike", 15, {3: "season", 5: "month", 6: "hour", 8: "weekday", 10: "weather"}, number)


def _flights(options: Options, number: int) -> Problem:
    """Delays of flights; the distance stands for the route."""
    found = _shared(options, "nycflights13", 8, {0: "month", 2: "weekday", 6: "route"}, number)
    return Problem(found.table, np.clip(found.y, -60, 180))


def _shared(options: Options, name: str, num_columns: int, text: dict[int, str], number: int) -> Problem:
    assert options.data is not None
    X, y = read_arrays(options.data / f"{name}.npz")
    some = np.random.RandomState(4).permutation(len(y))[:number]
    X, y = X[some, :num_columns], y[some]
    columns = {
        text.get(column, f"x{column}"): _names(text[column], np.unique(values, return_inverse=True)[1])
        if column in text
        else values
        for column, values in enumerate(X.T)
    }
    return Problem(pd.DataFrame(columns), y)
