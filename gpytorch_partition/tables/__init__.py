"""Tables as people have them, with text, categories, dates and missing cells, made into matrices of numbers."""

from gpytorch_partition.tables.encoder import TableEncoder

__all__ = ["TableEncoder"]
