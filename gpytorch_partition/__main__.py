"""The command line: `python -m gpytorch_partition compare`, `fit` and `predict`."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.parser import new_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run a command.

    :param arguments: What follows the program's name. (Default: that of this process.)
    :return: The exit status: 0, 1 if whoever reads the output has left, 2 after an error that the user can mend, 130
        after Ctrl-C.
    :raises SystemExit: If the arguments cannot be parsed, with status 2.
    """
    options = new_parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            options.run(options)
            sys.stdout.flush()
        except (CommandError, OSError) as error:
            return _failure(error)
        except KeyboardInterrupt:
            print("\ninterrupted", file=sys.stderr)
            return 130
    return 0


def _failure(error: Exception) -> int:
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has left, as `head` does; nothing more can or need be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    print(f"gpytorch_partition: error: {error}", file=sys.stderr)
    return 2


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    """A warning on one line, without the place in the code."""
    print(f"gpytorch_partition: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
