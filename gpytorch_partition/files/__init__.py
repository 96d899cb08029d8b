"""Files that are written whole or not at all, and files of tensors and plain values that detect damage."""

from gpytorch_partition.files.containers import DamagedFileError, load, save
from gpytorch_partition.files.replacement import replacing

__all__ = ["DamagedFileError", "load", "replacing", "save"]
