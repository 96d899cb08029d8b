"""What comes in: checked rows, missing values, columns, standardization and seeds."""
