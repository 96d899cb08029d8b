"""Train an exact Gaussian process with a partition kernel: `python tutorials/train_exact_gp.py data.csv price`."""

import argparse
import hashlib
import logging
from functools import partial
from pathlib import Path
from zipfile import is_zipfile

import gpytorch
import torch
from sklearn.model_selection import train_test_split

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel, fit_exact_gp, settings
from gpytorch_partition.command_line.outputs import CommandError
from gpytorch_partition.command_line.training_data import Roles, read_training_data
from gpytorch_partition.files import replacing
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.tables import NumberView, TableEncoder


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="a CSV or parquet file, as `python -m gpytorch_partition fit` reads it")
    parser.add_argument("target", help="the column to predict")
    parser.add_argument("--kernel", choices=("forest", "fast_cluster", "mondrian"), default="forest")
    parser.add_argument("--lifetime", type=float, help="of mondrian: 1 / width [1 / median distance of rows]")
    parser.add_argument("--num-partitions", type=int, default=200)
    parser.add_argument("--method", choices=("auto", "l-bfgs", "adam"), default="auto", help="auto: in one pass")
    parser.add_argument("--steps", type=int, default=50, help="of Adam, or L-BFGS at most [50]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--checkpoint", type=Path, help="of adam: to save to, and to go on from if it exists")
    return parser.parse_args()


def load(args):
    """Standardized training rows (text as numbers, holes filled), targets, held-out ones, and the target's scale."""
    data = read_training_data(args.data, Roles(args.target))
    logging.info("\n".join(data.notes))
    encoder = TableEncoder().fit(data.table)
    x, y = torch.from_numpy(encoder.transform(data.table)), torch.from_numpy(data.y)
    chosen, held_out = train_test_split(torch.arange(len(y)), test_size=0.2, random_state=0)
    x = NumberView(x[chosen], {name: len(known) for name, known in encoder.categories_.items()}, y[chosen])(x)
    x = ((x - x[chosen].mean(0)) / x[chosen].std(0).clamp_min(1e-12)).float().to(args.device)
    unit, y = float(y[chosen].std()), ((y - y[chosen].mean()) / y[chosen].std()).float().to(args.device)
    return x[chosen], y[chosen], x[held_out], y[held_out], unit


def train_by_adam(model, args):
    optimizer, first = torch.optim.Adam(model.parameters(), lr=0.1), 0
    rows = b"".join(each.cpu().numpy().tobytes() for each in (*model.train_inputs, model.train_targets))
    run = str(vars(args) | {"steps": "any", "checkpoint": "any", "rows": hashlib.sha256(rows).hexdigest()[:12]})
    if args.checkpoint and args.checkpoint.exists():
        saved = list(torch.load(args.checkpoint, map_location=args.device)) if is_zipfile(args.checkpoint) else []
        if saved[-1:] != [run]:
            raise CommandError(f"{args.checkpoint} is not of the run {run}: delete it, or name another")
        logging.info("going on after step %d", first := saved[0])
        model.load_state_dict(saved[1])
        optimizer.load_state_dict(saved[2])
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model.train())
    for step in range(first + 1, args.steps + 1):
        with settings.iterative():
            optimizer.zero_grad()
            loss = -mll(model(*model.train_inputs), model.train_targets)
            loss.backward()
        logging.info("step %d  loss %.6f  noise %.4f", step, loss.item(), model.likelihood.noise.item())
        optimizer.step()
        if args.checkpoint:
            with replacing(args.checkpoint) as file:  # whole, or as it was
                torch.save([step, model.state_dict(), optimizer.state_dict(), run], file)


def main(args):
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    try:
        wrong = (args.checkpoint and args.method != "adam", args.lifetime and args.kernel != "mondrian", args.steps < 1)
        if any(wrong):
            raise CommandError("--checkpoint is for --method adam, --lifetime for --kernel mondrian, --steps from 1 on")
        x, y, new_x, new_y, unit = load(args)
        kernels = {"forest": partial(RandomForestKernel, x, y), "fast_cluster": partial(FastClusterKernel, x)}
        kernels["mondrian"] = partial(MondrianKernel, x, lifetime=args.lifetime)
        kernel = kernels[args.kernel](args.num_partitions, random_state=0)
        model = PartitionGP(x, y, gpytorch.likelihoods.GaussianLikelihood(), kernel)
        if args.method == "adam":
            train_by_adam(model, args)
        else:
            fit = fit_exact_gp(model, model.likelihood, method=args.method, max_iterations=args.steps)
            logging.info("by %s: log marginal likelihood %.2f nats", fit.method, fit.log_marginal_likelihood)
    except (CommandError, OSError, ValueError, RuntimeError, AssertionError) as error:
        raise SystemExit(f"error: {error}".replace("--target", "target")) from None
    with torch.no_grad(), settings.iterative():
        predicted = model.eval().likelihood.eval()(model(new_x))
    errors, covered = (predicted.mean - new_y).abs(), 1.645 * predicted.stddev
    rmse = errors.norm() / len(errors) ** 0.5 * unit
    logging.info("held-out RMSE %.4g, 90 %% intervals cover %.2f", rmse, (errors < covered).float().mean())


if __name__ == "__main__":
    main(parse_arguments())
