"""Train an exact Gaussian process with a partition kernel: `python tutorials/train_exact_gp.py data.csv price`."""

import argparse
import logging
from pathlib import Path

import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from sklearn.model_selection import train_test_split

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel, fit_exact_gp, settings
from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.roles import Roles, read_training_data
from gpytorch_partition.files import replacing
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.tables import NumberView, TableEncoder

KERNELS = {"forest": RandomForestKernel, "fast_cluster": FastClusterKernel, "mondrian": MondrianKernel}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="a CSV or parquet file, as `python -m gpytorch_partition fit` reads it")
    parser.add_argument("target")
    parser.add_argument("--kernel", choices=KERNELS, default="forest")
    parser.add_argument("--num-partitions", type=int, default=200)
    parser.add_argument("--method", choices=("auto", "l-bfgs", "adam"), default="auto", help="auto: in one pass")
    parser.add_argument("--steps", type=int, default=50, help="of Adam, or L-BFGS at most [50]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--checkpoint", type=Path, help="file to save to, and to go on from if it exists")
    return parser.parse_args()


def load(args):
    """Standardized training rows and targets, held-out ones, and the target's standard deviation."""
    data = read_training_data(args.data, Roles(args.target))
    logging.info("\n".join(data.notes))
    encoder = TableEncoder().fit(data.table)
    x, y = torch.from_numpy(encoder.transform(data.table)), torch.from_numpy(data.y)
    chosen, held_out = train_test_split(torch.arange(len(y)), test_size=0.2, random_state=0)
    levels = {column: len(known) for column, known in encoder.categories_.items()}
    x = NumberView(x[chosen], levels, y[chosen])(x)  # text as numbers, holes filled: all kernels take it
    x = (x - x[chosen].mean(0)) / x[chosen].std(0).clamp_min(1e-12)
    unit, y = float(y[chosen].std()), (y - y[chosen].mean()) / y[chosen].std()
    rows, targets = x.float().to(args.device), y.float().to(args.device)
    return rows[chosen], targets[chosen], rows[held_out], targets[held_out], unit


def train_by_adam(model, args):
    optimizer, first = torch.optim.Adam(model.parameters(), lr=0.1), 0
    run = str(vars(args) | {"steps": "any", "checkpoint": "any"})
    if args.checkpoint and args.checkpoint.exists():
        try:
            saved = torch.load(args.checkpoint, map_location=args.device)
        except Exception:  # unpickling another kind of file can raise anything
            saved = {}
        if saved.get("run") != run:
            raise CommandError(f"{args.checkpoint} is not of the run {run}: delete it, or name another")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    mll = ExactMarginalLogLikelihood(model.likelihood, model.train())
    for step in range(first + 1, args.steps + 1):
        with settings.iterative():
            optimizer.zero_grad()
            loss = -mll(model(*model.train_inputs), model.train_targets)
            loss.backward()
        logging.info("step %d  loss %.6f  noise %.4f", step, loss.item(), model.likelihood.noise.item())
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "run": run}
        if args.checkpoint:
            with replacing(args.checkpoint) as file:  # whole, or as it was
                torch.save(state, file)


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    args = parse_arguments()
    try:
        x, y, new_x, new_y, unit = load(args)
        inputs = (x, y) if args.kernel == "forest" else (x,)  # only forests are grown on targets
        kernel = KERNELS[args.kernel](*inputs, args.num_partitions, random_state=0)
        model = PartitionGP(x, y, GaussianLikelihood(), kernel)
        if args.method == "adam":
            train_by_adam(model, args)
        else:
            logging.info(fit_exact_gp(model, model.likelihood, method=args.method, max_iterations=args.steps))
    except (CommandError, OSError, ValueError, RuntimeError) as error:
        raise SystemExit(f"error: {error}") from None
    with torch.no_grad(), settings.iterative():
        predicted = model.eval().likelihood.eval()(model(new_x))
    errors, covered = (predicted.mean - new_y).abs(), 1.645 * predicted.stddev
    share, rmse = (errors < covered).float().mean(), errors.norm() / len(errors) ** 0.5 * unit
    logging.info("held-out RMSE %.4g, 90 %% intervals cover %.2f", rmse, share)


if __name__ == "__main__":
    main()
