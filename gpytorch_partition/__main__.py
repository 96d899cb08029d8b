"""The command line: `python -m gpytorch_partition compare`, `fit`, `predict` and `explain`."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gpytorch_partition.command_line.outputs import CommandError
from gpytorch_partition.command_line.parser import new_parser
from gpytorch_partition.progress import verbosity
from gpytorch_partition.tables import MisreadColumnWarning


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run a command.

    :param arguments: The arguments after the program's name. (Default: those of this process.)
    :return: The exit status: 0, 1 if the reader of the output closed it, 2 after an error that the user can correct,
        130 after Ctrl-C.
    :raises SystemExit: If the arguments cannot be parsed, with status 2.
    """
    options = new_parser().parse_args(arguments)
    with warnings.catch_warnings(), verbosity(0 if options.quiet else None), _log_as_notes(options.quiet):
        warnings.showwarning = _show_warning
        warnings.simplefilter("ignore", MisreadColumnWarning)  # columns are as files and options define them
        try:
            options.run(options)
            sys.stdout.flush()
        except (CommandError, OSError) as error:
            return _failure(error)
        except KeyboardInterrupt:
            print("\ninterrupted", file=sys.stderr)
            return 130
    return 0


@contextmanager
def _log_as_notes(is_quiet: bool) -> Iterator[None]:
    """Print the package's log as notes, unless the command is quiet."""
    handler = logging.NullHandler() if is_quiet else logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("gpytorch_partition: note: %(message)s"))
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger("gpytorch_partition")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _failure(error: Exception) -> int:
    if isinstance(error, BrokenPipeError):
        # The reader of the output has closed it, as `head` does: nothing more can be written to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    print(f"gpytorch_partition: error: {error}", file=sys.stderr)
    return 2


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    print(f"gpytorch_partition: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
