"""The example of docs/own_kernels.md is short, runs, and is the kernel that it says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

PAGE = (Path(__file__).parents[1] / "docs" / "own_kernels.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.split("## A clustering of your own\n")[1], re.S)
NAMESPACE: dict = {"__name__": "example"}
exec("\n".join(EXAMPLES), NAMESPACE)
X = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))


def test_the_file_has_less_than_60_lines():
    assert "class HyperplanePartition" in EXAMPLES[0]
    assert EXAMPLES[0].count("\n") < 60


def test_its_kernel_is_the_closed_form():
    kernel = NAMESPACE["HyperplaneKernel"](X, 20_000, num_hyperplanes=2, random_state=0)
    directions = X / X.norm(dim=-1, keepdim=True)
    angles = torch.arccos((directions @ directions.T).clamp(-1, 1))
    assert (kernel(X).to_dense() - (1 - angles / np.pi) ** 2).abs().max() < 5 * 0.5 / 20_000**0.5


def test_its_state_is_loaded_and_its_labels_depend_on_the_point_alone():
    kernel = NAMESPACE["HyperplaneKernel"](X, 20, random_state=0)
    loaded = NAMESPACE["HyperplaneKernel"]()
    loaded.load_state_dict(kernel.state_dict())
    alone = torch.cat([loaded.cluster_ids(point[None].double()) for point in X])
    assert torch.equal(alone, kernel.cluster_ids(X))


def test_a_clusterer_of_ones_own_is_randomised():
    cuts = NAMESPACE["cuts"].partition
    assert len(cuts.cluster_counts.unique()) > 3
    assert cuts.site_counts.tolist() == [200] * 100
