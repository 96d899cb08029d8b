"""Classes of GPyTorch and linear_operator that hold nothing of this package work as if it had never been imported."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import RBFKernel
from linear_operator.operators import (
    AddedDiagLinearOperator,
    ConstantDiagLinearOperator,
    DiagLinearOperator,
    IdentityLinearOperator,
    LinearOperator,
)

from gpytorch_partition.composition import claims

EYE = torch.eye(3)
PACKAGE = Path(claims.__file__).parents[1]

# Prints the attributes of the hosts' modules and classes that an import changes; submodules are new ones of modules.
CHANGES = """
import sys
import gpytorch, linear_operator, sklearn.base, torch

HOSTS = ("gpytorch", "linear_operator", "torch", "sklearn")

def attributes():
    modules = [module for name, module in sorted(sys.modules.items()) if name.partition(".")[0] in HOSTS]
    classes = {each for module in modules for each in list(vars(module).values()) if isinstance(each, type)}
    return {owner: dict(vars(owner)) for owner in [*modules, *classes]}

before = attributes()
import gpytorch_partition
after = attributes()
for owner, known in before.items():
    for name, value in after[owner].items():
        if known.get(name, None if isinstance(owner, type) else value) is not value:
            print(owner.__name__, name)
"""
CLAIMED = {
    "AddedDiagLinearOperator",
    "DefaultPredictionStrategy",
    "LazyEvaluatedKernelTensor",
    "LeaveOneOutPseudoLikelihood",
    "MulLinearOperator",
    "MultitaskKernel",
    "MultivariateNormal",
    "ProductKernel",
}


class OwnNormal(MultivariateNormal):
    """A subclass of a user's."""


class Mixin:
    """A base class whose `__new__` takes arguments."""

    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls)
        made.given = (args, kwargs)
        return made


class MixedNormal(MultivariateNormal, Mixin):
    """A subclass of a user's with another base class."""


@pytest.mark.parametrize(
    "diagonal",
    [
        DiagLinearOperator(torch.ones(3)),
        IdentityLinearOperator(3),
        ConstantDiagLinearOperator(torch.ones(1), diag_shape=3),
    ],
    ids=lambda diagonal: type(diagonal).__name__,
)
def test_a_diagonal_plus_a_tensor(diagonal):
    total = diagonal + EYE
    assert torch.equal(total.to_dense() if isinstance(total, LinearOperator) else total, 2 * EYE)


@pytest.mark.parametrize("kind", [MultivariateNormal, OwnNormal])
def test_normal_distributions_expand(kind):
    normal = kind(torch.zeros(3), EYE)
    for changed, shape in ((normal.expand([2]), (2,)), (normal.unsqueeze(0), (1,))):
        assert type(changed) is kind
        assert changed.batch_shape == shape
        assert torch.equal(changed.covariance_matrix, EYE.expand(*shape, 3, 3))
    several = MultitaskMultivariateNormal.from_repeated_mvn(normal, 2)
    assert type(several) is MultitaskMultivariateNormal
    assert several.event_shape == (3, 2)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
@pytest.mark.parametrize("kind", [MultivariateNormal, OwnNormal])
def test_copies_and_pickles(kind, copied):
    normal = copied(kind(torch.zeros(3), EYE))
    assert type(normal) is kind
    assert torch.equal(normal.covariance_matrix, EYE)


def test_a_subclass_keeps_its_other_bases():
    mixed = MixedNormal(torch.zeros(3), covariance_matrix=EYE)
    assert [len(given) for given in mixed.given] == [1, 1]


def test_what_the_host_refuses_is_refused_by_the_host():
    for wrong in (lambda: MultivariateNormal(1), lambda: AddedDiagLinearOperator(EYE), lambda: RBFKernel() * 2):
        with pytest.raises(Exception) as refusal:  # noqa: PT011
            wrong()
        assert PACKAGE not in Path(refusal.traceback[-1].path).parents


def test_signatures_are_those_of_the_host():
    assert list(inspect.signature(MultivariateNormal).parameters) == ["mean", "covariance_matrix", "validate_args"]


def test_a_module_under_construction_holds_nothing():
    unfinished = object.__new__(RBFKernel)
    assert not claims.is_concerned(unfinished)
    assert not claims.is_concerned(object.__new__(DiagLinearOperator))
    assert not claims.is_concerned(object.__new__(MultivariateNormal))
    assert not claims.is_concerned(gpytorch.models.GP())


def test_the_import_changes_the_construction_of_these_classes_and_nothing_else():
    found = subprocess.run([sys.executable, "-c", CHANGES], capture_output=True, text=True, check=True)
    assert sorted(found.stdout.splitlines()) == [f"{name} __new__" for name in sorted(CLAIMED)]
