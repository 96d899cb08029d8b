"""
Measure, print Markdown, and write it down as Markdown and CSV.

    python -m benchmarks                     # everything: hours on two cores that do nothing else
    python -m benchmarks --quick             # everything at small sizes: a few minutes, no bar applies
    python -m benchmarks product scaling     # some of it
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import torch
from threadpoolctl import threadpool_limits

from .botorch_optimizers import botorch_optimizers
from .budgets import budgets
from .categories import categories
from .cluster_space import cluster_space
from .clustering_maps import clustering_maps
from .clusterings import clusterings
from .dask_shards import dask_shards
from .data_defined import groups, memberships
from .default_cost import default_cost
from .default_rows import default_rows
from .diagnosis import diagnosis
from .evidence import evidence
from .fitted_ensembles import fitted_ensembles
from .function_intervals import function_intervals
from .gp_classification import gp_classification
from .honest import FIGURES, honest
from .issue_bars import issue_bars
from .kernels_and_ensembles import kernels_and_ensembles
from .labelling import labelling
from .machines import machines
from .mondrian_classification import mondrian_classification
from .mondrian_figures import mondrian_figures
from .mondrian_speed import mondrian_speed
from .noise_at_bound import noise_at_bound
from .one_pass import one_pass
from .out_of_core import out_of_core
from .outliers import outliers
from .papers import papers
from .preconditioners import preconditioners
from .prediction import prediction
from .product import product
from .report import Bar, Options, Report, Size, Table, summary
from .scaling import scaling
from .semi_supervised import semi_supervised
from .several_targets import several_targets
from .sizes import sizes
from .table_sets import MOST_SMALL
from .tasks import tasks
from .training import training
from .weights_by_folds import weights_by_folds

FUNCTIONS = (
    *(product, scaling, training, preconditioners, labelling, prediction, issue_bars, one_pass, cluster_space, tasks),
    *(groups, memberships),
    *(clusterings, clustering_maps, semi_supervised),
    *(
        evidence,
        honest,
        default_cost,
        default_rows,
        budgets,
        sizes,
        mondrian_figures,
        mondrian_speed,
        papers,
        botorch_optimizers,
    ),
    kernels_and_ensembles,
    *(diagnosis, weights_by_folds, outliers, noise_at_bound, function_intervals),
    *(mondrian_classification, out_of_core),
    *(machines, gp_classification, categories, fitted_ensembles, several_targets),
    dask_shards,
)
BENCHMARKS: dict[str, Callable[[Options], Iterator[Table]]] = {function.__name__: function for function in FUNCTIONS}


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks named; 1 if one of them failed."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if unknown := set(parsed.names) - set(BENCHMARKS):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}: choose from {', '.join(BENCHMARKS)}")
    if parsed.store and (parsed.sets or not parsed.small):
        parser.error("--store writes the figures of all small sets over others: give --small, and no --sets")
    size = Size.SMOKE if parsed.smoke else Size.QUICK if parsed.quick else Size.FULL
    resumed = parsed.output if parsed.resume else None
    options = Options(size, parsed.data, resumed, tuple(parsed.sets), parsed.small, parsed.store)
    if parsed.threads:
        _limit_threads(parsed.threads)
    warnings.simplefilter("ignore")
    report = Report(parsed.output, options)
    bars: list[Bar] = []
    failed = []
    for name in parsed.names or BENCHMARKS:
        start = perf_counter()
        try:
            for table in BENCHMARKS[name](options):
                report.write(table)
                bars += table.bars
        except Exception:
            traceback.print_exc()
            failed.append(name)
        print(f"[{name}: {perf_counter() - start:.0f} s]", file=sys.stderr, flush=True)
    if bars:
        report.write(summary(bars))
    return bool(failed)


def _limit_threads(number: int) -> None:
    """Of libraries that are loaded, and of those that will be."""
    os.environ["OMP_NUM_THREADS"] = str(number)
    torch.set_num_threads(number)
    threadpool_limits(number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__.strip().splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--smoke", action="store_true", help="the smallest sizes, for the tests")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of NAME.npz files with arrays X and y")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        default=Path("build/benchmarks"),
        help="where results go (%(default)s)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="leave out rows of `sizes`, `evidence`, `papers` and `botorch_optimizers` that are there already, "
        "whatever version measured them",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="threads of each library (default: the libraries')")
    honest = parser.add_argument_group("of honest, whose folder has index.json and splits.npz")
    honest.add_argument("--sets", nargs="+", metavar="SET", default=(), help="names of sets (default: all)")
    honest.add_argument("--small", action="store_true", help=f"sets of at most {MOST_SMALL:,} training rows")
    honest.add_argument(
        "--store",
        type=Path,
        nargs="?",
        const=FIGURES,
        metavar="FILE",
        help="write the figures that tests/quality guards (default: into its figures.json)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
