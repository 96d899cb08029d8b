"""Forest kernels in Ax: the example of the documentation, the units of rows, and what is refused."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import torch

from gpytorch_partition import RandomForestKernel
from tests.botorch.test_documentation import SECTIONS

pytest.importorskip("ax")
from ax.generators.torch.botorch_modular.input_constructors.covar_modules import (  # noqa: E402
    covar_module_argparse,
)

from gpytorch_partition.ax import AxForestKernel, CellAcquisition  # noqa: E402

X = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
DATA = SimpleNamespace(X=1_000 * X, Y=X[:, :1])


def test_the_forest_grows_on_the_rows_of_the_model():
    arguments = covar_module_argparse(
        AxForestKernel, dataset=DATA, botorch_model_class=None, num_trees=20, random_state=0, remove_task_features=True
    )
    kernel = AxForestKernel(**arguments)  # Ax gives it X in other units than the model does
    forest = RandomForestKernel(X, X[:, 0], num_trees=20, random_state=0)
    assert torch.equal(kernel(X).to_dense(), kernel.outputscale * forest(X).to_dense())


def test_outcomes_are_modelled_one_by_one():
    with pytest.raises(ValueError, match="expected one outcome for a forest, got 2: give a ModelConfig to each"):
        covar_module_argparse(AxForestKernel, dataset=SimpleNamespace(Y=X), botorch_model_class=None)


def test_equality_constraints_are_refused():
    with pytest.raises(ValueError, match="no equality constraints in a search of cells"):
        CellAcquisition.optimize(SimpleNamespace(), 1, None, equality_constraints=[(X, X, 1.0)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_example_finds_a_good_trial(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", SECTIONS[1], re.DOTALL)
    names: dict = {}
    exec(compile(example, "page", "exec"), names)
    best, trials = names["client"].get_best_parameterization()[0], names["client"].summarize()
    assert best["category"] == "d"
    assert trials["value"].max() > 1.6
    assert not trials[["number", "integer", "category"]].duplicated().any()
