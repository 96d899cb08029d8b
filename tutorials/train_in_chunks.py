"""
Count the rows of a folder of parquet files, one file in memory at a time, and train the exact GP of all of them.

    python tutorials/train_in_chunks.py folder/ price

Counts are saved after every file: an interrupted run goes on when the same command is given again, and files that were
added to the folder are counted on top. What was counted is written beside the counts (`counts.gp.json`), and other
targets, columns and files are refused. A tenth of each file is held out; that of the largest is predicted in the end.
`PartitionGPRegressor().fit_chunks("folder/", "price")` is one line for the same, with text and holes.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import torch

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.files import replacing
from gpytorch_partition.models import FeatureSpaceGP

LEAVES, TREES = 30, 100  # in all a few thousand: pairs of leaves are counted


def read(path, target, columns=None):
    """Names of columns, points and targets of a file; all columns are numbers."""
    table = pd.read_parquet(path)
    if missing := [name for name in [target, *(columns or ())] if name not in table]:
        raise ValueError(f"{path}: no column is called {missing}; its columns are {list(table)}")
    columns = columns or sorted(name for name in table if name != target)
    if texts := [name for name in [*columns, target] if not pd.api.types.is_numeric_dtype(table[name])]:
        raise ValueError(
            f"{path}: expected numbers, got others in {texts}: PartitionGPRegressor().fit_chunks takes them"
        )
    if num_missing := int(table[target].isna().sum()):
        raise ValueError(f"{path}: {num_missing:,} of {len(table):,} targets are missing: leave these rows out")
    return columns, torch.tensor(table[columns].to_numpy(float).copy()), torch.tensor(table[target].to_numpy(float))


def identity(path):
    """How many rows a file has, and a digest of its bytes."""
    with path.open("rb") as file:
        return [pq.read_metadata(path).num_rows, hashlib.file_digest(file, "sha256").hexdigest()[:16]]


def new_model(x, y):
    """A forest of a tenth of a file's rows: trees that had seen all targets would make intervals too narrow."""
    smallest = max(5, len(y[::10]) // LEAVES)
    kernel = RandomForestKernel(x[::10], y[::10], TREES, "leaf", min_samples_leaf=smallest, random_state=0)
    return FeatureSpaceGP(kernel)


def resumed(counts, record, run, known):
    """The model that is counted so far, and the identities of its files, if it is of the same run."""
    begin_anew = "give --counts another file, or delete it and begin anew"
    try:
        counted = json.loads(record.read_text())
        files = counted.pop("files")
    except (OSError, ValueError, LookupError) as error:
        raise ValueError(
            f"{record} says what {counts} has counted, and cannot be read ({error}): {begin_anew}"
        ) from None
    model = FeatureSpaceGP.load(counts, RandomForestKernel())
    if sum(map(num_counted, files.values())) > model.num_rows:
        files.popitem()  # interrupted before its counts were saved
    other = [f"{name} {counted.get(name)}, not {run[name]}" for name in run if counted.get(name) != run[name]]
    other += [f"another {name}" for name in files if files[name] != known.get(name)]
    if other or sum(map(num_counted, files.values())) != model.num_rows:
        told = "; ".join(other) or "other rows than it says"
        raise ValueError(f"{counts} was counted with {told}: {begin_anew}")
    return model, files


def num_counted(identity_of_file):
    """How many of a file's rows are counted: a tenth is held out."""
    return identity_of_file[0] - len(range(5, identity_of_file[0], 10))


def count(args):
    """The model of all files, which are counted one after another, and the held-out rows of the largest one."""
    files = {path.name: identity(path) for path in sorted(args.folder.glob("*.parquet"))}
    largest = args.folder / max(files, key=lambda name: files[name][0], default="none")
    if not files or files[largest.name][0] < 20:
        raise ValueError(
            f"expected parquet files in {args.folder}, one of them of 20 rows or more, got {len(files)} files"
        )
    columns, x, y = read(largest, args.target)
    run = {"folder": str(args.folder.resolve()), "target": args.target, "columns": columns}
    record, held_out = Path(f"{args.counts}.json"), (x[5::10], y[5::10])
    model, done = resumed(args.counts, record, run, files) if args.counts.exists() else (new_model(x, y), {})
    for name in [name for name in files if name not in done]:
        _, x, y = read(args.folder / name, args.target, columns)
        counted = torch.arange(len(y)) % 10 != 5
        model.add_rows(x[counted], y[counted])
        done[name] = files[name]
        with replacing(record, "w") as file:
            json.dump(run | {"files": done}, file)
        model.save(args.counts)
        print(f"{name}: {model.num_rows:,} rows", flush=True)
    return model, *held_out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder of parquet files, whose columns are all numbers")
    parser.add_argument("target", help="the column to predict")
    parser.add_argument("--counts", type=Path, default=Path("counts.gp"), help="file of what is counted [counts.gp]")
    args = parser.parse_args()
    try:
        model, x, y = count(args)
        found = model.fit()
        model.save(args.counts)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    mean, variance = model.predict(x)
    errors, half = (mean - y).abs(), 1.645 * (variance + found.noise).sqrt()
    rmse, share = errors.square().mean().sqrt(), (errors < half).double().mean()
    print(f"held-out RMSE {rmse:.4g}, 90 % intervals cover {share:.2f}")
    print(
        f"outputscale {found.outputscale:.4g}, noise {found.noise:.4g}, mean {found.mean:.4g}, {model.num_rows:,} rows"
    )


if __name__ == "__main__":
    main()
