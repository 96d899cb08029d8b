"""The figures of the documentation, measured: `python -m benchmarks --help`."""
