"""Files that are written whole or not at all, and containers of tensors and plain values that tell when damaged."""

from gpytorch_partition.files.containers import DamagedFileError, FileFormat
from gpytorch_partition.files.replacement import replacing

__all__ = ["DamagedFileError", "FileFormat", "replacing"]
