from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import pytest
import torch
from botorch.acquisition import (
    LogExpectedImprovement,
    PosteriorMean,
    UpperConfidenceBound,
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
)
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf, optimize_acqf_discrete_local_search
from gpytorch.kernels import ConstantKernel, MaternKernel, ScaleKernel
from sklearn.ensemble import ExtraTreesRegressor

from gpytorch_partition import (
    FastClusterKernel,
    IterativeKernel,
    MondrianKernel,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomBinningKernel,
    RandomForestKernel,
)
from gpytorch_partition.botorch import optimize, optimize_acqf_cells
from gpytorch_partition.botorch.cell_search import CellSearch, space_of
from gpytorch_partition.botorch.model_cells import ModelCells
from gpytorch_partition.kernels.wrapper_kernels import StandardizedKernel

DOUBLE = torch.float64
MIXED = torch.tensor([[0.0, 0.0, 0.0], [6.0, 1.0, 3.0]], dtype=DOUBLE)  # integers, numbers, categories
INTEGERS, CATEGORIES = {0: range(7)}, {2: range(4)}


def mixed_rows(num_rows=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = MIXED[1] * torch.rand(num_rows, 3, generator=generator, dtype=DOUBLE)
    x[:, [0, 2]] = x[:, [0, 2]].round()
    y = (x[:, 0] - 4).abs() / 3 + (5 * x[:, 1]).sin() + (x[:, 2] == 1) + x[:, 0] * (x[:, 2] == 3) / 6
    return x, y.unsqueeze(-1)


def gp(kernel, x, y, **options):
    model = SingleTaskGP(x, y, covar_module=kernel, **options)
    model.likelihood.noise = 0.01
    return model.eval()


def forest_gp(x, y, seed=0, **options):
    return gp(ScaleKernel(RandomForestKernel(x, y[:, 0], 30, random_state=seed)), x, y, **options)


def grid_of(*columns):
    return torch.cartesian_prod(*(torch.as_tensor(column, dtype=DOUBLE) for column in columns)).view(-1, len(columns))


def best_of(acq_function, points):
    """By brute force, the highest value of many points."""
    with torch.no_grad():
        return max(acq_function(block.unsqueeze(-2)).max() for block in points.split(1000))


def searched(acq_function, **options):
    return optimize_acqf_cells(acq_function, MIXED, INTEGERS, CATEGORIES, **{"random_state": 0, **options})


@pytest.fixture
def improvement():
    x, y = mixed_rows()
    return LogExpectedImprovement(forest_gp(x, y), best_f=y.max())


class TestTheBestIsFound:
    """Brute force over every point, or every box between the thresholds of scikit-learn's own trees."""

    @pytest.mark.parametrize("raw_samples", [2048, 16])
    @pytest.mark.parametrize("seed", range(3))
    def test_of_integers_and_categories(self, raw_samples, seed):
        generator = torch.Generator().manual_seed(seed)
        values = [range(6), range(5), range(4), range(3), range(4)]
        points = grid_of(*values)
        x = points[torch.randperm(len(points), generator=generator)[:50]]
        y = -(x[:, :1] - 3).abs() - (x[:, 1:2] - x[:, 2:3]).abs() + 2 * (x[:, 3:4] == 2) + (x[:, 4:] == 1)
        bounds = torch.stack([points.amin(0), points.amax(0)])
        for acq_function in (PosteriorMean(forest_gp(x, y)), LogExpectedImprovement(forest_gp(x, y), y.max())):
            found, value = optimize_acqf_cells(
                acq_function,
                bounds,
                dict(enumerate(values[:3])),
                dict(enumerate(values[3:], 3)),
                raw_samples=raw_samples,
                random_state=seed,
            )
            assert (points == found).all(-1).any()
            torch.testing.assert_close(value.squeeze(), best_of(acq_function, points))

    @pytest.mark.parametrize("num_columns", [1, 2])
    @pytest.mark.parametrize("transformed", [False, True])
    def test_of_all_boxes_between_thresholds(self, num_columns, transformed):
        generator = torch.Generator().manual_seed(num_columns)
        x = 8 * torch.rand(40, num_columns, generator=generator, dtype=DOUBLE)
        y = x.sin().sum(-1, keepdim=True)
        transform = Normalize(num_columns, bounds=torch.tensor([[0.0], [8.0]], dtype=DOUBLE).expand(2, num_columns))
        inside = transform(x) if transformed else x
        trees = ExtraTreesRegressor(
            {1: 100, 2: 10}[num_columns], min_samples_leaf=4, max_features=1.0, random_state=0
        ).fit(inside, y[:, 0])
        kernel = ScaleKernel(RandomForestKernel.from_forest(trees))
        options = {"input_transform": transform, "outcome_transform": Standardize(1)} if transformed else {}
        acq_function = UpperConfidenceBound(gp(kernel, x, y, **options), beta=2.0)
        boxes = grid_of(*(self.middles(trees, column, 8.0 if transformed else 1.0) for column in range(num_columns)))
        bounds = torch.tensor([[0.0], [8.0]], dtype=DOUBLE).expand(2, num_columns)
        found, value = optimize_acqf_cells(acq_function, bounds, raw_samples=64, random_state=0)
        torch.testing.assert_close(value.squeeze(), best_of(acq_function, boxes))
        torch.testing.assert_close(value, acq_function(found))
        for column, walls in enumerate(ModelCells(acq_function.model).walls(bounds)):
            ends = torch.cat([bounds[:1, 0], walls, bounds[1:, 0]])
            torch.testing.assert_close((ends[1:] + ends[:-1]) / 2, boxes[:, column].unique())

    @staticmethod
    def middles(trees, column, unit):
        walls = {0.0, 8.0}
        for tree in trees.estimators_:
            inner = tree.tree_.feature == column
            walls |= set((tree.tree_.threshold[inner] * unit).tolist())
        walls = torch.tensor(sorted(wall for wall in walls if 0 <= wall <= 8), dtype=DOUBLE)
        return (walls[1:] + walls[:-1]) / 2

    @pytest.mark.parametrize("seed", range(3))
    def test_no_cell_on_a_line_through_it_is_better(self, improvement, seed):
        space = space_of(MIXED, INTEGERS, CATEGORIES, None, None, None)
        search = CellSearch(improvement, ModelCells(improvement.model), space, MIXED[:0], 2048)
        point = space.sampled(1, seed)
        found = search.refined(point[0], search.evaluated(point)[0]).unsqueeze(0)
        for column, values in enumerate([range(7), torch.linspace(0, 1, 2001), range(4)]):
            line = found.repeat(len(values), 1)
            line[:, column] = torch.as_tensor(values)
            assert best_of(improvement, line) <= improvement(found) + 1e-9


KERNELS = {
    "forest": lambda x, y: ScaleKernel(RandomForestKernel(x, y[:, 0], 20, random_state=0)),
    "sampled heights": lambda x, y: RandomForestKernel(x, y[:, 0], 20, heights="sampled", random_state=0),
    "active columns": lambda x, y: RandomForestKernel(x, y[:, 0], 20, random_state=0, active_dims=(1, 0)),
    "active columns of a sum": lambda x, y: ScaleKernel(
        RandomForestKernel(x, y[:, 0], 20, random_state=0) + ConstantKernel(), active_dims=(0, 1, 2)
    ),
    "Mondrian": lambda x, y: ScaleKernel(MondrianKernel(x, 20, random_state=0)),
    "fast cluster": lambda x, y: StandardizedKernel(
        FastClusterKernel((x - x.mean(0)) / x.std(0), 20, random_state=0), x
    ),
    "function": lambda x, y: PartitionKernel(lambda z: torch.stack([z[..., 0], 4 * z[..., 1], z[..., 2]], -1).long()),
    "mixture": lambda x, y: PartitionMixtureKernel(
        [RandomForestKernel(x, y[:, 0], 20, random_state=0), RandomBinningKernel(x, 20, random_state=0)]
    ),
    "sum": lambda x, y: IterativeKernel(
        ScaleKernel(RandomForestKernel(x, y[:, 0], 20, random_state=0)) + ConstantKernel()
    ),
}


class TestEveryKindOfModel:
    @pytest.mark.parametrize("kind", KERNELS)
    def test_better_than_random_points_by_one_evaluation_for_each_cell(self, kind, monkeypatch):
        x, y = mixed_rows()
        acq_function = LogExpectedImprovement(gp(KERNELS[kind](x, y), x, y), best_f=y.max())
        evaluated, forward = [], acq_function.forward
        monkeypatch.setattr(acq_function, "forward", lambda X: evaluated.append(X) or forward(X))
        found, value = searched(acq_function, num_restarts=3, raw_samples=64)
        points = torch.cat(evaluated[:-1]).squeeze(-2)  # the last evaluation is of the result
        monkeypatch.undo()
        torch.testing.assert_close(value, acq_function(found))
        grid = grid_of(range(7), torch.linspace(0.005, 0.995, 34), range(4))
        assert value >= best_of(acq_function, grid) - 1e-9
        kernel = next(each for each in acq_function.model.modules() if isinstance(each, PartitionKernel))
        is_standardized = isinstance(acq_function.model.covar_module, StandardizedKernel)
        seen = acq_function.model.covar_module.standardized(points) if is_standardized else points
        assert len(points) > 20
        assert len(kernel.cluster_ids(seen).unique(dim=0)) == len(points)

    @pytest.mark.parametrize("q", [1, 3])
    @pytest.mark.parametrize("kind", [qLogExpectedImprovement, qLogNoisyExpectedImprovement])
    def test_batches_by_monte_carlo(self, kind, q):
        x, y = mixed_rows()
        model = forest_gp(x, y)
        acq_function = kind(model, y.max()) if kind is qLogExpectedImprovement else kind(model, x)
        known = acq_function.X_pending
        found, value = searched(acq_function, q=q, num_restarts=2, raw_samples=32, random_state=0)
        assert found.shape == (q, 3)
        assert len(found.unique(dim=0)) == q
        assert acq_function.X_pending is known
        torch.testing.assert_close(value, acq_function(found))
        alone, best = searched(acq_function, num_restarts=2, raw_samples=32, random_state=0)
        assert torch.equal(found[:1], alone)
        assert value >= best

    def test_a_batch_has_the_best_given_what_is_pending(self):
        x, y = mixed_rows()
        acq_function = qLogExpectedImprovement(forest_gp(x, y), y.max())
        points, fixed = grid_of(range(7), [0.5], range(4)), {"fixed_features": {1: 0.5}, "random_state": 0}
        found, _ = searched(acq_function, q=3, **fixed)
        for number in range(3):
            acq_function.set_X_pending(found[:number] if number else None)
            others = points[(points.unsqueeze(1) != found[:number]).any(-1).all(-1)]
            value = acq_function(found[number : number + 1]).squeeze()  # jitter for a batch changes it by 1e-5
            torch.testing.assert_close(value, best_of(acq_function, others), atol=1e-4, rtol=0)

    def test_several_models(self):
        x, y = mixed_rows()
        models = ModelListGP(forest_gp(x, y, seed=1), forest_gp(x[:30], -y[:30], seed=2))
        difference = ScalarizedPosteriorTransform(torch.tensor([1.0, -1.0], dtype=DOUBLE))
        acq_function = UpperConfidenceBound(models, beta=1.0, posterior_transform=difference)
        _, value = searched(acq_function, random_state=0)
        points = grid_of(range(7), torch.linspace(0.0005, 0.9995, 500), range(4))
        assert value >= best_of(acq_function, points) - 1e-9


class TestTheSpace:
    def test_linear_and_nonlinear_constraints(self, improvement):
        linear = [(torch.tensor([0, 2]), torch.tensor([-1.0, -1.0], dtype=DOUBLE), -4.0)]  # integer + category <= 4
        nonlinear = [(lambda x: 0.3 - (x[1] - 0.5).abs(), True)]
        found, value = searched(
            improvement,
            inequality_constraints=linear,
            nonlinear_inequality_constraints=nonlinear,
            random_state=0,
        )
        assert found[0, 0] + found[0, 2] <= 4
        assert (found[0, 1] - 0.5).abs() <= 0.3
        points = grid_of(range(7), torch.linspace(0.2, 0.8, 301), range(4))
        points = points[points[:, 0] + points[:, 2] <= 4]
        assert value >= best_of(improvement, points) - 1e-9

    def test_points_to_avoid(self, improvement):
        points = grid_of(range(7), [0.25], range(4))
        fixed = {"fixed_features": {1: 0.25}, "random_state": 0}
        first, best = searched(improvement, **fixed)
        found, value = searched(improvement, X_avoid=first, **fixed)
        others = points[(points != first).any(-1)]
        assert (others == found).all(-1).any()
        torch.testing.assert_close(value.squeeze(), best_of(improvement, others))

    def test_a_batch_of_all_points_that_there_are(self):
        x, y = mixed_rows()
        acq_function = qLogExpectedImprovement(forest_gp(x, y), y.max())
        fixed = {"fixed_features": {0: 3.0, 1: 0.5}, "random_state": 0}
        found, _ = searched(acq_function, q=4, **fixed)
        assert sorted(found[:, 2].tolist()) == [0, 1, 2, 3]
        with pytest.raises(RuntimeError, match="X_avoid"):
            searched(acq_function, q=5, **fixed)
        assert acq_function.X_pending is None

    def test_feasible_points_where_random_ones_are_not(self, improvement):
        needle = [(lambda x: 1e-9 - (x[1] - 0.123456789).abs(), True)]
        call = {"nonlinear_inequality_constraints": needle, "raw_samples": 16, "random_state": 0}
        with pytest.raises(RuntimeError, match="batch_initial_conditions"):
            searched(improvement, **call)
        start = torch.tensor([[[3.0, 0.123456789, 0.0]]], dtype=DOUBLE)
        found, value = searched(improvement, batch_initial_conditions=start, **call)
        assert found[0, 1] == start[0, 0, 1]
        assert value > improvement(start[0])


def test_a_seed_reproduces_and_global_states_are_not_read(improvement):
    state = torch.get_rng_state()
    first, again = (searched(improvement, raw_samples=32, random_state=5) for _ in range(2))
    assert torch.equal(first[0], again[0])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bounds": MIXED.T}, "2 x d"),
        ({"bounds": MIXED.flip(0)}, "lower ones first"),
        ({"bounds": MIXED.long()}, "floating point"),
        ({"discrete_dims": {0: [7.0]}}, "within its bounds"),
        ({"discrete_dims": {0: []}}, "at least one"),
        ({"discrete_dims": {3: [1.0]}}, "columns from 0 to 2"),
        ({"cat_dims": {0: [1.0, 2.0]}}, "in both"),
        ({"fixed_features": {0: -1.0}}, "within its bounds"),
        ({"inequality_constraints": [(torch.tensor([[0, 1]]), torch.ones(1), 0.0)]}, "single points"),
        ({"nonlinear_inequality_constraints": [(torch.sum, False)]}, "single points"),
        ({"X_avoid": torch.zeros(2, 2)}, "n x 3"),
        ({"batch_initial_conditions": torch.zeros(2, 2, 3)}, "n x 3"),
        ({"q": 0}, "1 or more"),
        ({"q": 2}, "qLogExpectedImprovement"),
        ({"random_state": "seed"}, "seed"),
        ({"bounds": MIXED.float()}, "bounds like the inputs of the model"),
        ({"bounds": MIXED[:, :1], "discrete_dims": None, "cat_dims": None}, "bounds like the inputs of the model"),
        ({"discrete_dims": [1]}, "discrete_dims as a dictionary"),
        ({"cat_dims": {1: ["red", "blue"]}}, "number the categories"),
    ],
)
def test_what_cannot_be_used_is_refused(improvement, change, message):
    arguments = {"bounds": MIXED, "discrete_dims": INTEGERS, "cat_dims": CATEGORIES, **change}
    with pytest.raises(ValueError, match=message):
        optimize_acqf_cells(improvement, **arguments)


