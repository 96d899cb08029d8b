"""
Train an exact Gaussian process with a partition kernel by maximum marginal likelihood: a script to copy and change.

    python tutorials/train_exact_gp.py --kernel fast_cluster --num-rows 20000
    python tutorials/train_exact_gp.py --data houses.csv --target price --checkpoint run.pt

An interrupted run resumes from its checkpoint when the same command is given again.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split
from tqdm import tqdm

from gpytorch_partition import FastClusterKernel, MondrianKernel, PartitionKernel, RandomForestKernel, settings
from gpytorch_partition.models import PartitionGP

KERNELS = {"forest": RandomForestKernel, "fast_cluster": FastClusterKernel, "mondrian": MondrianKernel}
MAX_VARIANCES = 500  # a variance costs a solve over all training rows, but a mean one look-up per partition


def positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a .csv file of numbers, or a .npz file with X and y [Friedman 1]")
    parser.add_argument("--target", help="column of the .csv file to predict")
    parser.add_argument("--num-rows", type=positive, default=2000, help="rows of the synthetic data set [2000]")
    parser.add_argument("--test-size", type=float, default=0.2, help="share of the rows that is held out [0.2]")
    parser.add_argument("--kernel", choices=KERNELS, default="forest")
    parser.add_argument("--num-partitions", type=positive, default=200, help="trees or clusterings in the kernel [200]")
    parser.add_argument("--steps", type=positive, default=50, help="steps of Adam in all [50]")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, help="file to save to, and to resume from if it exists")
    parser.add_argument("--save-every", type=positive, default=5, help="steps between checkpoints [5]")
    return parser.parse_args()


def load_data(args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N x D) and targets (N)."""
    if args.data is None:
        x, y = make_friedman1(args.num_rows, n_features=10, noise=1.0, random_state=args.seed)
    elif args.data.suffix == ".npz":
        with np.load(args.data) as arrays:
            x, y = arrays["X"].astype(float), arrays["y"].astype(float)
    else:
        with open(args.data, newline="", encoding="utf-8-sig") as file:
            columns = next(csv.reader(file), [])
            if args.target not in columns:
                raise ValueError(f"no column {args.target!r} in {args.data}: it has {columns}; give one as --target")
            table = np.loadtxt(file, delimiter=",", quotechar='"', ndmin=2)
        x, y = np.delete(table, columns.index(args.target), axis=1), table[:, columns.index(args.target)]
    if x.ndim != 2 or x.size == 0 or y.shape != x.shape[:1] or len(y) < 20:
        raise ValueError(f"expected 20 rows or more, with one target each; got inputs {x.shape}, targets {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("the data hold NaN or infinity: drop or impute these rows")
    return x, y


def standardize(train: np.ndarray, test: np.ndarray, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Tensors with mean 0 and variance 1 in the training rows, and the last column's standard deviation."""
    center, unit = train.mean(0), np.where(train.std(0) > 0, train.std(0), 1.0)
    return like.new_tensor((train - center) / unit), like.new_tensor((test - center) / unit), float(unit.flat[-1])


def new_kernel(args: argparse.Namespace, *train: torch.Tensor) -> PartitionKernel:
    """Random partitions from training inputs and targets."""
    inputs = train if args.kernel == "forest" else train[:1]  # only forests are grown on the targets
    return KERNELS[args.kernel](*inputs, args.num_partitions, random_state=args.seed)


def load_checkpoint(args: argparse.Namespace, run: dict) -> dict | None:
    """The checkpoint to resume from, if there is one. It must be of the same run."""
    if args.checkpoint is not None and not args.checkpoint.parent.is_dir():
        raise ValueError(f"no directory {args.checkpoint.parent} to save the checkpoint in")
    if args.checkpoint is None or not args.checkpoint.exists():
        return None
    try:
        checkpoint = torch.load(args.checkpoint, weights_only=True, map_location=args.device)
        changed = [name for name, value in run.items() if checkpoint["run"][name] != value]
    except Exception as error:  # unpickling another kind of file can raise anything
        raise ValueError(f"{args.checkpoint} is not a checkpoint of this script") from error
    if changed:
        raise ValueError(f"{args.checkpoint} is of another run, with another {', '.join(changed)}: delete it")
    return checkpoint


def save_checkpoint(path: Path, checkpoint: dict) -> None:
    """Save atomically: the old checkpoint is replaced only when the new one is complete."""
    unfinished = path.with_name(path.name + ".unfinished")
    torch.save(checkpoint, unfinished)
    os.replace(unfinished, path)


def train(model: PartitionGP, args: argparse.Namespace, run: dict, checkpoint: dict | None) -> None:
    """Maximize the marginal likelihood with Adam. The loss is minus its logarithm, per row."""
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    first = 0
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        first = checkpoint["step"]
        print(f"going on after step {first}")
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    for step in (bar := tqdm(range(first + 1, args.steps + 1), desc="training", disable=None)):
        optimizer.zero_grad()
        with settings.iterative():
            loss = -likelihood(model(*model.train_inputs), model.train_targets)
            loss.backward()
        noise, outputscale = model.likelihood.noise.item(), model.covar_module.outputscale.item()
        values = f"noise {noise:.4f}  outputscale {outputscale:.4f}  mean {model.mean_module.constant.item():+.4f}"
        bar.write(f"step {step}/{args.steps}  loss {loss.item():.6f}  {values}")
        optimizer.step()
        if args.checkpoint is not None and (step % args.save_every == 0 or step == args.steps):
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "run": run}
            save_checkpoint(args.checkpoint, state)


def evaluate(model: PartitionGP, test_x: torch.Tensor, test_y: torch.Tensor, unit: float) -> None:
    """How well held-out rows are predicted, in the units of the target."""
    model.eval()
    x, y = test_x[:MAX_VARIANCES], test_y[:MAX_VARIANCES]
    with torch.no_grad(), settings.iterative():
        rmse = (model(test_x).mean - test_y).square().mean().sqrt()
        predicted = model.likelihood(model(x))
        normal = torch.distributions.Normal(predicted.mean, predicted.stddev)
    covered = (normal.cdf(y) - 0.5).abs() <= 0.45
    print(f"held-out rmse {rmse.item() * unit:.4g} ({len(test_y)} rows)")
    print(f"held-out nlpd {np.log(unit) - normal.log_prob(y).mean().item():.4g} ({len(y)} rows)")
    print(f"coverage of the 90 % interval {100 * covered.double().mean().item():.0f} % ({len(y)} rows)")


def main() -> int:
    args = parse_arguments()
    run = {
        name: getattr(args, name)
        for name in ("kernel", "num_partitions", "learning_rate", "dtype", "test_size", "seed")
    }
    try:
        if args.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("--device cuda, but torch finds no CUDA device")
        inputs, targets = load_data(args)
        run["data"] = zlib.crc32(np.column_stack([inputs, targets]).tobytes())
        checkpoint = load_checkpoint(args, run)
        split = train_test_split(inputs, targets, test_size=args.test_size, random_state=args.seed)
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    like = torch.empty(0, dtype=getattr(torch, args.dtype), device=args.device)
    train_x, test_x, _ = standardize(split[0], split[1], like)
    train_y, test_y, unit = standardize(split[2], split[3], like)
    # A kernel without data is completed by the checkpoint, which holds its partitions.
    kernel = new_kernel(args, train_x, train_y) if checkpoint is None else KERNELS[args.kernel]()
    model = PartitionGP(train_x, train_y, GaussianLikelihood(), kernel)
    train(model, args, run, checkpoint)
    evaluate(model, test_x, test_y, unit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
