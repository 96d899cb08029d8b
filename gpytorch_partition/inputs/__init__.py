"""Inputs of models and kernels: checked rows, missing values, columns, standardization, bit patterns and seeds."""
