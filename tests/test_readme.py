from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_ci_runs_the_readmes_test_command_as_written():
    command = 'pip install -c constraints.txt ".[test]" && pytest -n 2\n'
    assert command in README
    assert command in (ROOT / ".ci" / "run").read_text()


@pytest.mark.slow
def test_the_examples_run_one_after_another(capsys):
    namespace = {"__name__": "readme"}
    for example in EXAMPLES:
        exec(compile(example, "README.md", "exec"), namespace)
    assert "tensor" in capsys.readouterr().out
    assert len(namespace["std"]) == 42
