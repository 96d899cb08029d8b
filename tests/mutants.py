"""
Faults on purpose, one line each, that the tests of a folder must find: run it when tests are merged or thrown away.

    python -m tests.mutants [--only TEXT] [--suite "slow or not slow"] [--tests PATH ...]

Each fault is made in a copy of the checkout, and the tests of its folder (or those named) run until the first fails.
A fault whose line no longer exists is an error: look for what took its place, and write it anew.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, EFFECTS = "gpytorch_partition", "operators/cluster_operators"

# A file of the package, the right text, the wrong one, and the folder of tests that must notice.
MUTANTS: list[tuple[str, str, str, str]] = [
    # operators, clusters
    ("clusters/tree_layout.py", "of_node(layout.heights) + 1", "of_node(layout.heights) + 2", "kernels"),
    ("clusters/tree_layout.py", "return torch.where(is_leaf, -above.expm1(), inner)", "return inner", "clusters"),
    ("clusters/co_occurrence.py", "pairs = local[first] * size +", "pairs = local[first] +", "clusters"),
    ("clusters/incidence.py", "None, None, None, LinearProduct", "None, None, None, 2 * LinearProduct", "clusters"),
    ("operators/partition_linear_operator.py", "loadings.sum(-1)", "loadings.mean(-1)", "operators"),
    ("operators/partition_linear_operator.py", "left=self.right,\n", "left=self.left,\n", "operators"),
    ("operators/partition_linear_operator.py", "own * torch.einsum(", "own + torch.einsum(", "operators"),
    (f"{EFFECTS}/path_sum_linear_operator.py", "self.node_weights.sqrt()", "self.node_weights", "operators"),
    (f"{EFFECTS}/path_sum_linear_operator.py", "(shared < 0, 0, node", "(shared < 0, 1, node", "operators"),
    (f"{EFFECTS}/cluster_operator.py", "self.weights.sqrt(), num", "self.weights, num", "operators"),
    (f"{EFFECTS}/shared_paths.py", "in_units - whole - fine", "0 * whole", "operators"),
    ("solvers/iterative_solvers.py", "noisy.iterations = found.iterations", "pass", "inference"),
    ("explain/forest_proximities.py", "moved) != leaves)", "moved) == leaves)", "explain"),
    ("solvers/preconditioners.py", "(rhs - tall_product(root", "(rhs + tall_product(root", "solvers"),
    ("solvers/preconditioners.py", "inner = 2 * cholesky", "inner = cholesky", "solvers"),
    ("solvers/preconditioners.py", "(1 - float(fall.min()) ** -0.25)", "0", "solvers"),
    ("solvers/preconditioners.py", "eigenvalue / self.noise", "self.noise", "solvers"),
    ("linalg/parallel.py", "number = _set_mkl_threads(1)", "number = 0", "linalg"),
    ("solvers/preconditioners.py", "reciprocal().unsqueeze(-1)", "unsqueeze(-1)", "solvers"),
    ("solvers/iterative_solvers.py", "noisy.noise_share < _LEAST_SHARE", "False", "extremes"),
    ("solvers/iterative_solvers.py", "(norm > _LEAST_USE * size).any()", "(norm < 0).any()", "solvers"),
    ("solvers/iterative_solvers.py", "warnings.warn(told, NumericalWarning, stacklevel=2)", "pass", "extremes"),
    ("solvers/iterative_solvers.py", "noisy.has_failed = True", "pass", "solvers"),
    ("solvers/decision_table.py", "(\"solve\", \"likelihood\")", "()", "solvers"),
    # partitions, kernels
    ("partitions/sites.py", "mul_(differences))", "abs_())", "partitions"),
    ("partitions/hashed_cells.py", "(values - shift) / pitch", "values / pitch", "partitions"),
    ("partitions/hashed_cells.py", "random.gamma(2.0", "random.gamma(1.0", "partitions"),
    ("partitions/mondrian/process.py", "_CLOCK_SALT) / rate", "_CLOCK_SALT)", "partitions"),
    ("partitions/mondrian/process.py", "_SIDE_SALT) * rate).sum(0)", "_SIDE_SALT)).sum(0)", "partitions"),
    ("partitions/mondrian/process.py", "upper / 2 - lower / 2", "upper - lower", "stored_models"),
    ("partitions/membership_partition.py", "strengths.rsqrt()", "strengths.reciprocal()", "partitions"),
    ("partitions/ensembles/lightgbm_trees.py", "low >= -1 and high < most_codes", "low > high", "partitions"),
    ("partitions/ensembles/tree_arrays.py", "_is_whole(level) and level <= exact", "_is_whole(level)", "partitions"),
    ("partitions/ensembles/tree_values.py", "with_codes(X, json_trees.level_tables(booster))", "X", "explain"),
    ("kernels/landmark_kernel.py", "_RELATIVE_JITTER * within", "0.1 * within", "kernels"),
    ("kernels/mondrian_kernels.py", "((end - start) / steps)", "(end / steps)", "kernels"),
    ("kernels/mondrian_kernels.py", "return self.concentration / self.rate", "return self.rate", "kernels"),
    ("kernels/random_forest_kernel.py", "self.tree_weights / self.num_partitions", "self.tree_weights", "kernels"),
    # inference, training
    ("inference/evidence/spectral_likelihood.py", "self.log_determinant(outputscale, noise) + c", "c", "inference"),
    ("inference/evidence/spectral_likelihood.py", "+ of_zeros", "", "inference"),
    ("inference/evidence/profile_likelihood.py", "form / num_rows, _LEAST", "2 * form / num_rows, _LEAST", "inference"),
    ("inference/spaces/feature_space.py", "sums) / noise", "sums)", "inference"),
    ("inference/spaces/feature_space.py", "inner.diagonal().add_(1)", "inner.diagonal()", "inference"),
    ("inference/spaces/statistics.py", "sums = self.sums + sign *", "sums = self.sums +", "inference"),
    ("inference/spaces/feature_space.py", "innovation = seen @ seen.mT", "innovation = seen.mT @ seen", "models"),
    ("inference/spaces/feature_space.py", "self.mean + weighted @", "weighted @", "models"),
    ("inference/spaces/cluster_space.py", "self._ratio**0.5 * own", "own", "inference"),
    ("inference/spaces/cluster_space.py", "(features + found.residual)", "(features - found.residual)", "inference"),
    ("inference/prediction/cluster_posterior.py", "self._noise_diagonal.sqrt() *", "0 *", "inference"),
    ("inference/prediction/predictive_covariance.py", "half - half.mT + weights", "half + weights", "inference"),
    ("inference/prediction/predictive_covariance.py", "- torch.cat(forms", "+ torch.cat(forms", "inference"),
    ("inference/prediction/strategy.py", "offset[..., rows, :], rows)", "offset[..., rows, :])", "inference"),
    # A gap: no test of inference, composition or extremes finds the next one, which leaves the other half of the rule.
    ("inference/prediction/strategy.py", "keepdim=True) <= MEAN_ERROR**2", "keepdim=True) >= 0", "inference"),
    ("training/predictive_density.py", "variances = prior - (cross", "variances = prior + (cross", "training"),
    ("training/predictive_density.py", "2 * found.solved * by_variance", "found.solved * by_variance", "training"),
    ("training/log_loss.py", "torch.diag(1 / row_weights", "torch.diag(row_weights", "training"),
    ("training/coregionalization.py", "own.mT @ own - (rotation", "own.mT @ own + (rotation", "training"),
    # lifetimes, models, likelihoods
    ("lifetimes/lifetime_likelihoods.py", "num_clusters * math.log(self.ridge)", "math.log(self.ridge)", "lifetimes"),
    ("lifetimes/likelihood_sweep.py", "(means - mean).square())", "0 * means)", "lifetimes"),
    ("models/counted_gp.py", "predict(self.x)[1] + self.noise", "predict(self.x)[1]", "estimators"),
    ("models/feature_space_gp.py", "mean=found.mean + center", "mean=found.mean - center", "models"),
    ("models/spectral.py", "own[1].unsqueeze(-2) - 2 *", "own[1].unsqueeze(-2) -", "models"),
    ("likelihoods/forest_noise_likelihood.py", "logs - logs.mean()", "logs", "likelihoods"),
    ("likelihoods/noise_likelihoods.py", "to(x) + self.unspanned(x)", "to(x)", "likelihoods"),
    # presets
    ("presets/heavy_tails.py", "gain > setup.options.least_discount_gain * len", "gain > 0 * len", "presets"),
    ("command_line/table_files.py", "kinds <= {int, float}", "kinds <= {str}", "command_line"),
    ("estimators/classifier.py", "(weights / weights.max()).astype(np.float32)", "weights", "estimators"),
    ("presets/weights_and_noise.py", "max(1, num_choosing - num_values)", "num_choosing", "estimators"),
    ("presets/weights_and_noise.py", "self.noise * self.factor", "self.noise", "presets"),
    ("presets/calibrated_noise.py", "  choice.scaled(factor),", "  choice,", "presets"),
    ("presets/calibrated_noise.py", "np.setdiff1d(fold[1], choice.rows.numpy())", "fold[1]", "presets"),
    ("presets/heavy_tails.py", "<= _MOST_SQUARES *", "<=", "presets"),
    ("presets/heavy_tails.py", "(outliers > 0).sum()", "(outliers < 0).sum()", "presets"),
    ("presets/rough_field.py", "fold.held_out + start", "fold.held_out", "presets"),
    ("training/predictive_density.py", "position[0].exp() * variances", "variances", "presets"),
    ("inputs/standardization.py", "clamp_min(1).log()", "clamp_min(1).log2()", "inputs"),
    ("inputs/standardization.py", "rows.clamp(mean - reach, mean + reach)", "rows", "inputs"),
    ("inputs/standardization.py", "0.0, 1.0, math.inf\n", "0.0, 1.0, FAR\n", "inputs"),
    ("inputs/standardization.py", "(_EXTREME * counts).long().clamp_min(1)", "0 * counts", "inputs"),
    ("kernels/wrapper_kernels.py", "+ columns.far", "+ torch.inf", "kernels"),
    ("inputs/standardization.py", "sum(0) >= left_out", "sum(0) >= 0", "inputs"),
    ("estimators/regression_fit.py", "Standardization.of_columns(", "Standardization.of_array(", "estimators"),
    ("estimators/fitted_regressor.py", "columns.mean) + fitted.columns.far", "columns.mean) + 10", "files"),
    ("presets/parts.py", "if inputs.has_far_values else {}", "if False else {}", "estimators"),
    ("presets/parts.py", "(excess - known) / scales", "0 * (excess - known) / scales", "estimators"),
    ("inference/evidence/lengthscales.py", "3 * scale * sensitivity", "scale * sensitivity", "inference"),
    ("likelihoods/scale_mixture.py", "(1e-30, 1e-7)", "(1e-7, 1e-7)", "likelihoods"),
    # estimators, tables, files
    ("estimators/scores.py", "np.maximum(lower - y, 0)", "0", "estimators"),
    ("estimators/regressor.py", "covariance.diagonal().T.clip(0)", "covariance.diagonal().T", "estimators"),
    ("estimators/classifier.py", "found[:, 1] - found[:, 0]", "found[:, 0] - found[:, 1]", "estimators"),
    ("estimators/svm.py", "bias * machine.coef_[0, -1]", "machine.coef_[0, -1]", "estimators"),
    ("estimators/machines.py", "np.sqrt(np.maximum(self.eigenvalues_, 0))", "self.eigenvalues_", "estimators"),
    ("tables/chunks.py", "self.num_rows + chosen", "chosen", "tables"),
    ("tables/number_view.py", "count + 1 + of_folds", "count + of_folds", "tables"),
    ("tables/cells.py", "hours + minutes / 60", "hours", "tables"),
    ("files.py", "if _digest(file, start + seal.start(2)) != seal[2]:", "if False:", "files"),
    ("files.py", "shutil.copymode(target, beside)", "pass", "files"),
]  # fmt: skip


def run(mutant: tuple[str, str, str, str], suite: str, tests: list[str]) -> bool:
    """Whether a test fails, in a copy of the checkout that has the fault."""
    path, right, wrong, folder = mutant
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "__pycache__", "build", "*cache"))
        source = copy / PACKAGE / path
        text = source.read_text()
        assert text.count(right) == 1, f"expected once in {path}, found {text.count(right)} times: {right}"
        source.write_text(text.replace(right, wrong))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", suite]
        command += tests or [f"tests/{folder}"]
        environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
        status = subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False).returncode
    assert status in (0, 1, 2), f"pytest ended with {status}"  # 2: a fault that stops the tests at their import
    return status != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults with this text in file, text or folder")
    parser.add_argument("--suite", default="not slow", help="as pytest -m (not slow)")
    parser.add_argument("--tests", nargs="*", default=[], help="instead of the folder of each fault")
    options = parser.parse_args()
    survivors = 0
    for mutant in MUTANTS:
        if options.only in " ".join(mutant):
            start, found = time.monotonic(), run(mutant, options.suite, options.tests)
            survivors += not found
            print("caught  " if found else "SURVIVED", f"{time.monotonic() - start:4.0f} s", *mutant[:3], flush=True)
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
