"""Tables as people have them, with text, categories, dates and missing cells, made into matrices of numbers."""

from gpytorch_partition.tables.encoder import TableEncoder
from gpytorch_partition.tables.number_view import NumberView, cross_fitted, needs_view

__all__ = ["NumberView", "TableEncoder", "cross_fitted", "needs_view"]
