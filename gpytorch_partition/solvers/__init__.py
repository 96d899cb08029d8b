"""K plus noise as a linear operator, and the solvers that it chooses from."""

from gpytorch_partition.solvers.decision_table import choose_solver
from gpytorch_partition.solvers.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator

__all__ = ["PartitionAddedDiagLinearOperator", "choose_solver"]