def test_other_kernels_are_refused():
    x, y = mixed_rows()
    some_columns = ScaleKernel(MaternKernel(active_dims=(1, 2)))  # whose active_dims the ScaleKernel has as well
    for kernel in (MaternKernel(), KERNELS["forest"](x, y) + MaternKernel(), some_columns):
        with pytest.raises(TypeError, match="got a MaternKernel.*optimize_acqf_discrete_local_search"):
            optimize_acqf_cells(PosteriorMean(gp(kernel, x, y)), MIXED)
    with pytest.raises(TypeError, match="with a model"):
        optimize_acqf_cells(torch.nn.Identity(), MIXED)


@pytest.mark.slow
def test_the_searches_that_the_refusal_names_run():
    x, y = mixed_rows()
    mean = PosteriorMean(gp(KERNELS["forest"](x, y) + MaternKernel(), x, y))
    options = {"q": 1, "num_restarts": 2, "raw_samples": 16}
    grid = [torch.arange(7.0, dtype=DOUBLE), torch.linspace(0, 1, 6, dtype=DOUBLE), torch.arange(4.0, dtype=DOUBLE)]
    for _, value in (
        optimize_acqf_discrete_local_search(mean, grid, **options),
        optimize_acqf(mean, MIXED, options={"with_grad": False}, **options),
    ):
        assert value.item() > y.mean().item()


