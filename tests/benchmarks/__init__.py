"""The figures that the package is held to, measured: `python -m tests.benchmarks --help`."""
