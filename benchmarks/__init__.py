"""The figures that the package is held to, measured: `python -m benchmarks --help`."""
