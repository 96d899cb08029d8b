"""Strength, correlation and standard errors of partitions, against loops over dense matrices of each of them."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor

from gpytorch_partition import (
    FastClusterKernel,
    MondrianKernel,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomForestKernel,
)

NUM_ROWS, NUM_NEW, NUM_MEMBERS = 120, 40, 12


def rows(seed=0, number=NUM_ROWS + NUM_NEW):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(number, 2, generator=generator, dtype=torch.float64)
    y = (6 * x[:, 0]).sin() + x[:, 1] + 0.2 * torch.randn(number, generator=generator, dtype=torch.float64)
    return x, y


def flat(x, y):
    return _same_cell(FastClusterKernel(x[:NUM_ROWS], NUM_MEMBERS, random_state=0))


def mondrian(x, y):
    return _same_cell(MondrianKernel(x[:NUM_ROWS], NUM_MEMBERS, lifetime=6.0, random_state=0))


def _same_cell(kernel):
    """A kernel, and a function that gives the dense matrices of its partitions (`m x N x N`)."""
    return kernel, lambda points: np.moveaxis(
        kernel.cluster_ids(points)[:, None].numpy() == kernel.cluster_ids(points)[None].numpy(), -1, 0
    ).astype(float)


def forest(x, y):
    """Trees at all heights, each of which is a kernel of its own."""
    trees = ExtraTreesRegressor(NUM_MEMBERS, max_depth=4, random_state=0).fit(x[:NUM_ROWS], y[:NUM_ROWS])

    def members(points):
        return np.stack([_of(tree)(points).to_dense().numpy() for tree in trees.estimators_])

    def _of(tree):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return RandomForestKernel.from_forest(tree).double()

    return _of(trees), members


KERNELS = pytest.mark.parametrize("make", [flat, mondrian, forest])


def weights_of(members, are_new):
    """`m x n x N` weights of the rows for the points judged; of rows, without themselves."""
    if are_new:
        return members[:, NUM_ROWS:, :NUM_ROWS]
    own = members[:, :NUM_ROWS, :NUM_ROWS].copy()
    own[:, np.arange(NUM_ROWS), np.arange(NUM_ROWS)] = 0
    return own


def diagnosed(kernel, x, y, are_new, **options):
    points = (x[NUM_ROWS:], y[NUM_ROWS:]) if are_new else None
    return kernel.diagnose(x[:NUM_ROWS], y[:NUM_ROWS], points=points, **options)


@KERNELS
@pytest.mark.parametrize("are_new", [False, True])
def test_regression_is_breimans(make, are_new):
    x, y = rows()
    kernel, members = make(x, y)
    weights, train = weights_of(members(x), are_new), y[:NUM_ROWS].numpy()
    truth = y[NUM_ROWS:].numpy() if are_new else train
    total = weights.sum(-1)
    errors = np.where(total > 0, weights @ train / np.where(total > 0, total, 1), train.mean()) - truth
    sigma = np.sqrt((errors**2).mean(-1))
    shared = np.mean([(errors[r] * errors[q]).mean() for r, q in combinations(range(NUM_MEMBERS), 2)])
    found = diagnosed(kernel, x, y, are_new)
    assert found.are_new is are_new
    assert not found.are_classes
    assert found.num_points == len(truth)
    assert found.member_error == pytest.approx((errors**2).mean())
    assert found.ensemble_error == pytest.approx((errors.mean(0) ** 2).mean())
    assert found.correlation == pytest.approx(shared / sigma.mean() ** 2)
    assert found.strength == pytest.approx(1 - (errors**2).mean() / truth.var())
    assert found.error_bound == pytest.approx(found.correlation * found.member_error)
    assert shared <= found.error_bound * (1 + 1e-9)


@KERNELS
@pytest.mark.parametrize("are_new", [False, True])
def test_classes_are_breimans(make, are_new):
    x, y = rows()
    kernel, members = make(x, y)
    classes = torch.bucketize(y, torch.tensor([0.0, 0.8, 1.2], dtype=torch.float64))
    weights, train = weights_of(members(x), are_new), classes[:NUM_ROWS].numpy()
    truth = classes[NUM_ROWS:].numpy() if are_new else train
    frequency = np.bincount(train, minlength=4)
    scores = np.stack([weights @ (train == c) for c in range(4)], -1)
    votes = (np.round(scores, 9) + 1e-10 * frequency).argmax(-1)  # ties: the more frequent class
    margins, raw, wrong = [], [], []
    for i, right in enumerate(truth):
        shares = np.array([(votes[:, i] == c).mean() for c in range(4)])
        others = [c for c in range(4) if c != right]
        other = others[int(np.argmax(shares[others]))]
        margins.append(shares[right] - shares[other])
        wrong.append((shares + 1e-10 * frequency).argmax() != right)
        raw.append((votes[:, i] == right).astype(float) - (votes[:, i] == other))
    margins, raw = np.array(margins), np.array(raw)
    found = diagnosed(kernel, x, classes, are_new)
    assert found.are_classes
    assert found.strength == pytest.approx(margins.mean())
    assert found.correlation == pytest.approx(margins.var() / raw.std(0).mean() ** 2)
    assert found.member_error == pytest.approx((votes != truth).mean())
    assert found.ensemble_error == pytest.approx(np.mean(wrong))
    bound = found.correlation * (1 - found.strength**2) / found.strength**2
    assert found.error_bound == pytest.approx(bound if found.strength > 0 else np.inf)


@KERNELS
def test_standard_errors_are_those_of_a_mean(make):
    """All pairs are among 10,000 random ones of 15 rows."""
    x, y = rows()
    kernel, members = make(x, y)
    shares = members(x)[:, :15, :15]
    errors = shares.std(0)[~np.eye(15, dtype=bool)] / NUM_MEMBERS**0.5
    found = kernel.diagnose(x[:15], y[:15])
    assert found.max_standard_error == pytest.approx(errors.max())
    assert found.mean_standard_error == pytest.approx(np.sqrt((errors**2).mean()), rel=0.03)
    assert found.max_standard_error <= 0.5 / NUM_MEMBERS**0.5 + 1e-12


def test_as_many_partitions_as_it_says_are_enough():
    """New draws of that many partitions scatter as wanted, around the limit that a hundred times as many have."""
    x, y = rows()
    found = MondrianKernel(x, 30, lifetime=3.0, random_state=0).diagnose(x, y)
    number = found.num_partitions_for(0.04)
    draws = [MondrianKernel(x, number, lifetime=3.0, random_state=seed)(x).to_dense() for seed in range(20)]
    scatter = torch.stack(draws).std(0).square().mean().sqrt().item()
    ratio = found.mean_standard_error / found.max_standard_error
    assert scatter == pytest.approx(0.04 * ratio, rel=0.1)


def test_classes_by_name_and_by_argument():
    x, y = rows()
    kernel, _ = flat(x, y)
    names = np.where(y > 0.5, "spam", "ham")
    by_name, by_number = kernel.diagnose(x, names), kernel.diagnose(x, (y > 0.5).double(), classes=True)
    assert by_name == by_number
    assert not kernel.diagnose(x, (y > 0.5).double()).are_classes


def test_the_same_seed_gives_the_same_numbers():
    x, y = rows(number=12_000)
    kernel = MondrianKernel(x, 5, lifetime=2.0, random_state=0)
    assert kernel.diagnose(x, y, random_state=3) == kernel.diagnose(x, y, random_state=3)
    assert kernel.diagnose(x, y, random_state=3) != kernel.diagnose(x, y, random_state=4)
    assert kernel.diagnose(x, y).num_points == 10_000


X, Y = rows()
NAMES = np.where(Y > 0.5, "spam", "ham")


@cache
def flat_kernel():
    return flat(X, Y)[0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: PartitionMixtureKernel([flat_kernel(), flat_kernel()]).diagnose(X, Y),
            TypeError,
            "diagnose its parts one by one",
        ),
        (lambda: PartitionKernel(lambda x: x[..., :1].long()).diagnose(X, Y), ValueError, "two or more partitions"),
        (lambda: flat_kernel().diagnose(X, Y[:5]), ValueError, "one target for each of the 160 rows of x"),
        (lambda: flat_kernel().diagnose(X, Y * torch.nan), ValueError, "finite targets"),
        (lambda: flat_kernel().diagnose(X, [None, *NAMES[1:]]), ValueError, "got None, NaN or infinity"),
        (lambda: flat_kernel().diagnose(X, torch.ones(len(X))), ValueError, "that vary"),
        (lambda: flat_kernel().diagnose(X, Y, points=(X[0], Y[0])), ValueError, r"points as a tensor \(N x D\)"),
        (lambda: flat_kernel().diagnose(X, NAMES, points=X[:2]), ValueError, "points as a pair"),
        (lambda: flat_kernel().diagnose(X * torch.nan, Y), ValueError, "NaN"),
        (lambda: FastClusterKernel().diagnose(X, Y), RuntimeError, "not fitted"),
        (lambda: flat_kernel().diagnose(X, Y).num_partitions_for(0.0), ValueError, "positive standard error"),
        (
            lambda: flat_kernel().diagnose(X, NAMES, classes=False),
            ValueError,
            "numbers as targets, got <U4: give classes=True",
        ),
        (
            lambda: flat_kernel().diagnose(X, NAMES, points=(X, (Y > 0.5).long())),  # all would be wrong
            ValueError,
            "x and points of one kind, got <U4 and int64",
        ),
    ],
)
def test_clear_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
