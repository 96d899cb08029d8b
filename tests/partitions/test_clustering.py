"""Clusterings against scikit-learn's own predict, and against nearest rows found one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.stats import randint
from sklearn.base import clone
from sklearn.cluster import (
    DBSCAN,
    HDBSCAN,
    AffinityPropagation,
    AgglomerativeClustering,
    Birch,
    BisectingKMeans,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
)
from sklearn.exceptions import NotFittedError
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpytorch_partition import ClusteringKernel, PartitionKernel
from gpytorch_partition.inputs.numbers import floats_of
from gpytorch_partition.partitions import CallablePartition, ClusteringPartition, PitmanYorMixture

RANDOM = np.random.RandomState(0)
CENTERS = RANDOM.normal(scale=2.0, size=(4, 3))
ARRAY = CENTERS[RANDOM.randint(4, size=200)] + 0.5 * RANDOM.normal(size=(200, 3))
X = torch.from_numpy(ARRAY)
POINTS = torch.from_numpy(2 * RANDOM.normal(size=(500, 3)))

PREDICTING = {
    "k-means": KMeans(6, random_state=0),
    "mini-batch": MiniBatchKMeans(6, random_state=0),
    "mean shift": MeanShift(),
    "affinity": AffinityPropagation(random_state=0),
    "birch": Birch(threshold=0.3, n_clusters=4),
    "birch, all subclusters": Birch(threshold=0.8, n_clusters=None),
    **{
        name: GaussianMixture(4, covariance_type=name, random_state=0) for name in ("full", "tied", "diag", "spherical")
    },
    "dirichlet": BayesianGaussianMixture(
        n_components=8, weight_concentration_prior_type="dirichlet_process", max_iter=500, random_state=0
    ),
}
KEEPING = {
    "dbscan": (DBSCAN(min_samples=3), {"eps": (0.2, 2.0)}),
    "hdbscan": (HDBSCAN(copy=True), {"cut_distance": (0.2, 2.0), "min_cluster_size": (2, 10)}),
    "agglomerative": (AgglomerativeClustering(linkage="average"), {"n_clusters": (2, 20)}),
    "bisecting": (BisectingKMeans(), {"n_clusters": [3, 5]}),
    "pipeline": (make_pipeline(StandardScaler(), KMeans()), {"kmeans__n_clusters": randint(2, 9)}),
    "pitman-yor": (PitmanYorMixture(num_sweeps=1), {"discount": (0.01, 0.5)}),
}


def same_clusters(a, b):
    """Whether two lists of labels are the same partition."""
    pairs = set(zip(np.asarray(a).tolist(), np.asarray(b).tolist()))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def of(clusterer, num_partitions=4, x=X, **options):
    return ClusteringPartition(x, clusterer, num_partitions, **{"random_state": 0, **options})


class TestClusterersThatPredict:
    @pytest.mark.parametrize("name", PREDICTING)
    def test_a_fitted_one_is_read(self, name):
        clusterer = clone(PREDICTING[name]).fit(ARRAY)
        for source in (clusterer, clusterer.predict, [clusterer]):
            kernel = PartitionKernel(source)
            assert isinstance(kernel.partition, ClusteringPartition)
            labels = kernel.cluster_ids(POINTS)
            assert labels.shape == (500, 1)
            assert same_clusters(labels[:, 0], clusterer.predict(POINTS.numpy()))
        assert len(labels.unique()) > 1

    @pytest.mark.parametrize("name", PREDICTING)
    def test_cloned_on_all_rows_it_is_the_same(self, name):
        partition = of(PREDICTING[name], 1)
        seed = np.random.RandomState(np.random.RandomState(0).randint(2**31 - 1, size=1)[0])
        seed.permutation(3)  # the columns, all of which are kept
        clusterer = clone(PREDICTING[name])
        if "random_state" in clusterer.get_params():
            clusterer.set_params(random_state=seed.randint(2**31 - 1))
        assert same_clusters(partition.labels(POINTS)[:, 0], clusterer.fit(ARRAY).predict(POINTS.numpy()))

    def test_several_fitted_ones(self):
        fitted = [KMeans(k, random_state=0).fit(ARRAY) for k in (2, 7)] + [
            GaussianMixture(3, random_state=0).fit(ARRAY)
        ]
        labels = PartitionKernel(fitted).cluster_ids(POINTS)
        assert all(same_clusters(labels[:, r], fitted[r].predict(POINTS.numpy())) for r in range(3))

    def test_core_points_of_a_fitted_dbscan(self):
        fitted = DBSCAN(eps=0.5).fit(ARRAY)
        cores = fitted.labels_[fitted.core_sample_indices_]
        expected = cores[cdist(POINTS.numpy(), fitted.components_).argmin(1)]
        assert same_clusters(PartitionKernel(fitted).cluster_ids(POINTS)[:, 0], expected)

    def test_others_predict_themselves(self):
        fitted = BisectingKMeans(5, random_state=0).fit(ARRAY)
        for source in (fitted, fitted.predict):
            kernel = PartitionKernel(source)
            assert isinstance(kernel.partition, CallablePartition)
            assert np.array_equal(
                kernel.cluster_ids(POINTS.float())[:, 0], fitted.predict(POINTS.float().double().numpy())
            )

    def test_those_that_cannot_are_refused(self):
        with pytest.raises(TypeError, match="expected a function.*ClusteringKernel"):
            PartitionKernel(AgglomerativeClustering().fit(ARRAY))
        with pytest.raises(TypeError, match="whose rule for new points is known"):
            PartitionKernel([BisectingKMeans().fit(ARRAY)])
        with pytest.raises(TypeError, match="got the class KMeans"):
            PartitionKernel(KMeans)
        with pytest.raises(NotFittedError):
            PartitionKernel(KMeans().predict)
        with pytest.raises(ValueError, match="same columns"):
            PartitionKernel([KMeans(2).fit(ARRAY), KMeans(2).fit(ARRAY[:, :2])])
        with pytest.raises(ValueError, match="same columns|numbers of columns"):
            ClusteringPartition.of_fitted([])


class TestNearestRows:
    @pytest.mark.parametrize("name", KEEPING)
    def test_new_points_join_the_nearest_row(self, name):
        clusterer, distributions = KEEPING[name]
        partition = of(clusterer, param_distributions=distributions, rows=0.7, columns=2, projection=2)
        sites = floats_of(partition.sites).numpy().reshape(4, 140, 2)
        clusters = partition.site_clusters.numpy().reshape(4, 140)
        for r in range(4):
            matrix = floats_of(partition.projections[r]).numpy() * (3 / 2) ** 0.5
            view, new = (values[:, partition.kept[r].numpy()] @ matrix for values in (ARRAY, POINTS.numpy()))
            distances = cdist(sites[r], view)
            assert distances.min(1).max() < 1e-12  # they are rows
            assert len(np.unique(distances.argmin(1))) == 140  # and different ones
            expected = clusters[r][cdist(new, sites[r]).argmin(1)]
            assert np.array_equal(partition.labels(POINTS)[:, r], expected)

    def test_the_first_row_in_a_tie(self):
        clusterer = AgglomerativeClustering(2)
        x = torch.tensor([[0.0], [1.0], [3.0], [4.0]])
        partition = ClusteringPartition(x, clusterer, 1)
        first, tied, last = partition.labels(torch.tensor([[0.0], [2.0], [4.0]])).flatten().tolist()
        assert first == tied != last

    def test_noise(self):
        x = torch.tensor([[0.0], [0.1], [0.2], [3.0], [9.0]])
        options = {"num_partitions": 1, "x": x}
        points = torch.tensor([[0.1], [2.9], [8.0], [9.0], [20.0]])
        noisy = DBSCAN(eps=0.15, min_samples=2)
        alone, together, nearest_ = (
            of(noisy, noise=noise, **options).labels(points).flatten().tolist()
            for noise in ("alone", "together", "nearest")
        )
        assert same_clusters(alone, [0, 1, 2, 2, 2])
        assert same_clusters(together, [0, 1, 1, 1, 1])
        assert same_clusters(nearest_, [0, 0, 0, 0, 0])

    def test_nothing_but_noise(self):
        x = torch.tensor([[0.0], [5.0], [9.0]])
        for noise, clusters in (("alone", 3), ("together", 1), ("nearest", 1)):
            assert of(DBSCAN(eps=1.0), 1, x, noise=noise).cluster_counts.item() == clusters


class TestRandomness:
    @pytest.mark.parametrize(
        ("clusterer", "options"),
        [
            (KMeans(7, n_init=1, init="random"), {}),
            (AgglomerativeClustering(), {"param_distributions": {"n_clusters": (2, 30)}}),
            (DBSCAN(), {"param_distributions": {"eps": (0.2, 3.0)}}),
            (Birch(n_clusters=5, threshold=0.1), {"rows": 0.5}),
            (Birch(n_clusters=5, threshold=0.1), {"columns": 2}),
            (Birch(n_clusters=5, threshold=0.1), {"projection": 2}),
        ],
    )
    def test_each_kind_alone(self, clusterer, options):
        labels = of(clusterer, 6, **options).labels(X)
        others = of(clusterer, 6, random_state=1, **options).labels(X)
        again = of(clusterer, 6, random_state=np.random.RandomState(0), **options).labels(X)
        assert torch.equal(labels, again)
        assert not torch.equal(labels, others)
        assert not all(same_clusters(labels[:, 0], labels[:, r]) for r in range(1, 6))

    @pytest.mark.slow
    def test_drawn_in_parallel_they_are_the_same(self):
        expected = of(KMeans(5, init="random"), rows=0.5).labels(X)
        assert torch.equal(of(KMeans(5, init="random"), rows=0.5, n_jobs=2).labels(X), expected)

    def test_the_radius_of_a_cut_is_drawn(self):
        partition = of(HDBSCAN(min_samples=3, copy=True), 1, param_distributions={"cut_distance": [0.5]})
        expected = HDBSCAN(min_samples=3, copy=True).fit(ARRAY).dbscan_clustering(0.5)
        labels = partition.labels(X)[:, 0]
        assert (expected < 0).sum() > 3
        assert same_clusters(np.where(expected < 0, -np.arange(200) - 1, expected), labels)

    def test_ranges_are_drawn_in_the_logarithm(self):
        distributions = {"n_clusters": (1, 7)}
        counts = of(KMeans(n_init=1, max_iter=1), 400, X[:20], param_distributions=distributions).cluster_counts
        share = torch.bincount(counts, minlength=8)[1:] / 400
        expected = torch.log(torch.arange(2, 9) / torch.arange(1, 8)) / np.log(8)
        assert (share - expected).abs().max() < 0.07

    def test_distances_keep_their_size_in_every_view(self):
        """One radius means the same in some columns, in projections and in all columns, on average."""
        x = torch.from_numpy(np.random.RandomState(1).normal(size=(60, 12)))
        whole = cdist(x, x)[np.triu_indices(60, 1)]
        for options in ({"columns": 3}, {"columns": 6, "projection": 6}):
            sites = floats_of(of(DBSCAN(), 50, x, **options).sites).numpy().reshape(50, 60, -1)
            squares = np.mean([(cdist(s, s)[np.triu_indices(60, 1)] ** 2).mean() for s in sites])
            assert 0.85 < squares / (whole**2).mean() < 1.15

    def test_nothing_random_is_refused(self):
        with pytest.raises(ValueError, match="all 4 clusterings by DBSCAN.* would be the same"):
            of(DBSCAN())


class TestLabels:
    """A label is a pure function of the point."""

    @pytest.mark.parametrize("name", ["k-means", "birch", "full", "diag", "dirichlet"])
    def test_at_boundaries_they_do_not_depend_on_company(self, name):
        self._check_boundaries(of(PREDICTING[name], 1), POINTS)

    def test_nor_in_projections(self):
        x = torch.from_numpy(np.random.RandomState(0).normal(size=(500, 40)))
        self._check_boundaries(of(KMeans(5), 1, x[:100], projection=3), x)

    @staticmethod
    def _check_boundaries(partition, points):
        """Points halved until they lie within rounding of a boundary, alone and all at once."""
        a, b = points[:250], points[250:]
        first = partition.labels(a)
        differ = (first != partition.labels(b))[:, 0]
        a, b, first = a[differ], b[differ], first[differ]
        for _ in range(60):
            middle = (a + b) / 2
            is_first = partition.labels(middle) == first
            a, b = torch.where(is_first, middle, a), torch.where(is_first, b, middle)
        together = partition.labels(torch.cat([a, b]))
        alone = torch.cat([partition.labels(point.unsqueeze(0)) for point in torch.cat([a, b])])
        assert len(together) > 100
        assert torch.equal(together, alone)

    def test_huge_points_have_one(self):
        for clusterer in (KMeans(5), GaussianMixture(4)):
            labels = of(clusterer, projection=2).labels(torch.full((1, 3), 1e308, dtype=torch.float64))
            assert labels.shape == (1, 4)


class TestErrors:
    @pytest.mark.parametrize("clusterer", [None, 3, "kmeans", StandardScaler(), KMeans])
    def test_no_clusterer(self, clusterer):
        with pytest.raises(TypeError, match="expected a clusterer"):
            ClusteringKernel(X, clusterer)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"rows": 0}, "rows to be a number from 1 to 200"),
            ({"rows": 201}, "rows to be"),
            ({"rows": 1.5}, "rows to be"),
            ({"rows": "half"}, "rows to be"),
            ({"columns": 4}, "columns to be a number from 1 to 3"),
            ({"projection": 0}, "projection"),
            ({"noise": "some"}, "noise"),
            ({"param_distributions": {"eps": (1, 2)}}, "no parameter 'eps'"),
            ({"param_distributions": {"n_clusters": (0, 2)}}, "positive numbers"),
            ({"param_distributions": {"n_clusters": 3}}, "positive numbers"),
            ({"param_distributions": 3}, "to map names"),
        ],
    )
    def test_parameters(self, options, message):
        with pytest.raises(ValueError, match=message):
            of(KMeans(), **options)

    def test_rows_that_take_their_square(self):
        x = torch.zeros(10_001, 1)
        with pytest.raises(ValueError, match="give rows=1000"):
            ClusteringPartition(x, AgglomerativeClustering(), 1)
