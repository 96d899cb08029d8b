"""Files with a right digest whose content cannot be: each is refused when it is loaded, at once, by a clear error."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from gpytorch_partition.command_line.model_file import load_model
from gpytorch_partition.models import FeatureSpaceGP

from .saved import kind

FOREST = "covar_module.base_kernel.partition."
PARTITION = FOREST  # of single kernels
LARGE = 2**62

cached_kind = cache(kind)
Content = dict[str, Any]
Change = Callable[[Content], Any]


# Changes of a part of the content, at a path of names.


def put(*path: Any, value: Any) -> Change:
    """A value in place of another."""

    def change(content: Content) -> None:
        for name in path[:-1]:
            content = content[name]
        assert path[-1] in content or isinstance(content, list)
        content[path[-1]] = value

    return change


def without(*path: Any) -> Change:
    """A part that is missing."""

    def change(content: Content) -> None:
        for name in path[:-1]:
            content = content[name]
        del content[path[-1]]

    return change


def by(function: Callable[[Any], Any], *path: Any) -> Change:
    """A part that is changed by a function."""

    def change(content: Content) -> None:
        for name in path[:-1]:
            content = content[name]
        content[path[-1]] = function(content[path[-1]])

    return change


def at(place: Any, value: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """A number in a tensor."""

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.clone()
        tensor[place] = value
        return tensor

    return changed


def bits(value: float, like: torch.dtype = torch.float64) -> int:
    integers = torch.int64 if like == torch.float64 else torch.int32
    return int(torch.tensor([value], dtype=like).view(integers))


def state(name: str, *path: Any) -> tuple[Any, ...]:
    return ("regressor", name, *path)


def tensor(name: str) -> tuple[Any, ...]:
    return ("regressor", "model", name)


def shorter(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:-1].clone()


def longer(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor, tensor[-1:]])


def _cycle(content: Content) -> None:
    """The first child of the first root with two children points back to the root's place in the tree."""
    children = content["regressor"]["model"][FOREST + "child_nodes"].clone()
    inner = (children[:, 0] != torch.arange(len(children))).nonzero()[:, 0]
    children[inner[1], 0] = inner[0]
    content["regressor"]["model"][FOREST + "child_nodes"] = children


def _apart(content: Content) -> None:
    """Two nodes of a tree below each other, which no root leads to: every node still has one parent."""
    model = content["regressor"]["model"]
    children = model[FOREST + "child_nodes"].clone()
    is_inner = children[:, 0] != torch.arange(len(children))
    links = [(node, side) for node in is_inner.nonzero()[:, 0].tolist() for side in (0, 1)]
    parent, side, first = next(
        (node, side, int(children[node, side]))
        for node, side in links
        if is_inner[children[node, side]] and is_inner[children[children[node, side].long(), 0]]
    )
    second = int(children[first, 0])
    children[parent, side], children[second, 0] = children[second, 0].item(), first
    model[FOREST + "child_nodes"] = children


def _shared_node(content: Content) -> None:
    children = content["regressor"]["model"][FOREST + "child_nodes"].clone()
    inner = (children[:, 0] != torch.arange(len(children))).nonzero()[0]
    children[inner, 1] = children[inner, 0]
    content["regressor"]["model"][FOREST + "child_nodes"] = children


def _other_tree(content: Content) -> None:
    model = content["regressor"]["model"]
    children, starts = model[FOREST + "child_nodes"].clone(), model[FOREST + "tree_nodes"]
    children[0, 0], children[starts[1], 0] = children[starts[1], 0].item(), children[0, 0].item()
    model[FOREST + "child_nodes"] = children


def _itself(content: Content) -> None:
    names: list[Any] = []
    names.append(names)
    content["columns"] = names


def _expanded(content: Content) -> None:
    content["regressor"]["train_x"] = torch.zeros(1, 4, dtype=torch.float64).expand(10**12, 4)


