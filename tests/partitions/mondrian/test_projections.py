"""Mondrian trees over mapped points: the limits of matrices, lengthscales and rotations, and what must not change."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from gpytorch_partition import MondrianKernel
from gpytorch_partition.partitions.mondrian import mondrian_partition as mondrian
from gpytorch_partition.partitions.mondrian.mondrian_partition import MondrianPartition
from gpytorch_partition.partitions.mondrian.projections import Projections, rotations
from tests.partitions.mondrian.test_mondrian_partition import around, assert_limit, box, normal

NUM_TREES, FEW = 2000, 10
MATRIX = torch.tensor([[1.0, -0.5], [0.3, 2.0], [0.0, 1.0]], dtype=torch.float64)
WIDE = torch.tensor([[1.0, 0.5, -0.2, 0.7], [0.3, -0.4, 0.8, 0.0]], dtype=torch.float64)
SCALES = torch.tensor([2.0, -0.1, 0.5], dtype=torch.float64)
# A matrix for each of up to 40 trees, to five columns.
MATRICES = torch.from_numpy(np.random.RandomState(4).randn(40, 3, 5))
PROJECTIONS = {"matrix": MATRIX, "scales": SCALES, "rotations": "rotations", "matrices": MATRICES}


ROWS = normal(100, 3)
POINTS = torch.cat([normal(20, 3, seed=1), 4 * normal(10, 3, seed=2), 20 * normal(2, 3, seed=3)])


def of_trees(projection, num_trees):
    """The projection for so many trees."""
    has_one_each = torch.is_tensor(projection) and projection.dim() == 3
    return projection[:num_trees] if has_one_each else projection


def trees_on(rows, projection, num_trees=FEW, lifetime=0.8, seed=0):
    projection = of_trees(projection, num_trees)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MondrianPartition(rows, num_trees, lifetime=lifetime, projection=projection, random_state=seed)


@pytest.fixture(scope="module", params=PROJECTIONS)
def projection(request):
    return PROJECTIONS[request.param]


@pytest.fixture(scope="module")
def trees(projection):
    return trees_on(ROWS, projection)


class TestLimit:
    @pytest.mark.parametrize("lifetime", [0.1, 0.8])
    @pytest.mark.parametrize("matrix", [MATRIX, WIDE, SCALES], ids=["narrow", "wide", "scales"])
    def test_is_the_laplace_kernel_of_mapped_points(self, matrix, lifetime):
        points = around(len(matrix))
        mapped = points @ (matrix if matrix.dim() == 2 else matrix.diag())
        labels = trees_on(box(*[1.0] * len(matrix)), matrix, NUM_TREES, lifetime).labels(points)
        assert_limit(labels, torch.exp(-lifetime * torch.cdist(mapped, mapped, p=1)))

    @pytest.mark.parametrize("lifetime", [0.2, 1.0])
    def test_of_rotations_is_the_mean_over_angles(self, lifetime):
        points = around(2)
        angles = torch.arange(2000, dtype=torch.float64) * (2 * np.pi / 2000)
        factors = angles.cos().abs() + angles.sin().abs()
        exact = torch.exp(-lifetime * torch.cdist(points, points).unsqueeze(-1) * factors).mean(-1)
        assert_limit(trees_on(box(*[1.0] * 2), "rotations", NUM_TREES, lifetime).labels(points), exact)

    def test_of_a_matrix_for_every_tree_is_the_mean_over_them(self):
        points, matrices = around(3), torch.stack([MATRIX, 0.3 * MATRIX.flip(0)]).repeat(NUM_TREES // 2, 1, 1)
        exact = sum(torch.exp(-0.8 * torch.cdist(points @ each, points @ each, p=1)) for each in matrices[:2]) / 2
        assert_limit(trees_on(box(*[1.0] * 3), matrices, NUM_TREES).labels(points), exact)


class TestRotations:
    def test_are_orthogonal(self):
        q = rotations(50, 4, np.random.RandomState(0))
        torch.testing.assert_close(q.mT @ q, torch.eye(4, dtype=torch.float64).expand(50, 4, 4))

    def test_move_an_axis_to_anywhere_on_the_sphere(self):
        """In three dimensions each coordinate of a point of the sphere is uniform (Archimedes)."""
        q = rotations(4000, 3, np.random.RandomState(0)).numpy()
        for row in range(3):
            for column in range(3):
                assert stats.kstest(q[:, row, column], stats.uniform(-1, 2).cdf).pvalue > 1e-3

    @pytest.mark.parametrize("projection", ["rotations", MATRICES], ids=["rotations", "matrices"])
    def test_leave_the_rows_in_the_box(self, projection):
        trees = trees_on(ROWS, projection)
        points, levels = trees._seen(ROWS, slice(0, FEW))
        assert levels.max() == 0
        assert (points.abs().amax((0, 1)) > 0.3 * trees._boxes(0).upper[-1]).all()  # and it is no larger than so


class TestMaps:
    @pytest.mark.parametrize("matrix", [MATRIX, SCALES], ids=["matrix", "scales"])
    def test_are_those_of_trees_over_mapped_rows(self, matrix):
        """The same keys cut the same cells, but for rounding."""
        dense = matrix if matrix.dim() == 2 else matrix.diag()
        mapped = MondrianPartition(ROWS @ dense, FEW, random_state=0)
        with_map = MondrianPartition(ROWS, FEW, projection=matrix, random_state=0)
        assert with_map.lifetime == pytest.approx(mapped.lifetime)
        agree = mapped.labels(POINTS[:30] @ dense) == with_map.labels(POINTS[:30])
        assert agree.double().mean() > 0.999

    def test_of_one_row_and_one_column(self):
        for projection in (torch.tensor([[2.0, 1.0]]), torch.tensor([3.0]), "rotations"):
            labels = trees_on(torch.full((1, 1), 2.0), projection).labels(torch.tensor([[2.0], [2.01], [50.0]]))
            assert (labels[0] == labels[1]).double().mean() > 0.8
            assert (labels[0] == labels[2]).sum() == 0

    def test_weights_of_zero_drop_a_column(self):
        trees, moved = trees_on(ROWS, torch.tensor([1.0, 0.0, 1.0])), POINTS.clone()
        moved[:, 1] = 7e5
        assert torch.equal(trees.labels(moved), trees.labels(POINTS))

    def test_round_alike_however_many_points_there_are(self):
        x = normal(300, 40)
        for projection in (normal(40, 30, seed=1), "rotations"):
            maps = Projections.of(x, projection, 3, np.random.RandomState(0))
            whole = maps.seen(x, slice(0, 3))
            for rows, trees in ((slice(0, 1), slice(0, 3)), (slice(7, 24), slice(1, 2))):
                which = trees if maps.differ else slice(0, 1)
                assert torch.equal(maps.seen(x[rows], trees), whole[which, rows])

    def test_single_coordinates_are_those_of_points(self, projection):
        maps = Projections.of(ROWS, projection, 7, np.random.RandomState(0))
        seen = maps.seen(POINTS, slice(0, 7)).expand(7, -1, -1)
        random = torch.Generator().manual_seed(0)
        row, dimension, tree = (torch.randint(high, (500,), generator=random) for high in (32, seen.shape[-1], 7))
        assert torch.equal(maps.coordinates(POINTS, row, dimension, tree), seen[tree, row, dimension])


class TestCodes:
    @pytest.mark.parametrize("lifetime", [0.05, 0.3, 0.8])
    def test_group_rows_and_points_as_labels_do(self, projection, lifetime):
        trees = trees_on(ROWS, projection)
        rows = ROWS[:40]
        trees.incidences(POINTS, rows)
        trees.lifetime = lifetime
        left, right = trees.incidences(POINTS, rows)
        labels = trees.labels(torch.cat([rows, POINTS]))
        own, others = labels[:40], labels[40:]
        assert torch.equal(right.codes[:, None] == right.codes[None], own[:, None] == own[None])
        assert torch.equal(left.codes[:, None] == right.codes[None], others[:, None] == own[None])

    def test_of_rows_that_leave_the_box_of_some_trees_only(self, monkeypatch):
        monkeypatch.setattr(mondrian, "SERIAL_NUMEL", 1)  # every tree on its own
        trees, rows = trees_on(ROWS, "rotations", 15, lifetime=0.3), torch.tensor([[4.5, 0.0, 0.0], [4.4, 0.1, 0.3]])
        levels = [int(trees._seen(rows, slice(tree, tree + 1))[1].max()) for tree in range(15)]
        assert set(levels) == {0, 1}
        left, right = trees.incidences(ROWS[:1], rows)
        labels = [trees.labels(x) for x in (ROWS[:1], rows)]
        assert torch.equal(left.codes[:, None] == right.codes[None], labels[0][:, None] == labels[1][None])


class TestLabels:
    @pytest.mark.parametrize("scale", [1e-200, 1e200, 1e305])
    def test_of_extreme_matrices(self, scale):
        trees = trees_on(ROWS, scale * MATRIX, lifetime=1 / min(scale, 1e290))
        far = torch.tensor([[1.7e308, 1.7e308, -1.7e308], [1e300, -1e300, 1e300]], dtype=torch.float64)
        assert trees._seen(far, slice(0, FEW))[0].isfinite().all()
        assert torch.equal(trees.labels(POINTS)[:5], trees.labels(POINTS[:5]))


class TestState:
    def test_is_not_the_tensor_that_was_given(self):
        matrix = MATRIX.clone()
        trees = trees_on(ROWS, matrix)
        before = trees.labels(POINTS)
        matrix.zero_()
        assert torch.equal(trees.labels(POINTS), before)

    def test_a_cut_keeps_it(self, trees, projection):
        assert torch.equal(trees.cut(0.2).labels(POINTS), trees_on(ROWS, projection, lifetime=0.2).labels(POINTS))


class TestErrors:
    @pytest.mark.parametrize(
        ("projection", "message"),
        [
            ("rotation", "'rotations' or None"),
            ([1.0, 2.0, 3.0], "floating point tensor"),
            (torch.ones(3, dtype=torch.int64), "int64"),
            (torch.ones(2, 3), r"\(3 x K\)"),
            (torch.ones(2), "3 columns"),
            (torch.ones(3, 0), "shape"),
            (torch.ones(1, 3, 3), r"for every tree \(200 x 3 x K\)"),
            (torch.ones(200, 2, 3), "shape"),
            (torch.ones(1, 200, 3, 3), "shape"),
            (torch.tensor(1.0), "shape"),
            (torch.tensor([1.0, float("nan"), 1.0]), "finite"),
        ],
    )
    def test_of_what_is_no_projection(self, projection, message):
        with pytest.raises(ValueError, match=message):
            MondrianPartition(ROWS, projection=projection)

    def test_rows_that_are_mapped_to_one_point(self):
        with pytest.raises(ValueError, match="give a lifetime"):
            MondrianPartition(ROWS, projection=torch.zeros(3))


class TestScales:
    UNEQUAL = ROWS * torch.tensor([1.0, 1.0, 1000.0])

    @pytest.mark.parametrize("projection", [torch.tensor([1.0, 1.0, 1e-6]), torch.tensor([[1.0], [1.0], [1e-3]])])
    def test_that_are_given_give_no_warning(self, projection):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            MondrianPartition(self.UNEQUAL, 3, projection=projection, random_state=0)


class TestKernel:
    def test_maps_the_active_columns(self):
        kernel = MondrianKernel(ROWS, 20, projection=SCALES[:2], active_dims=(2, 0), random_state=0)
        expected = trees_on(ROWS[:, [2, 0]], SCALES[:2], 20, kernel.lifetime)
        assert torch.equal(kernel.cluster_ids(POINTS), expected.labels(POINTS[:, [2, 0]]))
