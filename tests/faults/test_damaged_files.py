"""A file of which any bit has changed, or an end is missing, is refused."""

from __future__ import annotations

from functools import cache

import joblib
import numpy as np
import pytest
import torch

from gpytorch_partition.__main__ import main
from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.model_file import load_model

from .saved import COUNTS, MODELS, kind

_FLIPS = 150
cached_kind = cache(kind)


@pytest.fixture(params=[*MODELS, *COUNTS])
def saved(request, tmp_path):
    found, path = cached_kind(request.param), tmp_path / "model.gp"
    found.format.save(path, found.content)
    return found, path


def _flips(content: bytes) -> np.ndarray:
    """Numbers of bits: the first and the last ones too."""
    some = np.random.RandomState(1).randint(0, 8 * len(content), _FLIPS)
    return np.concatenate([some, np.arange(16), 8 * len(content) - 1 - np.arange(16)])


def _flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)


def test_a_file_is_read_again(saved):
    kind, path = saved
    assert np.isfinite(kind.predicted(path)).all()


def test_every_flipped_bit_is_told(saved):
    kind, path = saved
    content = path.read_bytes()
    for bit in _flips(content):
        path.write_bytes(_flipped(content, bit))
        with pytest.raises(kind.errors, match="damaged") as caught:
            kind.predicted(path)
        assert "\n" not in str(caught.value)


def test_every_missing_end_is_told(saved):
    kind, path = saved
    content = path.read_bytes()
    lengths = {*np.random.RandomState(2).randint(0, len(content), 60).tolist(), *range(20), len(content) - 1}
    for length in lengths | {len(content) - length for length in (22, 64, 90, 91, 112, 113)}:
        path.write_bytes(content[:length])
        with pytest.raises(kind.errors, match="damaged"):
            kind.predicted(path)


def test_more_bytes_at_the_end_are_told(saved):
    kind, path = saved
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(kind.errors, match="damaged"):
        kind.predicted(path)


@pytest.mark.parametrize("compress", [0, 3], ids=["plain", "compressed"])
@pytest.mark.parametrize("protocol", [2, 5])
def test_pickles_are_told_from_damaged_files(saved, protocol, compress):
    kind, path = saved
    joblib.dump(kind.content, path, compress=compress, protocol=protocol)
    with pytest.raises(kind.errors, match=r"looks like a pickle, .*: read it by pickle\.load or joblib\.load"):
        kind.predicted(path)


def test_the_command_tells_it_on_one_line(tmp_path, capsys):
    found, path, rows = cached_kind("table"), tmp_path / "model.gp", tmp_path / "new.csv"
    found.format.save(path, found.content)
    content = path.read_bytes()
    rows.write_text("size,color,town,day\n1,red,t2,2020-01-02\n")
    assert main(["predict", str(path), str(rows)]) == 0
    capsys.readouterr()
    for bit in _flips(content)[::10]:
        path.write_bytes(_flipped(content, bit))
        assert main(["predict", str(path), str(rows)]) == 2
        out, err = capsys.readouterr()
        assert not out
        assert err.startswith("gpytorch_partition: error: ")
        assert err.count("\n") == 1


def test_of_a_file_without_digest_no_tensor_is_damaged(tmp_path):
    """As releases before wrote it: a flip is told, or in bytes that hold nothing."""
    found, path = cached_kind("mondrian"), tmp_path / "model.gp"
    torch.save({"format": found.format.name, "format_version": 2, **found.content}, path)
    content, expected = path.read_bytes(), found.predicted(path)
    num_told, bits = 0, _flips(content)[::4]
    for bit in bits:
        path.write_bytes(_flipped(content, bit))
        try:
            np.testing.assert_array_equal(found.predicted(path), expected)
        except CommandError:
            num_told += 1
    assert num_told > len(bits) / 3


def test_a_digest_cannot_be_left_out(tmp_path):
    found, path = cached_kind("mondrian"), tmp_path / "model.gp"
    torch.save({"format": found.format.name, "format_version": found.format.version, **found.content}, path)
    with pytest.raises(CommandError, match="digest is missing"):
        load_model(path)
