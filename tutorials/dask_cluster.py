"""
Fit and predict on a cluster of Dask: here of processes on this machine, elsewhere of whatever --scheduler names.

    python tutorials/dask_cluster.py                                            # rows that are made up
    python tutorials/dask_cluster.py --data rows/ --target price                # a folder of parquet files of numbers
    python tutorials/dask_cluster.py --scheduler tcp://10.0.0.1:8786 --data /shared/rows/ --target price
"""

from __future__ import annotations

import argparse
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
from distributed import Client, LocalCluster

from gpytorch_partition.distributed import DaskPartitionGPRegressor


def made_up_rows(num_rows, chunk):
    """Friedman's first function of 10 columns, with noise of standard deviation 1, made on the workers."""
    random = da.random.default_rng(0)
    X = random.random((num_rows, 10), chunks=(chunk, 10))
    y = 10 * da.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, y + random.normal(size=num_rows, chunks=chunk)


def rows_of_files(folder, target):
    """Every file, or group of rows in it, is a partition; workers read the folder by the same path."""
    frame = dd.read_parquet(folder)
    return frame.drop(columns=target), frame[target]


def cluster_of(workers):
    """Processes of one thread each, which keep the memory that they have freed."""
    dask.config.set({"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None})
    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="rows to make up (default: 200,000)")
    parser.add_argument("--chunk", type=int, default=25_000, help="rows of a chunk of these (default: 25,000)")
    parser.add_argument("--data", type=Path, help="folder of parquet files to read instead")
    parser.add_argument("--target", help="name of the column to predict, with --data")
    parser.add_argument("--workers", type=int, default=2, help="processes on this machine (default: 2)")
    parser.add_argument("--scheduler", help="address of a running cluster, instead of processes on this machine")
    parser.add_argument("--kernel", default="fast_cluster", help="forest, fast_cluster or mondrian")
    parser.add_argument("--partitions", type=int, default=20, help="trees or clusterings (default: 20)")
    options = parser.parse_args(arguments)
    if options.data and not options.target:
        parser.error("--data expects --target, the name of the column to predict")
    with Client(options.scheduler or cluster_of(options.workers)) as client:
        print(f"dashboard: {client.dashboard_link}")
        X, y = (
            rows_of_files(options.data, options.target) if options.data else made_up_rows(options.rows, options.chunk)
        )
        model = DaskPartitionGPRegressor(options.kernel, options.partitions, sample_rows=2_000, random_state=0)
        model.fit(X, y)
        print(f"{model.model_.num_rows:,} rows, noise {model.noise_:.3g}, outputscale {model.outputscale_:.3g}")
        mean, std = model.predict(X, return_std=True)  # nothing is computed yet
        inside = abs(y - mean) <= 1.645 * std
        error, share = dask.compute(((y - mean) ** 2).mean() ** 0.5, inside.mean())
        print(f"RMSE {error:.3g}; {share:.0%} of the targets within their 90 % intervals")


if __name__ == "__main__":
    main()
