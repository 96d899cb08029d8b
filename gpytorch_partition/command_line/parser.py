"""The parser of the command line: commands, options and their help texts."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, NoReturn

from gpytorch_partition import __version__
from gpytorch_partition.command_line.compare import FOLDER, compare
from gpytorch_partition.command_line.explain import explain
from gpytorch_partition.command_line.model_file import fit, predict
from gpytorch_partition.command_line.outputs import plain
from gpytorch_partition.command_line.table_files import column_name
from gpytorch_partition.estimators.kernel_parameter import KERNELS, NAMES
from gpytorch_partition.inputs.numbers import MOST_PARTITIONS

_PROGRAM = "python -m gpytorch_partition"
_COLUMN: dict[str, Any] = {"type": column_name, "metavar": "COLUMN"}
_TABLE = (
    "a text file with the names of the columns in the first line (.csv, .tsv, .txt; .gz, .bz2, .xz or .zip as well), a "
    "parquet file (.parquet, .pq) or an Excel workbook (.xlsx)"
)
_LEFT_OUT = (
    "All columns but the target are features: numbers, text (categories) and dates, with missing cells. Rows without a "
    "target, constant columns, and text that differs in all rows are left out, and said so."
)


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(plain(message))


def new_parser() -> ArgumentParser:
    """Return the parser; its option `run` is the function of the command."""
    told = "Exact Gaussian process regression with random partition kernels, on text, parquet and Excel files."
    parser = _Parser(prog=_PROGRAM, description=told, epilog=f"`{_PROGRAM} COMMAND --help` explains a command.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_add_compare, _add_fit, _add_predict, _add_explain):
        add(commands)
    return parser


def _add_compare(commands: Any) -> None:
    command = _new_command(
        commands,
        compare,
        "compare the kernels on your data, or on scikit-learn's diabetes data",
        "Split the rows, fit a Gaussian process with each kernel, a random forest and (up to 3,000 training rows) a "
        "Gaussian process with an RBF-ARD kernel; print a table of errors, predictive densities, coverage and seconds; "
        f"write table.csv, predictions.csv and plot.png. {_LEFT_OUT}",
    )
    add = command.add_argument
    add("data", nargs="?", metavar="DATA", help=f"{_TABLE} (default: scikit-learn's diabetes data)")
    add("--target", **_COLUMN, help="the column to predict; all others are features")
    kernels = f"some of {', '.join(NAMES)} (default: all); the random forest and the RBF-ARD process are beside them"
    add("--kernels", nargs="+", choices=NAMES, default=["auto", *KERNELS], metavar="KERNEL", help=kernels)
    add("--no-references", action="store_true", help="leave out the random forest and the RBF-ARD process")
    add("--output", metavar="DIR", help=f"where to write, replacing what is there (default: {FOLDER}, if it is empty)")
    add("--test-size", type=_share, default=0.2, metavar="SHARE", help="share of test rows (default: %(default)s)")
    _add_fitting(command)


def _add_fit(commands: Any) -> None:
    command = _new_command(
        commands,
        fit,
        "fit a model and write it to a file",
        "Fit a Gaussian process to one column of a table, and write it to a file of tensors and plain values, for the "
        f"command predict. {_LEFT_OUT}",
    )
    add = command.add_argument
    add("data", metavar="DATA", help=_TABLE)
    add("--target", required=True, **_COLUMN, help="the column to predict")
    add("--model", required=True, metavar="FILE", help="the model file to write")
    kernel = "which kernel; auto chooses a sum of them and of others from the data (default: %(default)s)"
    add("--kernel", choices=NAMES, default="auto", help=kernel)
    _add_fitting(command)


def _add_predict(commands: Any) -> None:
    command = _new_command(
        commands,
        predict,
        "predict the rows of a file with a fitted model",
        "Write mean, standard deviation (noise included) and the ends of a central interval for each row, after the id "
        "that fit was given, where the file has it. Columns are found by name. Categories that fit did not see are "
        "missing cells.",
    )
    add = command.add_argument
    add("model", metavar="MODEL", help="the model file that fit wrote")
    add("data", metavar="DATA", help=f"{_TABLE}; the target need not be there")
    add("--output", metavar="FILE", help="the CSV file to write (default: standard output)")
    add("--id", **_COLUMN, help="the column to write first (default: the id that fit was given)")
    add = command.add_mutually_exclusive_group().add_argument
    interval = "probability of the interval (default: %(default)s)"
    add("--interval", type=_share, default=0.9, metavar="SHARE", help=interval)
    add("--mean-only", action="store_true", help="write means only, which is faster")


def _add_explain(commands: Any) -> None:
    command = _new_command(
        commands,
        explain,
        "say what a fitted model consists of, and which columns matter",
        "Print the parts of a model, its noise and scales, and the share of the variance that each column explains; "
        "with DATA that has the target, also how much R squared falls where a column's values are exchanged between "
        "rows. --plot draws it, and with DATA the average prediction against each of the columns that matter most. Of "
        "more than 1,000 rows, 1,000 are taken at random.",
    )
    add = command.add_argument
    add("model", metavar="MODEL", help="the model file that fit wrote")
    add("data", nargs="?", metavar="DATA", help=f"{_TABLE} (default: no rows)")
    plot = "where to write importance.png and, with DATA, partial_dependence.png, replacing what is there"
    add("--plot", metavar="FOLDER", help=plot)


def _new_command(commands: Any, run: Callable[[Namespace], None], told: str, description: str) -> ArgumentParser:
    command: ArgumentParser = commands.add_parser(run.__name__, help=told, description=description)
    command.set_defaults(run=run)
    add = command.add_argument
    add("--sep", metavar="TEXT", help="what is between cells of a text file (default: comma, semicolon, tab or bar)")
    add("--encoding", metavar="NAME", help="of a text file (default: UTF-8, else Windows-1252)")
    header = "the line of a text file that names the columns, from 0; none if none does"
    add("--header", type=_line, default=0, metavar="LINE", help=header)
    add("--quiet", action="store_true", help="no notes, no progress and, of fit, no summary")
    return command


def _add_fitting(command: ArgumentParser) -> None:
    add = command.add_argument
    for option, told in (("--drop", "columns to leave out"), ("--categorical", "numbers that are categories")):
        add(option, nargs="+", action="extend", default=[], **_COLUMN, help=told)
    add("--id", **_COLUMN, help="a column that names the rows: left out, and passed through to predictions")
    weight = "how much each row counts, from 0: the variance of the noise is divided by it; no feature"
    add("--weight", **_COLUMN, help=weight)
    count = _number(f"a whole number from 1 to {MOST_PARTITIONS:,}", 1, MOST_PARTITIONS, int)
    add("--num-partitions", type=count, default=200, metavar="M", help="trees or clusterings (default: %(default)s)")
    seed = _number("a whole number from 0 to 2^32 - 1", 0, 2**32 - 1, int)
    add("--seed", type=seed, default=0, help="of everything random (default: %(default)s)")
    budget = "time that the fit of auto may take; what it leaves out for it is told (default: no limit)"
    seconds = _number("a positive number of seconds", 1e-9, 1e9)
    add("--budget", type=seconds, metavar="SECONDS", help=budget)
    add("--decimal", choices=(".", ","), help="the decimal mark of numbers (default: that of each column)")
    add("--thousands", choices=(",", ".", " ", "'"), help="the mark between thousands")
    missing = "numbers that stand for missing cells, such as -999 (one may be written --missing=-1e30)"
    add("--missing", nargs="+", action="extend", type=float, default=[], metavar="NUMBER", help=missing)
    add = command.add_mutually_exclusive_group().add_argument
    groups = "patients, shops, if rows of new ones are to be predicted: whole ones are held out, and no feature"
    add("--groups", **_COLUMN, help=groups)
    times = "numbers or dates, if later rows are to be predicted: the latest are held out"
    add("--time", **_COLUMN, help=times)


def _number(expected: str, least: float, most: float, kind: Callable[[str], float] = float) -> Callable[[str], float]:
    def read(text: str) -> float:
        with suppress(ValueError):
            if least <= (number := kind(text)) <= most:
                return number
        raise ArgumentTypeError(f"expected {expected}, got {text!r}")

    return read


_share = _number("a number between 0 and 1, such as 0.9 for 90 %", 1e-9, 1 - 1e-9)


def _line(text: str) -> Any:
    return None if text == "none" else _number("the number of a line, from 0, or none", 0, inf, int)(text)
