"""Tables with categories: sets of levels against codes and one-hot columns, for forests and the default model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import OneHotEncoder

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.presets import Options as ModelOptions

from .clock import timed
from .datasets import read_arrays, scores
from .report import Options, Row, Table, grid, measured

SMALL = ModelOptions(num_trees=10, num_slope_trees=5, num_boosted_trees=5, num_shallow_boosted_trees=5)
Problem = tuple[pd.DataFrame, np.ndarray]  # a table whose categories are text, and targets
Views = tuple[Any, Any]  # of training and test rows


def categories(options: Options) -> Iterator[Table]:
    """Score every method on every problem, with 300 training rows."""
    size = options.pick(300, 60)
    problems = _problems(options, 3 * size)

    def scored(name: str, method: str) -> Row:
        table, y = problems[name]
        order = np.random.RandomState(0).permutation(len(y))
        train, test = order[:size], order[size : 3 * size]
        y = (y - y[train].mean()) / y[train].std()
        predict = _lightgbm if method.startswith("LightGBM") else _process
        arguments = table.iloc[train], y[train], table.iloc[test], method, options.pick(None, SMALL)
        moments, seconds = timed(lambda: predict(*arguments))
        return {**scores(y[test], *moments), "seconds": seconds}

    methods = [f"{kernel}, {view}" for kernel in ("forest", "auto") for view in VIEWS] + ["LightGBM, sets"]
    title = (
        f"Tables with categories, {size} training rows, one random split. Sets: the table as it is; codes: categories "
        "as arbitrary numbers; one-hot: up to 20 columns each (of LightGBM, deviations by residuals of five folds)"
    )
    jobs = grid(problem=problems, method=methods)
    yield from measured(options, "categories", title, jobs, scored)


def _process(table: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, method: str, options: Any) -> Any:
    kernel, view = method.split(", ")
    rows, points = VIEWS[view](table, new)
    return PartitionGPRegressor(kernel, random_state=0, options=options).fit(rows, y).predict(points, return_std=True)


def _codes(table: pd.DataFrame, new: pd.DataFrame) -> Views:
    """Write text as the number of its place among the names of all levels."""
    both = pd.concat([table, new])
    for name in both.select_dtypes(exclude="number"):
        both[name] = both[name].astype("category").cat.codes.astype(float)
    return both[: len(table)].to_numpy(), both[len(table) :].to_numpy()


def _one_hot(table: pd.DataFrame, new: pd.DataFrame) -> Views:
    text = list(table.select_dtypes(exclude="number"))
    encoder = OneHotEncoder(max_categories=20, handle_unknown="ignore", sparse_output=False).fit(table[text])
    rows = [np.concatenate([part.drop(columns=text), encoder.transform(part[text])], axis=1) for part in (table, new)]
    return rows[0], rows[1]


VIEWS: dict[str, Callable[[pd.DataFrame, pd.DataFrame], Views]] = {
    "sets": lambda table, new: (table, new),
    "codes": _codes,
    "one-hot": _one_hot,
}


def _lightgbm(table: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, method: str, options: Any) -> Any:
    from lightgbm import LGBMRegressor

    both = pd.concat([table, new])
    both = both.assign(**{name: both[name].astype("category") for name in both.select_dtypes(exclude="number")})
    model, rows = LGBMRegressor(random_state=0, verbose=-1, n_jobs=1), both[: len(table)]
    residuals = y - cross_val_predict(model, rows, y, cv=5)
    mean = model.fit(rows, y).predict(both[len(table) :])
    return mean, np.full(len(new), np.sqrt(np.mean(residuals**2)))


# Problems.


def _problems(options: Options, number: int) -> dict[str, Problem]:
    found = {"prices": _prices(number), "sales": _sales(number), "clients": _clients(number)}
    if options.data is None:
        return found
    bike = _stored(options, "bike", 15, {3: "season", 5: "month", 6: "hour", 8: "weekday", 10: "weather"}, number)
    flights, delays = _stored(options, "nycflights13", 8, {0: "month", 2: "weekday", 6: "route"}, number)
    return found | {"bike": bike, "flights": (flights, np.clip(delays, -60, 180))}


def _names(prefix: str, codes: np.ndarray) -> np.ndarray:
    order = np.random.RandomState(9).permutation(int(codes.max()) + 1)
    return np.array([f"{prefix} {order[code]}" for code in codes.astype(int)], dtype=object)


def _prices(number: int) -> Problem:
    """Make houses in 400 districts of very different sizes; of the four columns of text colors do nothing."""
    random = np.random.RandomState(1)
    district = np.minimum(random.zipf(1.3, number) - 1, 399)
    kind, condition, age = random.randint(5, size=number), random.randint(4, size=number), 80 * random.rand(number)
    size = np.exp(0.4 * random.randn(number) + 4.4)
    y = 0.8 * np.log(size) + 0.4 * random.randn(400)[district] + np.array([0, 0.2, -0.3, 0.5, 0.1])[kind]
    y += np.array([0, 0.3, -0.2, 0.1])[condition] * (age > 30) + 0.15 * np.sin(age / 12) + 0.2 * random.randn(number)
    text = {"district": district, "kind": kind, "condition": condition, "color": random.randint(50, size=number)}
    return pd.DataFrame({"size": size, "age": age, **{n: _names(n, c) for n, c in text.items()}}), y


def _sales(number: int) -> Problem:
    """Make forty items in 150 stores on weekdays that matter by group of items."""
    random = np.random.RandomState(2)
    store, item, day = (random.randint(size, size=number) for size in (150, 40, 7))
    group, is_promoted = random.randint(3, size=40)[item], random.rand(number) < 0.2
    item_effect = 0.7 * random.randn(40)
    price = 2 * random.rand(number) + 0.3 * item_effect[item]
    y = 0.5 * random.randn(150)[store] + item_effect[item] + 0.3 * random.randn(3, 7)[group, day]
    y += is_promoted * (0.4 + 0.3 * group) - 0.5 * price + 0.25 * random.randn(number)
    table = {"store": _names("store", store), "item": _names("item", item), "day": _names("day", day)}
    return pd.DataFrame({**table, "promoted": is_promoted.astype(float), "price": price}), y


def _clients(number: int) -> Problem:
    """Make as many clients as a quarter of the rows, who differ, beside three numbers."""
    random = np.random.RandomState(3)
    client, x = random.randint(number // 4, size=number), random.rand(number, 3)
    y = 0.7 * random.randn(number // 4)[client] + np.sin(6 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * random.randn(number)
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "client": _names("client", client)}), y


def _stored(options: Options, name: str, num_columns: int, text: dict[int, str], number: int) -> Problem:
    X, y = read_arrays(options.data / f"{name}.npz")
    some = np.random.RandomState(4).permutation(len(y))[:number]
    X, y = X[some, :num_columns], y[some]
    columns = {
        text.get(column, f"x{column}"): _names(text[column], np.unique(values, return_inverse=True)[1])
        if column in text
        else values
        for column, values in enumerate(X.T)
    }
    return pd.DataFrame(columns), y