def _first(endings: str) -> Change:
    """Applies to the first tensor whose name ends so: a NaN in it."""

    def change(content: Content) -> None:
        model = content["regressor"]["model"]
        name = next(name for name in model if name.endswith(endings))
        model[name] = torch.full_like(model[name], torch.nan)

    return change


def at_end(ending: str, function: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """A change of the first tensor whose name ends so."""

    def change(content: Content) -> None:
        model = content["regressor"]["model"]
        name = next(name for name in model if name.endswith(ending))
        model[name] = function(model[name])

    return change


NAN = torch.nan
FORESTS: dict[str, Change] = {
    "a cycle": _cycle,
    "a node below itself": _apart,
    "a node with two parents": _shared_node,
    "a child in another tree": _other_tree,
    "a negative child": by(at((0, 0), -1), *tensor(FOREST + "child_nodes")),
    "a child that is not there": by(at((0, 1), 10**6), *tensor(FOREST + "child_nodes")),
    "half a leaf": by(lambda t: at((len(t) - 1, 0), 0)(t), *tensor(FOREST + "child_nodes")),
    "three children": by(lambda t: torch.cat([t, t[:, :1]], 1), *tensor(FOREST + "child_nodes")),
    "no children": by(lambda t: t[:0], *tensor(FOREST + "child_nodes")),
    "a column that is not there": by(at(0, 99), *tensor(FOREST + "feature")),
    "a negative column": by(at(0, -1), *tensor(FOREST + "feature")),
    "too few columns": put(*tensor(FOREST + "num_columns"), value=torch.tensor([2])),
    "too many columns": put(*tensor(FOREST + "num_columns"), value=torch.tensor([LARGE])),
    "no number of columns": put(*tensor(FOREST + "num_columns"), value=torch.zeros(0, dtype=torch.int64)),
    "a threshold less": by(shorter, *tensor(FOREST + "threshold")),
    "a threshold that is NaN": by(lambda t: at(0, bits(NAN, torch.float32))(t), *tensor(FOREST + "threshold")),
    "thresholds as floats": by(lambda t: t.float(), *tensor(FOREST + "threshold")),
    "columns of another dtype": by(lambda t: t.long(), *tensor(FOREST + "feature")),
    "falling starts of trees": by(at(1, LARGE), *tensor(FOREST + "tree_nodes")),
    "negative starts of trees": by(at(0, -1), *tensor(FOREST + "tree_nodes")),
    "a tree of even size": by(lambda t: at(1, int(t[1]) + 1)(t), *tensor(FOREST + "tree_nodes")),
    "a tree without nodes": by(lambda t: at(1, 0)(t), *tensor(FOREST + "tree_nodes")),
    "no trees": put(*tensor(FOREST + "tree_nodes"), value=torch.zeros(0, dtype=torch.int64)),
    "weights of trees that are NaN": by(at(0, bits(NAN)), *tensor(FOREST + "tree_weights")),
    "negative weights of trees": by(at(0, bits(-1.0)), *tensor(FOREST + "tree_weights")),
    "a weight less": by(shorter, *tensor(FOREST + "tree_weights")),
    "an impurity more": by(longer, *tensor(FOREST + "impurity")),
    "impurities that are NaN": by(lambda t: at(0, bits(NAN, torch.float32))(t), *tensor(FOREST + "impurity")),
    "a flag of missing values less": by(shorter, *tensor(FOREST + "missing_left")),
    "sets of categories that are not there": put(
        *tensor(FOREST + "category_set"), value=torch.full((1,), 5, dtype=torch.int32)
    ),
    "auxiliary leaves": lambda content: content["regressor"]["model"].update(
        {FOREST + "is_auxiliary": torch.ones(len(content["regressor"]["model"][FOREST + "feature"]), dtype=torch.bool)}
    ),
    "places of levels without starts": put(
        *tensor(FOREST + "level_places"), value=torch.zeros(4, 3, dtype=torch.int32)
    ),
    "starts of levels without places": put(*tensor(FOREST + "level_starts"), value=torch.tensor([0, 1, 2, 3, 4])),
    "unknown heights": put(*tensor("covar_module.base_kernel._heights.code"), value=torch.tensor(77)),
    "negative heights": put(*tensor("covar_module.base_kernel._heights.code"), value=torch.tensor(-1)),
}
COLUMNS = "covar_module.base_kernel.columns.numbers"
MODELS: dict[str, Change] = {
    "an outputscale that is NaN": by(lambda t: t * NAN, *tensor("covar_module.raw_outputscale")),
    "an infinite noise": by(lambda t: t + torch.inf, *tensor("likelihood.noise_covar.raw_noise")),
    "a mean that is NaN": by(lambda t: t * NAN, *tensor("mean_module.raw_constant")),
    "a complex outputscale": by(lambda t: t.to(torch.complex128), *tensor("covar_module.raw_outputscale")),
    "a whole outputscale": by(lambda t: t.long(), *tensor("covar_module.raw_outputscale")),
    "two outputscales": by(lambda t: t.repeat(2), *tensor("covar_module.raw_outputscale")),
    "no noise": by(lambda t: t[:0], *tensor("likelihood.noise_covar.raw_noise")),
    "a bound that is NaN": _first("lower_bound"),
    "bounds in another order": by(
        lambda t: torch.full_like(t, -1.0), *tensor("covar_module.raw_outputscale_constraint.upper_bound")
    ),
    "a text for a tensor": put(*tensor("covar_module.raw_outputscale"), value="1.0"),
    "a missing tensor": without(*tensor("covar_module.raw_outputscale")),
    "an unknown tensor": lambda content: content["regressor"]["model"].update(more=torch.zeros(1)),
    "a negative column": put(*tensor(COLUMNS), value=torch.tensor([-1])),
    "a column twice": put(*tensor(COLUMNS), value=torch.tensor([0, 0])),
    "columns that are not there": put(*tensor(COLUMNS), value=torch.tensor([0, 1, 2, 9])),
    "fewer columns than the kernel": put(*tensor(COLUMNS), value=torch.tensor([0, 1])),
    "a range of one end": by(lambda t: t[:1], *tensor("covar_module.base_kernel.built_on.middle")),
    "rows that are NaN": by(at((0, 0), NAN), *state("train_x")),
    "infinite targets": by(at(0, torch.inf), *state("train_y")),
    "a target less": by(shorter, *state("train_y")),
    "no rows": by(lambda t: t[:0], *state("train_x")),
    "rows of whole numbers": by(lambda t: t.long(), *state("train_x")),
    "rows of half precision": by(lambda t: t.half(), *state("train_x")),
    "rows in three dimensions": by(lambda t: t.unsqueeze(0), *state("train_x")),
    "a column less": by(lambda t: t[:, :-1].clone(), *state("train_x")),
    "absurdly many rows": _expanded,
    "a scale of zero": by(at(0, 0.0), *state("x_scale")),
    "a negative scale": by(at(0, -1.0), *state("x_scale")),
    "a mean less": by(shorter, *state("x_mean")),
    "means that are NaN": by(at(0, NAN), *state("x_mean")),
    "a scale of targets that is zero": put(*state("y_scale"), value=0.0),
    "a scale of targets that is NaN": put(*state("y_scale"), value=NAN),
    "a mean of targets that is text": put(*state("y_mean"), value="1"),
    "two means of targets": put(*state("y_mean"), value=[0.0, 1.0]),
    "another kernel": put(*state("parameters", "kernel"), value="none"),
    "a list for a kernel": put(*state("parameters", "kernel"), value=["forest"]),
    "a negative number of partitions": put(*state("parameters", "num_partitions"), value=-5),
    "partitions as text": put(*state("parameters", "num_partitions"), value="5"),
    "unknown parameters": put("regressor", "parameters", value={"kernel": "forest", "unknown": 1}),
    "parts of no default model": put(*state("parts"), value=["nothing"]),
    "a part twice": put(*state("parts"), value=["linear", "linear"]),
    "negative numbers of rows": put(*state("counted_rows"), value=-torch.arange(30) - 1),
    "negative weights of rows": put(*state("row_weights"), value=-torch.ones(30, dtype=torch.float64)),
    "weights of other rows": put(*state("row_weights"), value=torch.ones(3, dtype=torch.float64)),
    "names that are numbers": put(*state("feature_names"), value=[1, 2, 3, 4]),
    "too many names": put(*state("feature_names"), value=list("abcdefgh")),
    "a number for names": put(*state("feature_names"), value=7),
    "stages without seconds": put(*state("seconds"), value=[1, 2]),
    "iterations below 0": put(*state("n_iter"), value=-1),
    "no state": put("regressor", value=None),
    "a list for a state": put("regressor", value=[1, 2]),
    "columns within themselves": _itself,
    "columns that are numbers": put("columns", value=[1, 2, 3, 4]),
    "columns of the same name": put("columns", value=["a", "a", "b", "c"]),
    "a column too many": put("columns", value=list("abcde")),
    "columns that the reader does not know": put("columns", value=list("abcd")),
    "a reader of dates alone": put("reader", "columns", 4, "kind", value="dates"),
    "an unknown notation": put("reader", "columns", 0, "notation", value="roman"),
    "a target that is a number": put("target", value=3),
    "an id that is a number": put("id", value=3),
    **{f"without {name}": without(name) for name in ("columns", "reader", "target", "id", "regressor")},
    **{
        f"without {name} in the state": without("regressor", name)
        for name in ("parameters", "train_x", "train_y", "x_mean", "y_scale", "model", "parts", "noise", "n_iter")
    },
}
MONDRIAN: dict[str, Change] = {
    "a lifetime that is NaN": by(at(0, bits(NAN)), *tensor(PARTITION + "lifetime_bits")),
    "a negative lifetime": by(at(0, bits(-1.0)), *tensor(PARTITION + "lifetime_bits")),
    "an infinite lifetime": by(at(0, bits(torch.inf)), *tensor(PARTITION + "max_lifetime_bits")),
    "a lifetime beyond the last": by(at(0, bits(1e9)), *tensor(PARTITION + "lifetime_bits")),
    "two lifetimes": by(longer, *tensor(PARTITION + "lifetime_bits")),
    "a box that is NaN": by(at((0, 0), bits(NAN)), *tensor(PARTITION + "box")),
    "a box turned inside out": by(lambda t: t.flip(0), *tensor(PARTITION + "box")),
    "three walls": by(longer, *tensor(PARTITION + "box")),
    "a box of other columns": by(lambda t: t[:, :-1].clone(), *tensor(PARTITION + "box")),
    "keys as floats": by(lambda t: t.double(), *tensor(PARTITION + "tree_keys")),
    "a matrix without a center": put(*tensor(PARTITION + "matrix_bits"), value=torch.zeros(1, 4, 4, dtype=torch.int64)),
    "a center without a matrix": put(*tensor(PARTITION + "center_bits"), value=torch.zeros(4, dtype=torch.int64)),
}
FAST_CLUSTER: dict[str, Change] = {
    "negative numbers of centers": by(at(0, -1), *tensor(PARTITION + "sizes")),
    "no center": by(at(0, 0), *tensor(PARTITION + "sizes")),
    "absurdly many centers": by(at(0, LARGE), *tensor(PARTITION + "sizes")),
    "a center more": by(longer, *tensor(PARTITION + "centers")),
    "centers that are NaN": by(at((0, 0), bits(NAN)), *tensor(PARTITION + "centers")),
    "no column that is kept": by(at(0, False), *tensor(PARTITION + "kept")),
    "a flag less": by(lambda t: t[:, :-1].clone(), *tensor(PARTITION + "kept")),
    "projections of other sizes": lambda content: content["regressor"]["model"].update(
        {PARTITION + "random_projections": torch.zeros(1, 2, 3, dtype=torch.int64)}
    ),
}
SEVERAL: dict[str, Change] = {
    "a covariance that is none": put(*tensor("task_covariance"), value=torch.tensor([[1.0, 5.0], [5.0, 1.0]]).double()),
    "a covariance that is NaN": put(*tensor("task_covariance"), value=torch.full((2, 2), NAN).double()),
    "one that is not symmetric": put(*tensor("task_covariance"), value=torch.tensor([[1.0, 0.5], [0, 1]]).double()),
    "negative noise": by(lambda t: -t, *tensor("noise")),
    "a mean of targets less": by(lambda values: values[:1], *state("y_mean")),
    "names of other targets": put(*state("target_names"), value=["a"]),
    "targets of which none is known": by(lambda t: t * NAN, *state("train_y")),
}
AUTO: dict[str, Change] = {
    "values of other leaves": at_end("leaf_values", shorter),
    "values of leaves that are NaN": at_end("leaf_values", at(0, NAN)),
    "a scale of columns of zero": at_end("units.scale", at(0, 0)),
    "means of other columns": at_end("units.mean", shorter),
    "inducing points that are NaN": at_end("landmarks.bits", at((0, 0), bits(NAN))),
    "inducing points of other columns": at_end("landmarks.bits", lambda t: t[:, :-1].clone()),
    "lengthscales of other columns": at_end("raw_lengthscale", lambda t: t[:, :-1].clone()),
    "a lengthscale that is NaN": _first("raw_lengthscale"),
    "a part less": by(lambda parts: parts[:-1], *state("parts")),
    "noise of another kind": put(*state("noise", "noise_varies"), value="yes"),
    "a threshold that is NaN": put(*state("noise", "threshold"), value=NAN),
    "a view without columns": put(*state("log_predictive_density"), value="high"),
}
TABLE: dict[str, Change] = {
    "a level twice": put(*state("encoder", "columns", 1, "levels"), value=["red", "red", "blue"]),
    "no levels": put(*state("encoder", "columns", 1, "levels"), value=None),
    "levels of another number": put(*state("encoder", "columns", 1, "levels"), value=["red"]),
    "an unknown kind": put(*state("encoder", "columns", 0, "kind"), value="picture"),
    "an unknown part of dates": put(*state("encoder", "columns", 3, "parts"), value=["century"]),
    "a column twice": put(*state("encoder", "columns", 1, "name"), value="size"),
    "names of other columns": put(*state("encoder", "feature_names"), value=["a", "b"]),
    "an encoder without columns": put(*state("encoder", "columns"), value=[]),
    "a column more than rows have": by(lambda columns: [*columns, columns[0]], *state("encoder", "columns")),
    "a view of negative widths": at_end("view.widths", at(1, -1)),
    "a view of absurd widths": at_end("view.widths", at(1, LARGE)),
    "a view of negative levels": at_end("view.level_counts", at(1, -1)),
    "a view of absurdly many folds": at_end("view.fold_counts", at(1, LARGE)),
    "a view with a value less": at_end("view.values", shorter),
    "a view of other columns": at_end("view.medians", shorter),
    "medians that are NaN": at_end("view.medians", at(0, bits(NAN))),
    "no view": put(*state("has_view"), value=False),
}
WEIGHTED: dict[str, Change] = {
    "a weight of zero": at_end("noise_covar.weights", at(0, 0.0)),
    "weights that are NaN": at_end("noise_covar.weights", at(0, NAN)),
    "a weight less": at_end("noise_covar.weights", shorter),
    "a unit of zero": at_end("noise_covar.unit", lambda t: t * 0),
}


def counts(*path: Any) -> tuple[Any, ...]:
    return ("model", "statistics", *path)


COUNTS: dict[str, Change] = {
    "negative counts": by(lambda t: -t, *counts("counts")),
    "counts that are NaN": by(lambda t: at((0, 0), NAN)(t.double()), *counts("counts")),
    "a count more": by(lambda t: at((-1, -1), int(t[-1, -1]) + 1)(t), *counts("counts")),
    "counts of a part of the clusters": by(lambda t: t[:-1, :-1].clone(), *counts("counts")),
    "whole counts": by(lambda t: t.long(), *counts("counts")),
    "rows that are counted twice": by(lambda t: 2 * t, *counts("counts")),
    "sums that are NaN": by(at((0, 0), NAN), *counts("sums")),
    "sums of other rows": by(at((0, 1), 7.0), *counts("sums")),
    "sums of one column": by(lambda t: t[:, :1].clone(), *counts("sums")),
    "negative squares": by(at((0, 0), -5.0), *counts("squares")),
    "another number of rows": by(at((1, 1), 1e9), *counts("squares")),
    "squares in one dimension": by(lambda t: t.flatten(), *counts("squares")),
    "examples of other clusters": by(shorter, *counts("examples")),
    "another partition": put(*counts("partition"), value="0"),
    "no counts": without(*counts("counts")),
    "a noise of zero": put("model", "values", "noise", value=0.0),
    "an outputscale that is NaN": put("model", "values", "outputscale", value=NAN),
    "a mean that is text": put("model", "values", "mean", value="1"),
    "no outputscale": without("model", "values", "outputscale"),
    "values as a list": put("model", "values", value=[1.0]),
    "negative weights of levels": put("model", "level_weights", value=-torch.ones(3)),
    "a limit of clusters below 0": put("max_clusters", value=-1),
    "a limit of clusters that is text": put("max_clusters", value="many"),
    "no kernel": without("kernel"),
    "a kernel of another kind": put("kernel", value={}),
}
MONDRIAN_COUNTS: dict[str, Change] = {
    "labels in another order": by(lambda values: [values[0].flip(0), *values[1:]], *counts("values")),
    "labels of fewer partitions": by(lambda values: values[:-1], *counts("values")),
    "labels as floats": by(lambda values: [each.double() for each in values], *counts("values")),
    "no labels": put(*counts("values"), value=None),
}
CASES = {
    "forest": FORESTS,
    "mondrian": MODELS | MONDRIAN,
    "fast_cluster": FAST_CLUSTER,
    "several": SEVERAL,
    "auto": AUTO,
    "table": TABLE,
    "weighted": WEIGHTED,
    "counted_forest": COUNTS,
    "counted_mondrian": MONDRIAN_COUNTS,
}


def _written(name: str, change: Change, path: Any) -> Any:
    found = cached_kind(name)
    content = deepcopy(found.content)
    change(content)
    found.format.save(path, content)
    return found


def test_there_are_enough():
    assert sum(map(len, CASES.values())) > 150


@pytest.mark.filterwarnings("ignore::gpytorch_partition.estimators.OutsideRangeWarning")
@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases])
def test_it_is_refused_when_it_is_loaded(name, case, tmp_path):
    """By one line, before anything is predicted."""
    path = tmp_path / "model.gp"
    found = _written(name, CASES[name][case], path)
    with pytest.raises(found.errors) as caught:
        load_model(path) if not name.startswith("counted") else found.predicted(path)
    if not name.startswith("counted"):
        assert "is damaged" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_nothing_is_changed_by_a_state_that_is_refused(tmp_path):
    model = FeatureSpaceGP.load(_saved_counts(tmp_path), _unfitted())
    before, bad = model.predict(_points()), model.state_dict()
    bad["statistics"]["counts"] = -bad["statistics"]["counts"]
    with pytest.raises(RuntimeError):
        model.load_state_dict(bad)
    np.testing.assert_array_equal(model.predict(_points())[0], before[0])


def _saved_counts(folder: Any) -> Any:
    found = cached_kind("counted_forest")
    found.format.save(folder / "counts.pt", found.content)
    return folder / "counts.pt"


def _unfitted() -> Any:
    from gpytorch_partition import RandomForestKernel

    return RandomForestKernel()


def _points() -> torch.Tensor:
    return torch.zeros(2, 4, dtype=torch.float64)
