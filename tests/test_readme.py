from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_ci_runs_the_readmes_test_command_as_written():
    command = 'pip install -c constraints.txt ".[test]" && pytest\n'
    assert command in README
    assert command in (ROOT / ".ci" / "run").read_text()


@pytest.mark.slow
def test_the_first_example_runs(capsys):
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
    assert "tensor" in capsys.readouterr().out
