from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
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
        if "botorch" in example:  # it changes settings of GPyTorch, and is optional
            continue
        exec(compile(example, "README.md", "exec"), namespace)
    assert "tensor" in capsys.readouterr().out
    assert namespace["maximum"].noise > 0
    assert len(namespace["std"]) == 42


@pytest.mark.slow
@pytest.mark.skipif(find_spec("botorch") is None, reason="needs BoTorch")
def test_the_example_of_bayesian_optimization_runs():
    (example,) = (each for each in EXAMPLES if "botorch" in each)
    result = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True)
    assert float(re.findall(r"tensor\(([\d.]+)", result.stdout)[-1]) > 1.9
