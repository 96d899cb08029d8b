"""
Count the rows of a folder of parquet files, one file in memory at a time, and train the exact GP of all of them.

    python tutorials/train_in_chunks.py folder/ price

Counts are saved after every file: an interrupted run goes on when the same command is given again, and files that were
added to the folder (later by name) are counted on top. `PartitionGPRegressor().fit_chunks("folder/", "price")` is the
same in one line, with text and holes, from the beginning.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd
import torch

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.models import FeatureSpaceGP

LEAVES, TREES = 30, 100  # in all a few thousand: pairs of leaves are counted


def read(path, target):
    """Points and targets of a file; all columns are numbers."""
    table = pd.read_parquet(path)
    return torch.tensor(table.drop(columns=target).to_numpy(float)), torch.tensor(table[target].to_numpy(float))


def new_model(path, target):
    """A forest of a tenth of the first file's rows: trees that had seen all targets would make intervals too narrow."""
    x, y = (part[::10] for part in read(path, target))
    smallest = max(5, len(y) // LEAVES)
    return FeatureSpaceGP(RandomForestKernel(x, y, TREES, "leaf", min_samples_leaf=smallest, random_state=0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", help="the column to predict")
    parser.add_argument("--counts", type=Path, default=Path("counts.gp"), help="file of what is counted [counts.gp]")
    args = parser.parse_args()
    try:
        files = sorted(args.folder.glob("*.parquet"))
        if not files:
            raise ValueError(f"expected parquet files in {args.folder}, found none")
        resumes = args.counts.exists()
        model = FeatureSpaceGP.load(args.counts, RandomForestKernel()) if resumes else new_model(files[0], args.target)
        known = model.num_rows
        for path in files:
            x, y = read(path, args.target)
            if known >= len(y):  # counted before
                known -= len(y)
                continue
            model.add_rows(x, y)
            model.save(args.counts)
            print(f"{path.name}: {model.num_rows:,} rows", flush=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    found = model.fit()
    model.save(args.counts)
    print(
        f"outputscale {found.outputscale:.4g}, noise {found.noise:.4g}, mean {found.mean:.4g}, {model.num_rows:,} rows"
    )


if __name__ == "__main__":
    main()
