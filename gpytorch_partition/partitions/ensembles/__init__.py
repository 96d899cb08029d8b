"""The trees of an ensemble, whichever library grew it: one file per library, one kind of :class:`Trees`."""

from gpytorch_partition.partitions.ensembles.readers import trees_of as trees_of
from gpytorch_partition.partitions.ensembles.trees import ZERO as ZERO
from gpytorch_partition.partitions.ensembles.trees import Trees as Trees
