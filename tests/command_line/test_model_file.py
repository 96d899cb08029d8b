"""Model files: they bring the model back, run nothing, and say what is wrong with others."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpytorch_partition.command_line import model_file
from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.model_file import FORMAT, SavedModel, load_model, save_model
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.tables import TableEncoder

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(40, 2)
TABLE = {"a": X[:, 0], "b": np.array(["red", "blue"] * 20, dtype=object)}
READER = TableEncoder().fit({**TABLE, "y": X[:, 0]})
MODEL = PartitionGPRegressor("fast_cluster", 5, random_state=0).fit(TABLE, X[:, 0] + 0.3 * RANDOM.randn(40))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.pt"
    save_model(path, SavedModel(MODEL, READER, ["a", "b"], "y", "k"))
    return path


def test_a_model_comes_back(path):
    model = load_model(path)
    assert (model.columns, model.target, model.id) == (["a", "b"], "y", "k")
    assert model.reader.readings_ == READER.readings_
    new = {"a": np.array([0.5]), "b": np.array(["green"], dtype=object)}
    np.testing.assert_array_equal(model.regressor.predict(TABLE), MODEL.predict(TABLE))
    np.testing.assert_array_equal(model.regressor.predict(new), MODEL.predict(new))


def test_another_version_is_refused(path, monkeypatch):
    monkeypatch.setattr(model_file, "FORMAT", replace(FORMAT, version=1))
    with pytest.raises(CommandError, match="of version 4, and this gpytorch_partition reads versions 1 to 1"):
        load_model(path)


def test_a_truncated_file_is_refused(path):
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CommandError, match="is damaged: its digest is missing|model file of .*, or it is damaged"):
        load_model(path)


@pytest.mark.parametrize("missing", ["regressor", "columns", "target", "reader", "id"])
def test_an_incomplete_file_is_refused(path, missing):
    content = torch.load(path, weights_only=True)
    del content[missing]
    FORMAT.save(path, content)
    with pytest.raises(CommandError, match="is damaged"):
        load_model(path)


def test_other_states_are_refused(path):
    content = torch.load(path, weights_only=True)
    del content["regressor"]["model"]["covar_module.raw_outputscale"]
    FORMAT.save(path, content)
    with pytest.raises(CommandError, match="is damaged"):
        load_model(path)


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b""])
def test_other_files_are_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(CommandError, match="not a model file"):
        load_model(path)


def test_tensors_of_others_are_refused(path):
    torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(CommandError, match="not a model file"):
        load_model(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CommandError, match=r"cannot read .*none\.pt: No such file"):
        load_model(tmp_path / "none.pt")


class Bomb:
    exploded = False

    def __reduce__(self):
        return (setattr, (Bomb, "exploded", True))


@pytest.mark.parametrize("save", [torch.save, lambda bomb, path: path.write_bytes(pickle.dumps(bomb))])
def test_no_code_is_run(path, save):
    save(Bomb(), path)
    with pytest.raises(CommandError, match="not a model file"):
        load_model(path)
    assert not Bomb.exploded
