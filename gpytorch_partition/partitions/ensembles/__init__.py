"""Readers of the trees of fitted ensembles, one file per library, which all return the same arrays (:class:`Trees`)."""

from gpytorch_partition.partitions.ensembles.json_trees import bart_trees
from gpytorch_partition.partitions.ensembles.libraries import trees_of
from gpytorch_partition.partitions.ensembles.tree_arrays import ZERO, Trees, array_trees

__all__ = ["Trees", "ZERO", "array_trees", "bart_trees", "trees_of"]
