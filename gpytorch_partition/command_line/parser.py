"""The parser of the command line: commands, options and their help texts."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from math import inf
from typing import Any

from gpytorch_partition.command_line.compare import FOLDER, compare
from gpytorch_partition.command_line.explain import explain
from gpytorch_partition.command_line.fit import fit
from gpytorch_partition.command_line.predict import predict
from gpytorch_partition.estimators.regressor import KERNELS, NAMES

PROGRAM = "python -m gpytorch_partition"

_TABLE = (
    "a text file with the names of the columns in the first line (.csv, .tsv, .txt; .gz, .bz2, .xz or .zip as well), a "
    "parquet file (.parquet, .pq) or an Excel workbook (.xlsx)"
)
_LEFT_OUT = (
    "All columns but the target are features: numbers, text (categories) and dates, with missing cells. Rows without a "
    "target, constant columns, and text that differs in all rows are left out, and said so."
)


def new_parser() -> ArgumentParser:
    """
    The parser; the function of the command is the parsed option `run`.

    Example:
        >>> options = new_parser().parse_args(["predict", "model.pt", "rows.csv"])
        >>> options.run.__name__, options.model, options.output
        ('predict', 'model.pt', None)
    """
    parser = ArgumentParser(
        prog=PROGRAM,
        description="Exact Gaussian process regression with random partition kernels, on text files, parquet files and "
        "workbooks.",
        epilog=f"`{PROGRAM} COMMAND --help` explains a command.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_compare(commands)
    _add_fit(commands)
    _add_predict(commands)
    _add_explain(commands)
    return parser


def _add_compare(commands: Any) -> None:
    command = commands.add_parser(
        "compare",
        help="compare the kernels on your data, or on scikit-learn's diabetes data",
        description="Split the rows, fit a Gaussian process with each kernel, a random forest and (up to 3,000 "
        "training rows) a Gaussian process with an RBF-ARD kernel; print a table of errors, predictive densities, "
        f"coverage and seconds; write table.csv, predictions.csv and plot.png. {_LEFT_OUT}",
    )
    command.add_argument("data", nargs="?", metavar="DATA", help=f"{_TABLE} (default: scikit-learn's diabetes data)")
    command.add_argument("--target", metavar="COLUMN", help="the column to predict; all others are features")
    command.add_argument(
        "--kernels",
        nargs="+",
        choices=NAMES,
        default=["auto", *KERNELS],
        metavar="KERNEL",
        help=f"some of {', '.join(NAMES)} (default: all); the random forest and the RBF-ARD process are beside them",
    )
    command.add_argument(
        "--no-references", action="store_true", help="leave out the random forest and the RBF-ARD process"
    )
    command.add_argument(
        "--output",
        metavar="DIR",
        help=f"where to write, replacing what is there (default: {FOLDER}, if there is nothing in it)",
    )
    command.add_argument(
        "--test-size", type=_share, default=0.2, metavar="SHARE", help="share of test rows (default: %(default)s)"
    )
    _add_roles(command)
    _add_size_and_seed(command)
    _add_budget(command)
    _add_dialect(command, is_read_anew=True)
    _add_quiet(command)
    command.set_defaults(run=compare)


def _add_fit(commands: Any) -> None:
    command = commands.add_parser(
        "fit",
        help="fit a model and write it to a file",
        description="Fit a Gaussian process to one column of a table, and write it to a file of tensors and plain "
        f"values, for the command predict. {_LEFT_OUT}",
    )
    command.add_argument("data", metavar="DATA", help=_TABLE)
    command.add_argument("--target", required=True, metavar="COLUMN", help="the column to predict")
    command.add_argument("--model", required=True, metavar="FILE", help="the model file to write")
    command.add_argument(
        "--kernel",
        choices=NAMES,
        default="auto",
        help="which kernel; auto chooses a sum of them and of others from the data (default: %(default)s)",
    )
    _add_roles(command)
    _add_size_and_seed(command)
    _add_budget(command)
    _add_dialect(command, is_read_anew=True)
    _add_quiet(command)
    command.set_defaults(run=fit)


def _add_predict(commands: Any) -> None:
    command = commands.add_parser(
        "predict",
        help="predict the rows of a file with a fitted model",
        description="Write mean, standard deviation (noise included) and the ends of a central interval for each row, "
        "after the id that fit was given, where the file has it. Columns are found by name: their order does not "
        "matter, and others are ignored. Categories that fit did not see are missing cells.",
    )
    command.add_argument("model", metavar="MODEL", help="the model file that fit wrote")
    command.add_argument("data", metavar="DATA", help=f"{_TABLE}; the target need not be there")
    command.add_argument("--output", metavar="FILE", help="the CSV file to write (default: standard output)")
    command.add_argument(
        "--id", metavar="COLUMN", help="the column to write first (default: the id that fit was given)"
    )
    contents = command.add_mutually_exclusive_group()
    contents.add_argument(
        "--interval",
        type=_share,
        default=0.9,
        metavar="SHARE",
        help="probability of the interval (default: %(default)s)",
    )
    contents.add_argument("--mean-only", action="store_true", help="write means only, which is faster")
    _add_dialect(command, is_read_anew=False)
    _add_quiet(command)
    command.set_defaults(run=predict)


def _add_explain(commands: Any) -> None:
    command = commands.add_parser(
        "explain",
        help="say what a fitted model consists of, and which columns matter",
        description="Print the parts of a model with their shares, its noise and scales, and how much of the variance "
        "that it explains each column has; with DATA that has the target, also how much R squared falls where a "
        "column's values are exchanged between rows (best rows that fit has not seen). --plot draws it, and with DATA "
        "the average prediction against each of the columns that matter most, with 90 % intervals. Of more than 1,000 "
        "rows, 1,000 are taken at random.",
    )
    command.add_argument("model", metavar="MODEL", help="the model file that fit wrote")
    command.add_argument("data", nargs="?", metavar="DATA", help=f"{_TABLE} (default: no rows)")
    command.add_argument(
        "--plot",
        metavar="FOLDER",
        help="where to write importance.png and, with DATA, partial_dependence.png, replacing what is there",
    )
    _add_dialect(command, is_read_anew=False)
    _add_quiet(command)
    command.set_defaults(run=explain)


def _add_roles(command: ArgumentParser) -> None:
    command.add_argument(
        "--drop", nargs="+", action="extend", default=[], metavar="COLUMN", help="columns to leave out"
    )
    command.add_argument(
        "--id", metavar="COLUMN", help="a column that names the rows: left out, and passed through to predictions"
    )
    command.add_argument(
        "--weight",
        metavar="COLUMN",
        help="how much each row counts, a number from 0: the variance of the noise is divided by it; no feature",
    )
    blocks = command.add_mutually_exclusive_group()
    blocks.add_argument(
        "--groups",
        metavar="COLUMN",
        help="patients, shops and the like, if rows of new ones are to be predicted: auto holds out whole groups, and "
        "compare predicts groups that no model has seen; no feature",
    )
    blocks.add_argument(
        "--time",
        metavar="COLUMN",
        help="numbers or dates, if later rows are to be predicted: auto predicts rows from earlier ones only, and "
        "compare the latest; a feature, unless --drop names it",
    )
    command.add_argument(
        "--categorical", nargs="+", action="extend", default=[], metavar="COLUMN", help="numbers that are categories"
    )


def _add_dialect(command: ArgumentParser, is_read_anew: bool) -> None:
    """Options of text files; numbers of new rows are in the notation of the fit."""
    command.add_argument("--sep", metavar="TEXT", help="what is between cells (default: comma, semicolon, tab or bar)")
    command.add_argument("--encoding", metavar="NAME", help="of the text (default: UTF-8, else Windows-1252)")
    command.add_argument(
        "--header", type=_line, default=0, metavar="LINE", help="the line that names the columns, from 0; none if none"
    )
    command.set_defaults(decimal=None, thousands=None)
    if is_read_anew:
        command.add_argument("--decimal", choices=(".", ","), help="the decimal mark (default: that of each column)")
        command.add_argument("--thousands", choices=(",", ".", " ", "'"), help="the mark between thousands")


def _add_budget(command: ArgumentParser) -> None:
    command.add_argument(
        "--budget",
        type=_seconds,
        metavar="SECONDS",
        help="time that the fit of auto may take; what it leaves out for it is told (default: no limit)",
    )


def _add_quiet(command: ArgumentParser) -> None:
    command.add_argument("--quiet", action="store_true", help="no notes, no progress and, of fit, no summary")


def _add_size_and_seed(command: ArgumentParser) -> None:
    command.add_argument(
        "--num-partitions", type=_count, default=200, metavar="M", help="trees or clusterings (default: %(default)s)"
    )
    command.add_argument("--seed", type=_seed, default=0, help="of everything random (default: %(default)s)")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"expected a whole number of 1 or more, got {text!r}")
    return int(text)


def _line(text: str) -> int | None:
    if text != "none" and not text.isdecimal():
        raise ArgumentTypeError(f"expected the number of a line, from 0, or none, got {text!r}")
    return None if text == "none" else int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise ArgumentTypeError(f"expected a whole number from 0 to 2^32 - 1, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    seconds = _number(text)
    if not 0 < seconds < inf:
        raise ArgumentTypeError(f"expected a positive number of seconds, got {text!r}")
    return seconds


def _share(text: str) -> float:
    share = _number(text)
    if not 0 < share < 1:
        percent = _number(text.removesuffix("%"))
        meant = f"; {percent:g} % is {percent / 100:.10g}" if 1 < percent < 100 else ""
        raise ArgumentTypeError(f"expected a number between 0 and 1, got {text!r}{meant}")
    return share


def _number(text: str) -> float:
    """The number that a text is; 0 if it is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0
