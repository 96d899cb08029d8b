"""
Models of rows in shards, on workers of Dask (`pip install "gpytorch_partition[dask]"`).

Nothing else of the package imports Dask.
"""

try:
    import dask as _
    import distributed as _  # noqa: F811, F401
except ImportError as error:
    raise ImportError(
        "gpytorch_partition.distributed expected Dask with its distributed scheduler, which is not installed: "
        'pip install "gpytorch_partition[dask]"'
    ) from error

from gpytorch_partition.distributed.dask_regressor import DaskPartitionGPRegressor
from gpytorch_partition.distributed.dask_rows import DaskRows, count_chunks

__all__ = ["DaskPartitionGPRegressor", "DaskRows", "count_chunks"]
