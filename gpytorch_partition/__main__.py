"""The command line: `python -m gpytorch_partition compare`, `fit`, `predict` and `explain`."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from codecs import lookup
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any

from gpytorch_partition.command_line.outputs import CommandError, say
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
    if isinstance(sys.stdout, TextIOWrapper) and lookup(sys.stdout.encoding).name == "ascii":  # in the locale of C
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    options = new_parser().parse_args(arguments)
    with warnings.catch_warnings(), verbosity(0 if options.quiet else None), _log_as_notes(options.quiet):
        warnings.showwarning = _show_warning
        warnings.simplefilter("ignore", MisreadColumnWarning)  # columns are as files and options define them
        try:
            if odd := [value for value in vars(options).values() if "\0" in str(value)]:
                raise CommandError(f"{odd[0]!r} holds the character NUL, which names cannot have: remove it")
            options.run(options)
            sys.stdout.flush()
        except (CommandError, OSError) as error:
            return _failure(error)
        except KeyboardInterrupt:
            print("\ninterrupted", file=sys.stderr)
            return 130
    return 0


class _Notes(logging.Handler):
    """Prints the package's log as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


@contextmanager
def _log_as_notes(is_quiet: bool) -> Iterator[None]:
    """Print the package's log as notes, unless the command is quiet."""
    handler = logging.NullHandler() if is_quiet else _Notes()
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
    say(error, "error")
    return 2


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    say(message, "warning")


if __name__ == "__main__":
    sys.exit(main())
