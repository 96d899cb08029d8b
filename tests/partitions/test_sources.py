"""The contract of all sources of clusters: labels are a pure function of the point, and the state is the partition."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable
from copy import deepcopy
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.mixture import GaussianMixture

from gpytorch_partition.inputs.kernel_columns import Columns
from gpytorch_partition.kernels.landmark_kernel import LandmarkPartition
from gpytorch_partition.kernels.partition_mixture_kernel import JointPartition
from gpytorch_partition.linalg import parallel
from gpytorch_partition.partitions import (
    CallablePartition,
    ClusteringPartition,
    FastClusterPartition,
    ForestPartition,
    GroupPartition,
    MembershipPartition,
    MondrianPartition,
    Partition,
    RandomBinningPartition,
    SampledPartition,
    grow_forest,
    hashed_cells,
    partition,
)
from gpytorch_partition.partitions.mondrian import mondrian_partition, process


def normal(n, d, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).randn(n, d))


X = normal(80, 3)
Y = X[:, 0].sin() + X[:, 1] * X[:, 2]
POINTS = torch.cat([normal(12, 3, seed=1), 4 * normal(6, 3, seed=2), 20 * normal(2, 3, seed=3), X[:4]])
LEVELS = torch.cat([X[:, :2], torch.from_numpy(np.random.RandomState(4).randint(5, size=(80, 1))).double()], 1)
WITH_HOLES = torch.where(normal(80, 3, seed=5) > 1, torch.nan, X)
HOLES_AND_LEVELS = torch.cat([torch.where(POINTS > 1, torch.nan, POINTS)[:, :2], LEVELS[:24, 2:]], 1)
CODES = torch.from_numpy(np.random.RandomState(6).randint(4, size=(24, 3))).double()
ITEMS = torch.from_numpy(np.random.RandomState(7).randint(9, size=(24, 1))).double()
MAPS = {"matrix": normal(3, 2), "scales": torch.tensor([2.0, -0.1, 0.5]), "matrices": normal(12, 5).view(4, 3, 5)}


def floors(x):
    return torch.stack([x[..., 0].floor(), (x[..., 0] + x[..., 1]).floor()], -1).long() * 2**40 - 5


def halves(seed):
    side = np.random.RandomState(seed).normal(size=3)
    return lambda x: (x.double() * torch.from_numpy(side)).sum(-1) > 0.2


def mondrian(projection=None):
    return lambda seed: MondrianPartition(X, 4, lifetime=0.5, projection=projection, random_state=seed)


def grown(seed, **options):
    return ForestPartition(grow_forest(X, Y, num_trees=9, random_state=seed, **options))


def joint(seed):
    parts = (
        CallablePartition(floors),
        grown(seed),
        mondrian()(seed),
        FastClusterPartition(X[:, :1], 4, random_state=1),
    )
    columns = (Columns(), Columns(), Columns(), Columns((0,)))
    return JointPartition([SimpleNamespace(partition=p, columns=c) for p, c in zip(parts, columns)])


class Source(NamedTuple):
    make: Callable[[int], Partition]  # from a seed
    points: torch.Tensor = POINTS
    is_random: bool = True
    takes_nan: bool = False
    twin: Callable[[], Partition] | None = None  # what loads the state; otherwise an unfitted one of the class


def clustering(clusterer, **options):
    return lambda seed: ClusteringPartition(X, clusterer, 4, random_state=seed, **options)


def histogram(seed):
    boosting = HistGradientBoostingRegressor(max_iter=4, min_samples_leaf=3, categorical_features=[2])
    return ForestPartition(boosting.fit(torch.cat([WITH_HOLES[:, :2], LEVELS[:, 2:]], 1), Y))


SOURCES = {
    "fast clusters": Source(lambda seed: FastClusterPartition(X, 15, height=5, random_state=seed)),
    "isolation": Source(
        lambda seed: FastClusterPartition(X, 9, num_centers=7, columns="all", projection=2, random_state=seed)
    ),
    "bins": Source(lambda seed: RandomBinningPartition(X, 9, random_state=seed)),
    "mondrian": Source(mondrian()),
    "rotations": Source(mondrian("rotations"), twin=lambda: MondrianPartition(normal(4, 7), 3, projection="rotations")),
    **{name: Source(mondrian(projection)) for name, projection in MAPS.items()},
    "k-means": Source(clustering(KMeans(5, n_init=1, init="random"))),
    "mixtures": Source(clustering(GaussianMixture(4, init_params="random_from_data"), projection=2, rows=0.5)),
    "agglomerative": Source(clustering(AgglomerativeClustering(6), rows=0.5, columns=2)),
    "forest": Source(grown, takes_nan=True),
    "cut forest": Source(lambda seed: grown(seed).sample_cut(seed), takes_nan=True),
    "levels": Source(
        lambda seed: ForestPartition(grow_forest(LEVELS, Y, num_trees=9, categories=[2], random_state=seed)),
        HOLES_AND_LEVELS,
        takes_nan=True,
    ),
    "histograms": Source(histogram, HOLES_AND_LEVELS, is_random=False, takes_nan=True),
    "function": Source(
        lambda seed: CallablePartition(floors, 2), is_random=False, twin=lambda: CallablePartition(floors)
    ),
    "program": Source(
        lambda seed: SampledPartition(halves, 4, random_state=seed), twin=lambda: SampledPartition(halves, 3)
    ),
    "groups": Source(lambda seed: GroupPartition(), CODES, is_random=False),
    "items": Source(lambda seed: MembershipPartition(np.eye(9)[:, :4]), ITEMS, is_random=False),
    "inducing points": Source(lambda seed: LandmarkPartition(X[:20]), is_random=False),
    "joint": Source(joint),
}
BUILT_ON_ROWS = {
    "fast clusters": FastClusterPartition,
    "bins": RandomBinningPartition,
    "mondrian": MondrianPartition,
    "k-means": lambda x, **options: ClusteringPartition(x, KMeans(3), **options),
}


@pytest.fixture(scope="module", params=SOURCES)
def source(request):
    return SOURCES[request.param]


@pytest.fixture(scope="module")
def fitted(source):
    return source.make(0)


def same(labels, others):
    return labels[:, None] == others[None]


def test_labels_depend_on_the_point_alone(source, fitted, monkeypatch):
    points = source.points
    labels = fitted.labels(points)
    assert labels.shape == (24, fitted.num_partitions)
    assert torch.equal(torch.cat([fitted.labels(point[None]) for point in points]), labels)
    assert torch.equal(fitted.labels(points.flip(0)).flip(0), labels)
    assert torch.equal(fitted.labels(points.T.contiguous().T), labels)
    assert torch.equal(fitted.labels(points.view(2, 3, 4, -1)), labels.view(2, 3, 4, -1))
    assert fitted.labels(points[:0]).shape == (0, fitted.num_partitions)
    some = points[::3]
    for size, threads in ((1, 1), (7, 4)):
        for module in (parallel, hashed_cells, mondrian_partition):
            monkeypatch.setattr(module, "SERIAL_NUMEL", size)
        monkeypatch.setattr(partition, "_LABELS_PER_CHUNK", 5 * size)
        monkeypatch.setattr(mondrian_partition, "_POINT_NUMEL", 10 * size)
        monkeypatch.setattr(process, "_BOX_NUMEL", 100 * size)
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert torch.equal(fitted.labels(some), labels[::3])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_points_have_the_labels_of_their_values(source, fitted, dtype):
    narrow = source.points.to(dtype)
    assert torch.equal(fitted.labels(narrow), fitted.labels(narrow.double()))


def test_labels_lie_below_the_numbers_of_clusters(source, fitted):
    if fitted.cluster_counts is not None:
        labels = fitted.labels(source.points)
        assert labels.min() >= 0
        assert (labels.amax(0) < fitted.cluster_counts).all()


def test_codes_agree_where_labels_do(source, fitted):
    rows, new = source.points[:14], source.points[8:]
    for x1, x2 in ((rows, rows), (new, rows), (rows, new)):
        left, right = deepcopy(fitted).incidences(x1, x2)
        assert torch.equal(same(left.codes, right.codes), same(fitted.labels(x1), fitted.labels(x2)))
        assert (left is right) == (x1 is x2)
        assert int(max(left.codes.max(), right.codes.max())) < left.num_clusters == right.num_clusters


def test_a_state_is_the_partition(source, fitted):
    expected, file = fitted.labels(source.points), io.BytesIO()
    torch.save(fitted.state_dict(), file)
    file.seek(0)
    if not isinstance(fitted, JointPartition):
        twin = (source.twin or type(fitted))()
        if source.twin is None and fitted.state_dict():
            assert not twin.is_fitted
            assert twin.extra_repr() == "unfitted"
            with pytest.raises(RuntimeError, match="is not fitted: expected one that is built on rows"):
                twin.labels(source.points)
        twin.load_state_dict(torch.load(file, weights_only=True))
        assert twin.num_features == fitted.num_features
        assert torch.equal(twin.labels(source.points), expected)
    copies = [deepcopy(fitted), *(getattr(deepcopy(fitted), cast)() for cast in ("half", "float", "double"))]
    if not isinstance(fitted, (SampledPartition, JointPartition)):  # functions in functions
        copies.append(pickle.loads(pickle.dumps(fitted)))
    for copy in copies:
        assert torch.equal(copy.labels(source.points), expected)
    assert all(a is b for a, b in zip(deepcopy(fitted).buffers(), fitted.buffers()))
    deepcopy(fitted).load_state_dict(source.make(1).state_dict())
    assert torch.equal(fitted.labels(source.points), expected)


def test_a_seed_fixes_the_partition_whatever_the_global_state(source):
    if source.is_random:
        torch.manual_seed(1)
        np.random.seed(1)  # noqa: NPY002
        first = source.make(7).labels(source.points)
        torch.manual_seed(2)
        np.random.seed(2)  # noqa: NPY002
        assert torch.equal(source.make(7).labels(source.points), first)
        assert not torch.equal(source.make(8).labels(source.points), first)


def test_points_that_cannot_be_labelled(source, fitted):
    if fitted.num_features is not None:
        with pytest.raises(ValueError, match=f"built on {fitted.num_features} columns, got points with 4"):
            fitted.labels(torch.zeros(3, 4))
    takes_all = isinstance(fitted, (CallablePartition, SampledPartition))
    for value in () if takes_all else [torch.inf] if source.takes_nan else [torch.inf, torch.nan]:
        x = source.points.clone()
        x[3, 0] = value
        with pytest.raises(ValueError, match="expected finite points, got NaN or infinity"):
            fitted.labels(x)
    for x in (torch.zeros(3), torch.zeros(3, 2, dtype=torch.int64), np.zeros((3, 2))):
        with pytest.raises(ValueError, match="expected (a floating point tensor of )?points"):
            fitted.labels(x)


@pytest.mark.parametrize("name", BUILT_ON_ROWS)
class TestRows:
    @pytest.mark.parametrize(
        ("x", "message"),
        [
            (torch.tensor([[1.0, torch.nan]]), "finite rows, got NaN or infinity"),
            (torch.tensor([[1.0, torch.inf]]), "finite rows, got NaN or infinity"),
            (torch.empty(0, 3), "at least one row"),
            (torch.empty(3, 0), "one column"),
            (torch.zeros(3), "at least one row"),
            (torch.zeros(3, 2, dtype=torch.int64), "floating point tensor of rows"),
            (np.zeros((3, 2)), "floating point tensor of rows"),
        ],
    )
    def test_that_cannot_be_used(self, name, x, message):
        with pytest.raises(ValueError, match=message):
            BUILT_ON_ROWS[name](x)

    def test_unequal_columns_give_one_warning_that_points_here(self, name):
        with pytest.warns(UserWarning, match="standardize them") as caught:
            BUILT_ON_ROWS[name](X * torch.tensor([1.0, 1.0, 200.0]), random_state=0)
        assert [warning.filename for warning in caught] == [__file__]

    def test_constant_columns_and_moderate_ratios_give_none(self, name):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            BUILT_ON_ROWS[name](X * torch.tensor([0.0, 1.0, 50.0]), random_state=0)

    def test_what_is_no_seed(self, name):
        with pytest.raises(ValueError, match="cannot be used to seed"):
            BUILT_ON_ROWS[name](X, random_state="seed")


def counted(function):
    calls = []
    return CallablePartition(lambda x: (calls.append(len(x)), function(x))[1], 2), calls


class TestCodes:
    """How rows are remembered, by a user's function."""

    @pytest.mark.parametrize("row", [0, 63, 64, 4_999])
    def test_rows_that_differ_in_one_number_are_coded_apart(self, row):
        x = torch.zeros(5_000, 2)
        y = x.clone()
        y[row, 1] = 3.0
        left, right = CallablePartition(floors).incidences(x, y)
        assert left is not right
        assert (left.codes != right.codes).any(-1).nonzero().tolist() == [[row]]

    def test_training_rows_are_labelled_once(self):
        source, calls = counted(floors)
        source.incidences(X, X.clone())
        for shift in range(10):
            test = X[:3] + shift
            source.incidences(test, test)
            source.incidences(test, X)
        assert calls.count(80) == 1

    def test_a_move_to_where_a_source_is_keeps_codes(self):
        source = FastClusterPartition(X, 5, random_state=0)
        codes = source.incidences(X, X)[0]
        assert source.to("cpu", torch.float64).incidences(X, X)[0] is codes
        assert source.to("meta")._cached(X) is None

    def test_rows_changed_in_place_are_not_mistaken_for_the_old_ones(self):
        x, source = X.clone(), CallablePartition(floors)
        before = source.incidences(x, x)[0].codes.clone()
        x.add_(0.7)
        after = source.incidences(x, x)[0].codes
        assert not torch.equal(before, after)
        assert torch.equal(after, CallablePartition(floors).incidences(x, x)[0].codes)

    def test_new_rows_that_share_an_unseen_cluster_are_similar_to_each_other_only(self):
        source, new = CallablePartition(floors), torch.tensor([[100.2, 0.0], [100.7, 0.1]])
        left, right = source.incidences(new, X[:, :2])
        assert set(left.codes.flatten().tolist()).isdisjoint(right.codes.flatten().tolist())
        together = source.incidences(new, new)[0].codes
        assert (together[0] == together[1]).all()


def test_items_in_sets_have_the_variance_1_where_only_members_count():
    memberships, weights = np.random.RandomState(0).rand(8, 5) < 0.5, np.arange(1.0, 6.0)
    memberships[3] = False
    scales = MembershipPartition(memberships, set_weights=weights, members_only=True).item_scales
    variances = scales**2 * torch.from_numpy(memberships @ (weights / 15))
    assert variances.tolist() == pytest.approx(memberships.any(1).astype(float).tolist())
    assert MembershipPartition(memberships).item_scales is None
