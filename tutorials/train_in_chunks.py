"""Fit a folder of parquet files that need not fit in memory: `python tutorials/train_in_chunks.py folder/ price`."""

import argparse
import sys
from pathlib import Path

from gpytorch_partition.estimators import PartitionGPRegressor


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a parquet file, or a folder of them")
    parser.add_argument("target", help="the column to predict")
    parser.add_argument("--kernel", choices=("auto", "forest", "fast_cluster"), default="auto")
    parser.add_argument("--model", type=Path, default=Path("model.gp"), help="where it is saved [model.gp]")
    args = parser.parse_args()
    if (
        args.model.exists()
    ):  # a fit is two passes over the rows: one that was interrupted has left nothing to go on from
        sys.exit(f"error: {args.model} is there already, from a run that ended: delete it, or name another --model")
    try:
        regressor = PartitionGPRegressor(args.kernel, random_state=0, verbose=1).fit_chunks(args.folder, args.target)
        regressor.save(args.model)
    except (OSError, ValueError, TypeError) as error:
        sys.exit(f"error: {error}")
    print(regressor.summary())


if __name__ == "__main__":
    main()
