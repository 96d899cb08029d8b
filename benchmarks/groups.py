"""Groups, memberships of sets, and tables with categories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from scipy.sparse import csr_array
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import OneHotEncoder
from torch import Tensor

from gpytorch_partition import GroupKernel, MembershipKernel, fit_exact_gp, settings
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.tables import TableEncoder

from .datasets import read_arrays, scores
from .intervals import FEW_TREES
from .processes import Moments, moments_of
from .report import Options, Row, Table, grid, held_gib, measured, medians, peak_gib, timed

POINTS, VARIANCES = 1_000, 16
STATISTICS, CODES = "CatBoost, statistics of targets", "CatBoost, codes of a TableEncoder"
LEVELS = 50, 10, 5  # regions, towns of a region, shops of a town


def groups(options: Options) -> Iterator[Table]:
    """Measure a product, a fit in one pass and predictions with a hierarchy of three levels."""
    title = "GroupKernel of 50 regions, 500 towns and 2,500 shops, nested (float64, seconds)"
    jobs = grid(N=options.pick([100_000, 1_000_000], [2_500]))
    yield from measured(options, "groups", title, jobs, partial(options.apart, _groups))


def memberships(options: Options) -> Iterator[Table]:
    """Measure the same with items in 50 sets on average; and mails by their words, with `--data`."""
    items, sets = options.pick((200_000, 20_000), (2_500, 300))
    title = "MembershipKernel: items in 50 sets on average, a row for each item (float64, seconds)"
    jobs = [{"items": items, "sets": sets, "members only": only} for only in (False, True)]
    yield from measured(options, "memberships", title, jobs, partial(options.apart, _memberships))
    if options.data:
        words = "Spam (spambase, standardized) by which of 54 words a mail has, 1,000 training rows"
        yield Table("memberships_words", words, _words(options))


def _groups(num_rows: int) -> Row:
    random = np.random.default_rng(0)
    codes = np.stack([random.integers(size, size=num_rows) for size in LEVELS], 1)
    kernel = GroupKernel((0, 1, 2), nested=True, weights=(1.0, 2.0, 1.0), learn_weights=False)
    effects = [random.normal(size=LEVELS[: level + 1]) for level in range(3)]
    y = sum(effect[tuple(codes.T[: level + 1])] for level, effect in enumerate(effects))
    return _job(kernel, torch.from_numpy(codes.astype(float)), torch.from_numpy(y + random.normal(size=num_rows)))


def _memberships(num_items: int, num_sets: int, members_only: bool) -> Row:
    table, random = _items_in_sets(num_items, num_sets), np.random.default_rng(1)
    kernel = MembershipKernel(table, members_only=members_only).double()
    strengths = np.maximum(table.sum(1), 1) ** 0.5
    y = table @ random.normal(size=num_sets) / strengths + 0.5 * random.normal(size=num_items)
    found = _job(kernel, torch.arange(num_items).double().unsqueeze(-1), torch.from_numpy(y))
    return {"memberships": table.nnz, **found}


def _items_in_sets(num_items: int, num_sets: int) -> csr_array:
    random = np.random.default_rng(0)
    shares = np.arange(1, num_sets + 1) ** -0.8
    counts = np.minimum(random.geometric(1 / 50, size=num_items), num_sets // 2)
    items = np.repeat(np.arange(num_items), counts)
    sets = random.choice(num_sets, size=len(items), p=shares / shares.sum())
    return csr_array((np.ones(len(items)), (items, sets)), shape=(num_items, num_sets))


def _job(kernel: Kernel, x: Tensor, y: Tensor) -> Row:
    before, covariance = held_gib(), kernel(x).evaluate_kernel()
    values = torch.randn(len(x), 16, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    times = medians({c: partial(covariance.matmul, values[:, :c].contiguous()) for c in (1, 16)}, 3)
    is_test = torch.zeros(len(x), dtype=torch.bool).index_fill_(0, torch.arange(0, len(x), len(x) // POINTS), True)
    model = PartitionGP(x[~is_test], y[~is_test], GaussianLikelihood(), kernel)
    fit, fit_seconds = timed(lambda: fit_exact_gp(model, model.likelihood))
    with torch.no_grad(), settings.iterative():
        mean, mean_seconds = timed(lambda: model.eval()(x[is_test]).mean)
        few = x[is_test][:: POINTS // VARIANCES]
        _, variance_seconds = timed(lambda: model(few).variance)
    return {
        **{f"product, {columns} col.": time for columns, time in times.items()},
        f"fit ({fit.method})": fit_seconds,
        f"{POINTS:,} means": mean_seconds,
        f"{VARIANCES} variances": variance_seconds,
        "test error / variance of y": float((y[is_test] - mean).square().mean() / y.var()),
        "GiB beyond the data": peak_gib() - before,
    }


def _words(options: Options) -> list[Row]:
    X, targets = read_arrays(options.data / "spambase.npz")
    rows = np.random.default_rng(0).permutation(len(targets))[:1_500]
    has, y = X[rows, :54] > 0, (targets[rows] - targets[rows].mean()) / targets[rows].std()
    rarity, items = 1 / np.maximum(has.sum(0), 1), torch.arange(len(rows)).double().unsqueeze(-1)
    kernels: dict[str, tuple[Kernel, Tensor]] = {
        "members and others": (MembershipKernel(has), items),
        "members only": (MembershipKernel(has, members_only=True), items),
        "members and others, 1 / size": (MembershipKernel(has, set_weights=rarity), items),
        "members only, 1 / size": (MembershipKernel(has, members_only=True, set_weights=rarity), items),
        "RBF of the same zeros and ones": (RBFKernel(), torch.from_numpy(has).double()),
    }
    return [{"kernel": name, **_predicted(kernel, x, torch.from_numpy(y))} for name, (kernel, x) in kernels.items()]


def _predicted(kernel: Kernel, x: Tensor, y: Tensor) -> Row:
    number = len(y) // 3
    model = PartitionGP(x[number:], y[number:], GaussianLikelihood(), kernel)
    model.covar_module = ScaleKernel(kernel).double()
    with settings.iterative():
        fit_exact_gp(model, model.likelihood)
        return scores(y[:number].numpy(), *moments_of(model, x[:number]))


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
        predict = PREDICTING.get(method.partition(",")[0], _process)
        arguments = table.iloc[train], y[train], table.iloc[test], method, options.pick(None, FEW_TREES)
        moments, seconds = timed(lambda: predict(*arguments))
        return {**scores(y[test], *moments), "seconds": seconds}

    methods = [f"{kernel}, {view}" for kernel in ("forest", "auto") for view in VIEWS] + ["LightGBM, sets"]
    title = (
        f"Tables with categories, {size} training rows, one random split. Sets: the table as it is; codes: categories "
        "as arbitrary numbers; one-hot: up to 20 columns each (of boosting, deviations by residuals of five folds)"
    )
    jobs = grid(problem=problems, method=methods)
    yield from measured(options, "categories", title, jobs, scored)
    if find_spec("catboost"):
        title = f"Categories by CatBoost (500 rounds), {size} training rows, one random split"
        jobs = grid(problem=problems, method=[STATISTICS, CODES])
        yield from measured(options, "category_statistics", title, jobs, scored)


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
    return _boosted(LGBMRegressor(random_state=0, verbose=-1, n_jobs=1), both, y)


def _catboost(table: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, method: str, options: Any) -> Any:
    from catboost import CatBoostRegressor

    both, fitting = pd.concat([table, new]), {}
    if method == STATISTICS:
        fitting["cat_features"] = list(both.select_dtypes(exclude="number"))
    else:
        both = pd.DataFrame(TableEncoder().fit(table).transform(both))
    model = CatBoostRegressor(iterations=500, random_seed=0, verbose=False, allow_writing_files=False)
    return _boosted(model, both, y, **fitting)


def _boosted(model: Any, both: pd.DataFrame, y: np.ndarray, **fitting: Any) -> Moments:
    rows, points = both[: len(y)], both[len(y) :]
    residuals = y - cross_val_predict(model, rows, y, cv=5, params=fitting)
    mean = model.fit(rows, y, **fitting).predict(points)
    return mean, np.full(len(points), np.sqrt(np.mean(residuals**2)))


PREDICTING = {"LightGBM": _lightgbm, "CatBoost": _catboost}


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
