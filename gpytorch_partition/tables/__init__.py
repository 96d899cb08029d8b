"""Conversion of tables with text, categories, dates and missing cells to matrices of numbers."""

from gpytorch_partition.tables.encoder import MisreadColumnWarning, TableEncoder
from gpytorch_partition.tables.number_view import NumberView, needs_view, view_in_folds

__all__ = ["MisreadColumnWarning", "NumberView", "TableEncoder", "needs_view", "view_in_folds"]
