"""Files are loaded as they were saved, or refused in one sentence, and take the place of others when they are whole."""

from __future__ import annotations

import io
import os
import pickle
import stat
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path

import numpy as np
import pytest
import torch

from gpytorch_partition import FastClusterKernel, MondrianKernel, files
from gpytorch_partition import files as containers
from gpytorch_partition.command_line.model_file import SavedModel, load_model, save_model
from gpytorch_partition.command_line.outputs import CommandError
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.files import DamagedFileError, replacing
from gpytorch_partition.models import FeatureSpaceGP
from gpytorch_partition.tables import TableEncoder
from tests.stored_models.files import read
from tests.stored_models.zoo import ZOO

KIND = "file of numbers"
CONTENT = {
    "tensors": [torch.tensor([1.0, torch.nan, -0.0]), torch.arange(6, dtype=torch.int32).view(2, 3).mT],
    "plain": {"a": 1, "b": 0.1 + 0.2, "c": [True, None, "ä", float("inf")], "d": {}},
    "none": torch.empty(0, 3, dtype=torch.bool),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.gp"


def same(found, expected):
    """Whether contents are the same to the last bit; tuples have become lists."""
    if isinstance(expected, torch.Tensor):
        a, b = found.numpy(), expected.detach().numpy()
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[name], expected[name]) for name in expected)
    if isinstance(expected, list | tuple):
        return type(found) is list and len(found) == len(expected) and all(map(same, found, expected))
    return type(found) is type(expected) and found == expected


@pytest.mark.parametrize("content", [CONTENT, *(read(name)["state"] for name in ZOO)], ids=["all kinds", *ZOO])
def test_contents_and_states_of_every_model_come_back_to_the_last_bit(path, content):
    files.save(path, KIND, content)
    assert same(files.load(path, KIND), content)


def test_a_flipped_bit_of_any_byte_is_refused(path):
    files.save(path, KIND, {"values": torch.arange(3)})
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(DamagedFileError, match="is damaged") as caught:
            files.load(path, KIND)
        assert "\n" not in str(caught.value)


def test_every_missing_end_and_more_bytes_are_refused(path):
    files.save(path, KIND, CONTENT)
    content = path.read_bytes()
    sizes = [*range(0, len(content), 20), *range(len(content) - 150, len(content))]
    for changed in (*(content[:size] for size in sizes), content + b"\0", content[1:]):
        path.write_bytes(changed)
        with pytest.raises(DamagedFileError, match="is damaged"):
            files.load(path, KIND)


@pytest.mark.parametrize("step", ["torch.save", "_seal"])
def test_nothing_is_left_of_an_interrupted_write(path, monkeypatch, step):
    def interrupted(content, file=None):
        (file or content).write(b"some")
        raise KeyboardInterrupt

    files.save(path, KIND, CONTENT)
    owner, name = (torch, "save") if step == "torch.save" else (containers, step)
    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.save(path, KIND, {})
    assert same(files.load(path, KIND), CONTENT)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("value", [np.float32(1), {1, 2}, PartitionGPRegressor()])
def test_what_is_no_tensor_or_plain_value_is_not_written(path, value):
    with pytest.raises(TypeError, match="expected tensors and plain values to save, got"):
        files.save(path, KIND, {"value": [value]})
    assert not path.exists()


def test_another_kind_and_another_format_are_named(path, monkeypatch):
    files.save(path, "file of letters", {})
    with pytest.raises(DamagedFileError, match="is not a file of numbers, but a file of letters"):
        files.load(path, KIND)
    monkeypatch.setattr(containers, "_FORMAT", 2)
    with pytest.raises(DamagedFileError, match="has format 1, and this version reads format 2: fit again"):
        files.load(path, "file of letters")


class Bomb:
    exploded = False

    def __reduce__(self):
        return (setattr, (Bomb, "exploded", True))


def _sealed(bomb, path):
    with open(path, "w+b") as file:
        torch.save(bomb, file)
        containers._seal(file)


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda bomb, path: path.write_bytes(b"a,b\n1,2\n"), DamagedFileError),
        (lambda bomb, path: path.write_bytes(b""), DamagedFileError),
        (lambda bomb, path: path.write_bytes(pickle.dumps(bomb)), DamagedFileError),
        (torch.save, DamagedFileError),
        (_sealed, pickle.UnpicklingError),
    ],
    ids=["a table", "nothing", "a pickle", "an archive", "a sealed one"],
)
def test_no_code_of_other_files_is_run(path, write, error):
    write(Bomb(), path)
    with pytest.raises(error, match="is not a file of numbers .*: pickle.load and|WeightsUnpickler"):
        files.load(path, KIND)
    assert not Bomb.exploded


# The three classes that save.

RANDOM = np.random.RandomState(0)
X, NEW = RANDOM.randn(40, 2), RANDOM.randn(9, 2)
Y = X[:, 0] + 0.3 * RANDOM.randn(40)
TABLE = {"a": X[:, 0], "b": np.array(["red", "blue"] * 20, dtype=object)}
OF_TABLE = X[:, 0] + np.tile([0, 2], 20)


def _answers(regressor, rows):
    return np.stack(regressor.predict(rows, return_std=True))


