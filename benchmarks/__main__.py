"""
Measure, print Markdown, and write it down as Markdown, CSV and pictures.

    python -m benchmarks product scaling  # some of it
    python -m benchmarks                  # everything: hours on two cores that do nothing else
    python -m benchmarks --smoke          # everything at the smallest sizes: to see that it runs
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
from .classification import gp_classification, mondrian_classification
from .costs import default_cost, default_rows, machines, several_targets, sizes
from .datasets import MOST_SMALL
from .devices import devices
from .evidence import evidence
from .groups import categories, groups, memberships
from .honest import FIGURES, honest
from .intervals import fitted_ensembles, function_intervals, noise_at_bound
from .kernels_and_ensembles import kernels_and_ensembles
from .mondrian_figures import mondrian_figures
from .mondrian_sample import mondrian_sample
from .papers import papers
from .partitions import (
    clustering_scores,
    clusterings,
    diagnosis,
    semi_supervised,
    semi_supervised_classes,
    weights_by_folds,
)
from .report import Options, Report, Table
from .shards import dask_shards, out_of_core
from .solves import cluster_space, preconditioners
from .speed import labelling, multitask, one_pass, product, scaling, training, whole_jobs
from .width_starts import width_starts

FUNCTIONS = (
    *(product, scaling, labelling, devices, training, one_pass, whole_jobs, multitask),
    *(preconditioners, cluster_space, groups, memberships, clusterings),
    *(clustering_scores, semi_supervised, semi_supervised_classes, diagnosis, weights_by_folds),
    *(evidence, honest, default_cost, default_rows, sizes, out_of_core, dask_shards),
    *(
        papers,
        mondrian_sample,
        mondrian_figures,
        mondrian_classification,
        width_starts,
        kernels_and_ensembles,
        machines,
        gp_classification,
    ),
    *(noise_at_bound, function_intervals, fitted_ensembles, categories, several_targets),
    botorch_optimizers,
)
BENCHMARKS: dict[str, Callable[[Options], Iterator[Table]]] = {function.__name__: function for function in FUNCTIONS}


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks named; return 1 if one of them failed."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if unknown := set(parsed.names) - set(BENCHMARKS):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}: choose from {', '.join(BENCHMARKS)}")
    if parsed.store and (parsed.sets or not parsed.small):
        parser.error("--store writes the figures of all small sets over others: give --small, and no --sets")
    resumed = parsed.output if parsed.resume else None
    options = Options(parsed.smoke, parsed.data, resumed, tuple(parsed.sets), parsed.small, parsed.store)
    if parsed.threads:
        os.environ["OMP_NUM_THREADS"] = str(parsed.threads)  # of libraries that will be loaded
        torch.set_num_threads(parsed.threads)
        threadpool_limits(parsed.threads)
    warnings.simplefilter("ignore")
    report = Report(parsed.output, options)
    failed = [name for name in parsed.names or BENCHMARKS if not _ran(name, options, report)]
    return bool(failed)


def _ran(name: str, options: Options, report: Report) -> bool:
    start = perf_counter()
    try:
        for table in BENCHMARKS[name](options):
            report.write(table)
        return True
    except Exception:  # the next one begins all the same
        traceback.print_exc()
        return False
    finally:
        print(f"[{name}: {perf_counter() - start:.0f} s]", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__.strip().splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(BENCHMARKS)}")
    parser.add_argument("--smoke", action="store_true", help="the smallest sizes, to see that everything runs")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of NAME.npz files with arrays X and y")
    folder = {"metavar": "DIR", "default": Path("build/benchmarks"), "help": "where results go (%(default)s)"}
    parser.add_argument("--output", type=Path, **folder)
    resume = "leave out rows that are there already without an error, whatever version measured them"
    parser.add_argument("--resume", action="store_true", help=resume)
    parser.add_argument("--threads", type=int, metavar="N", help="threads of each library (default: the libraries')")
    honest = parser.add_argument_group("of honest, whose folder has index.json and splits.npz")
    honest.add_argument("--sets", nargs="+", metavar="SET", default=(), help="names of sets (default: all)")
    honest.add_argument("--small", action="store_true", help=f"sets of at most {MOST_SMALL:,} training rows")
    told = "write the figures that tests/quality guards (default: into its figures.json)"
    honest.add_argument("--store", type=Path, nargs="?", const=FIGURES, metavar="FILE", help=told)
    return parser


if __name__ == "__main__":
    sys.exit(main())
