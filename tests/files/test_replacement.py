"""Files that take the place of others, and what is kept of these."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpytorch_partition.files import replacing


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