def test_a_model_file_comes_back(path):
    model = PartitionGPRegressor("fast_cluster", 5, random_state=0).fit(TABLE, OF_TABLE)
    reader = TableEncoder().fit({**TABLE, "y": OF_TABLE})
    save_model(path, SavedModel(model, reader, ["a", "b"], "y", "k"))
    found = load_model(path)
    assert (found.columns, found.target, found.id) == (["a", "b"], "y", "k")
    assert found.reader.to_state() == reader.to_state()
    assert found.regressor.target_name_ == "y"
    new = {"a": np.array([0.5]), "b": np.array(["green"], dtype=object)}
    for rows in (TABLE, new):
        np.testing.assert_array_equal(_answers(found.regressor, rows), _answers(model, rows))
    with pytest.raises(DamagedFileError, match="is not a file of a PartitionGPRegressor, but a model file"):
        PartitionGPRegressor.load(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CommandError, match="is not a model file of gpytorch_partition, or it is damaged"):
        load_model(path)
    path.unlink()
    with pytest.raises(CommandError, match=r"cannot read .*file\.gp: No such file"):
        load_model(path)


def _leaves(value, path=()):
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key), value[key]
        yield from _leaves(value[key], (*path, key))


def _crafted(state):
    """Copies of a state in which one entry is missing, or of another type or shape, or not a number."""
    for (*path, key), value in _leaves(state):
        other_types = {type(value)} & {str, float}
        others = [other for other in (None, "x", [1], {"a": 1}, -1.5) if type(other) not in other_types]
        if isinstance(value, torch.Tensor):
            others = [None, value[None], torch.cat([value.reshape(-1)] * 2), value.reshape(-1)[:0]]
            others += [value * torch.nan] * value.is_floating_point()
        for other in [*others, KeyError] if isinstance(key, str) else others:
            found = deepcopy(state)
            owner = reduce(getitem, path, found)
            if other is KeyError:
                del owner[key]
            else:
                owner[key] = other
            yield (*path, key), found


@pytest.mark.parametrize("kernel", ["fast_cluster", pytest.param("forest", marks=pytest.mark.slow)])
def test_states_of_wrong_values_are_refused_or_predict_the_same(path, kernel):
    """Files with a right digest, but crafted: any other error would tell nobody that the file is the reason."""
    files.save(path, KIND, PartitionGPRegressor(kernel, 2, random_state=0).fit(TABLE, OF_TABLE).to_state())
    state, new = files.load(path, KIND), {"a": np.array([0.5, 3.0]), "b": np.array(["red", "x"], dtype=object)}
    expected, refused = _answers(PartitionGPRegressor.from_state(state), new), 0
    for place, crafted in _crafted(state):
        try:
            found = _answers(PartitionGPRegressor.from_state(crafted), new)
        except ValueError:
            refused += 1
        except TypeError:
            assert place == ("encoder",)  # without one it is a model of arrays, and refuses the table
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=str(place))
    assert refused > 200


def test_crafted_model_files_are_errors_of_the_file(path):
    model = PartitionGPRegressor("fast_cluster", 2, random_state=0).fit(TABLE, OF_TABLE)
    save_model(path, SavedModel(model, TableEncoder().fit({**TABLE, "y": OF_TABLE}), ["a", "b"], "y", "k"))
    content = files.load(path, "model file")
    for name in ("regressor", "reader", "columns"):
        for wrong in ({}, None):
            files.save(path, "model file", {**content, name: wrong} if wrong is None else {name: {}})
            if name != "columns" or wrong is not None:
                with pytest.raises(CommandError, match="expected the state of a"):
                    load_model(path)


def test_counts_of_another_kernel_are_refused(path):
    rows, targets = torch.from_numpy(X), torch.from_numpy(Y)
    model = FeatureSpaceGP(FastClusterKernel(rows, 3, height=3, random_state=0))
    model.add_rows(rows, targets)
    model.fit()
    model.save(path)
    copy = FeatureSpaceGP.load(path, FastClusterKernel())
    torch.testing.assert_close(copy.predict(rows), model.predict(rows), rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match=r"expected a kernel of the kind that .* saved with, got a MondrianKernel"):
        FeatureSpaceGP.load(path, MondrianKernel())


@pytest.mark.parametrize("name", ["forest", "mondrian", "fast_cluster", "standardized", "landmark"])
def test_a_state_that_was_cast_is_refused(name):
    """Bit patterns as floats would be other numbers, silently."""
    entry, stored = ZOO[name], read(name)
    buffer = io.BytesIO()
    torch.save({each: values.double() for each, values in stored["state"].items()}, buffer)
    buffer.seek(0)
    with pytest.raises(RuntimeError, match="give a state that was not cast"):
        entry.unfitted(stored["rows"]).load_state_dict(torch.load(buffer))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data.csv").write_text("a\n")
    return tmp_path


def test_a_link_stays_one_and_rights_stay(folder):
    Path("old").write_text("old")
    os.chmod("old", 0o640)
    Path("link").symlink_to("old")
    with replacing("link", "w") as file:
        file.write("new")
    assert Path("link").is_symlink()
    assert Path("old").read_text() == "new"
    assert stat.S_IMODE(os.stat("old").st_mode) == 0o640


def test_new_files_have_the_usual_rights(folder):
    with open("usual", "w"), replacing("new", "w"):
        pass
    assert os.stat("new").st_mode == os.stat("usual").st_mode


def test_what_is_no_file_is_written_directly():
    with replacing("/dev/null", "w") as file:
        file.write("nothing")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none/model.gp", r"the folder .*/none does not exist: make it, or give another path: 'none/model\.gp'"),
        ("data.csv/model.gp", r"Not a directory: 'data\.csv/model\.gp'"),
    ],
    ids=["no folder", "a file"],
)
def test_errors_are_about_the_path_that_was_given(folder, path, message):
    with pytest.raises(OSError, match=message), replacing(path):
        pass


def test_names_may_be_long(folder):
    with replacing("n" * 250, "w") as file:
        file.write("1")
    assert Path("n" * 250).read_text() == "1"
