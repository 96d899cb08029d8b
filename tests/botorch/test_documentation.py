from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "other_uses.md"
SECTIONS = PAGE.read_text().split("## Bayesian optimization\n")[1].split("\n## Ax\n")


@pytest.mark.slow
def test_the_example_finds_the_best_point():
    (example,) = re.findall(r"```python\n(.*?)```", SECTIONS[0], re.DOTALL)
    result = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True)
    assert float(re.findall(r"tensor\(([\d.]+)", result.stdout)[-1]) > 1.9