def test_the_examples_run():
    assert doctest.testmod(optimize).attempted > 5
    assert doctest.testmod(optimize).failed == 0


def test_without_botorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "botorch", None)
    monkeypatch.delitem(sys.modules, "gpytorch_partition.botorch")
    with pytest.raises(ImportError, match=r'pip install "gpytorch_partition\[botorch\]"'):
        importlib.import_module("gpytorch_partition.botorch")


@pytest.mark.slow
def test_the_package_itself_does_not_import_botorch():
    code = "import sys, gpytorch_partition; sys.exit('botorch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_values_keep_their_digits():
    """Points to avoid are told by them."""
    values, bounds = [0.1, 0.2, 0.3, 0.7], torch.tensor([[0.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
    grid = torch.cartesian_prod(torch.tensor(values, dtype=torch.float64), torch.arange(4, dtype=torch.float64))
    kernel = RandomForestKernel(grid, grid[:, 0], num_trees=5, random_state=0)
    acq_function = LogExpectedImprovement(SingleTaskGP(grid, grid[:, :1], covar_module=kernel), best_f=0.0)
    point, _ = optimize_acqf_cells(
        acq_function, bounds, discrete_dims={0: values, 1: range(4)}, X_avoid=grid[:-1], random_state=0
    )
    assert torch.equal(point, grid[-1:])
