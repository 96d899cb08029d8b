"""Train one exact GP for several targets at once: `python tutorials/train_multitask.py data.csv price rent`."""

import argparse
import sys

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from gpytorch_partition.estimators import PartitionGPRegressor


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="a CSV file; entries of targets may be missing")
    parser.add_argument("targets", nargs="+", help="two columns to predict, or more")
    parser.add_argument("--kernel", choices=("auto", "forest", "fast_cluster", "mondrian"), default="forest")
    args = parser.parse_args()
    try:
        table = pd.read_csv(args.data)
        rows, held_out = train_test_split(table, test_size=0.2, random_state=0)
        features = [name for name in table if name not in args.targets]
        model = PartitionGPRegressor(args.kernel, random_state=0).fit(
            rows[features], rows[args.targets].to_numpy(float)
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        sys.exit(f"error: {error}")
    mean, std = model.predict(held_out[features], return_std=True)
    errors = np.abs(held_out[args.targets].to_numpy(float) - mean)
    deviations = np.sqrt(np.diag(model.target_covariance_))
    print("correlations between the targets' functions:")
    print(
        pd.DataFrame(model.target_covariance_ / np.outer(deviations, deviations), args.targets, args.targets).round(2)
    )
    for name, error, deviation in zip(args.targets, errors.T, std.T):
        known = ~np.isnan(error)
        covered = 100 * (error < 1.645 * deviation)[known].mean()
        rmse = np.sqrt(np.square(error[known]).mean())
        print(f"{name}: held-out RMSE {rmse:.4g}, 90 % intervals cover {covered:.0f} % of {known.sum()}")


if __name__ == "__main__":
    main()
