"""Train one exact GP for several targets at once: `python tutorials/train_multitask.py data.csv price rent`."""

import argparse
import re
import sys
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from gpytorch_partition.command_line.model_file import read_new_rows
from gpytorch_partition.command_line.outputs import CommandError
from gpytorch_partition.command_line.training_data import Roles, read_training_data
from gpytorch_partition.estimators import PartitionGPRegressor


def read(path, targets):
    """Columns by name and N x T targets, NaN where one is missing."""
    if len(set(targets)) < 2:
        raise CommandError("expected two targets or more: the command fit is for one")
    each = [read_training_data(path, Roles(name, drop=[*{*targets} - {name}])) for name in targets]
    reader, names = each[0].reader, list(each[0].table)
    print("features:", ", ".join(f"{name} ({reader.readings_[name]})" for name in names))
    rows = read_new_rows(path, reader, names)  # those without the first target, too
    y = np.full((rows.num_rows, len(targets)), np.nan)
    for column, found in zip(y.T, each):
        column[found.rows] = found.y
    return rows.table, y


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="a CSV or parquet file; entries of targets may be missing")
    parser.add_argument("targets", nargs="+", help="two columns to predict, or more")
    parser.add_argument("--kernel", choices=("auto", "forest", "fast_cluster", "mondrian"), default="forest")
    args = parser.parse_args()
    try:
        table, y = read(args.data, args.targets)
        train, test = train_test_split(np.flatnonzero(~np.isnan(y).all(1)), test_size=0.2, random_state=0)
        rows, held_out = ({name: column[part] for name, column in table.items()} for part in (train, test))
        model = PartitionGPRegressor(args.kernel, random_state=0).fit(rows, y[train])
    except (CommandError, OSError, ValueError) as error:
        sys.exit(re.sub("--(target|drop)", "targets", f"error: {error}"))
    mean, std = model.predict(held_out, return_std=True)
    deviations = np.sqrt(np.diag(model.target_covariance_))
    print("correlations between the targets' functions:")
    for name, line in zip(args.targets, model.target_covariance_ / np.outer(deviations, deviations)):
        print(f"{name:>12}", *(f"{value:6.2f}" for value in line))
    for name, error, deviation in zip(args.targets, np.abs(y[test] - mean).T, std.T):
        known = ~np.isnan(error)
        covered = 100 * (error < 1.645 * deviation)[known].mean()
        rmse = np.sqrt(np.square(error[known]).mean())
        print(f"{name}: held-out RMSE {rmse:.4g}, 90 % intervals cover {covered:.0f} % of {known.sum()}")


if __name__ == "__main__":
    main()
