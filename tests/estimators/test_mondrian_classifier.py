"""The Mondrian classifier: scikit-learn's checks, weights whether cells come at once or bit by bit, and widths."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

from gpytorch_partition.estimators import MondrianClassifier
from gpytorch_partition.lifetimes.lifetime_path import pad_weights

RANDOM = np.random.RandomState(0)
X = RANDOM.rand(500, 2) * [1.0, 100.0] + [0.0, 7.0]
CELLS = np.floor(3 * (X - [0.0, 7.0]) / [1.0, 100.0]).sum(1)
Y = np.array(["green", "blue", "red"])[(CELLS % 3).astype(int)]
TRAIN, TEST = slice(0, 350), slice(350, 500)


def classifier(**options):
    return MondrianClassifier(**{"num_trees": 30, "num_lifetimes": 5, "epochs": 5, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(X[TRAIN], Y[TRAIN])


def test_scores_are_those_of_the_labels(fitted):
    """By dictionaries of labels, with the weights that were learned."""
    kernel, points = fitted.kernel_, fitted._columns.apply_array(X)
    seen = {}
    for row in kernel.cluster_ids(points[TRAIN]).tolist():
        for tree, label in enumerate(row):
            seen.setdefault((tree, label), None)
    assert len(seen) == fitted.num_cells_
    learner, features = fitted._learner, fitted.features_
    dense = features.features(points[TEST]).toarray()
    gram = kernel(points[TRAIN], points[TEST]).to_dense().numpy()
    np.testing.assert_allclose(features.features(points[TRAIN]).toarray() @ dense.T, gram, atol=1e-6)
    scores = dense @ learner.coef_.T + learner.intercept_
    np.testing.assert_allclose(fitted.decision_function(X[TEST]), scores)
    assert (fitted.predict(X[TEST]) == fitted.classes_[scores.argmax(1)]).all()
    assert fitted.score(X[TEST], Y[TEST]) > 0.75
    np.testing.assert_allclose(fitted.predict_proba(X[TEST]).sum(1), 1)


def test_the_width_is_that_of_the_least_error(fitted):
    assert len(fitted.lifetimes_) == len(fitted.validation_errors_) == 5
    assert fitted.lifetime_ == fitted.lifetimes_[fitted.validation_errors_.argmin()]
    assert fitted.kernel_.lifetime == fitted.lifetime_
    assert fitted.validation_errors_[0] > 2 * fitted.validation_errors_.min()  # one cell for all says nothing
    given = classifier(lifetime=2.5).fit(X[TRAIN], Y[TRAIN])
    assert given.lifetime_ == 2.5
    assert given.validation_errors_ is None


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("average", [False, True])
def test_cells_that_come_later_change_nothing_that_was_learned(classes, average):
    """Weights are those of a learner to which all columns were known from the beginning, with zeros for the others."""
    random = np.random.RandomState(1)
    dense = random.rand(60, 12) * (random.rand(60, 12) > 0.7)
    dense[:30, 7:] = 0
    features = csr_matrix(dense)
    y = random.randint(classes, size=60)
    growing, known = (SGDClassifier("log_loss", average=average, shuffle=False, random_state=0) for _ in range(2))
    for part, width in ((slice(0, 30), 7), (slice(30, 60), 12)):
        if hasattr(growing, "coef_"):
            pad_weights(growing, width)
        growing.partial_fit(features[part, :width], y[part], classes=np.arange(classes))
        known.partial_fit(features[part], y[part], classes=np.arange(classes))
    np.testing.assert_allclose(growing.coef_, known.coef_, atol=1e-12)
    np.testing.assert_allclose(growing.intercept_, known.intercept_, atol=1e-12)


def test_it_goes_on_as_rows_arrive():
    """From few rows: cells open, old ones keep their columns, and errors fall."""
    model = classifier(lifetime=6.0)
    model.partial_fit(X[:60], Y[:60], classes=np.unique(Y))
    scores, cells = [model.score(X[TEST], Y[TEST])], [model.num_cells_]
    first = model.features_.columns(model._columns.apply_array(X[:60]))
    for start in range(60, 350, 58):
        model.partial_fit(X[start : start + 58], Y[start : start + 58])
        scores.append(model.score(X[TEST], Y[TEST]))
        cells.append(model.num_cells_)
    assert (np.diff(cells) > 0).all()
    assert scores[-1] > scores[0] + 0.03
    assert (model.features_.columns(model._columns.apply_array(X[:60])) == first).all()
    one = model.partial_fit(X[400:401], Y[400:401])
    assert one.features_.columns(one._columns.apply_array(X[400:401])).min() >= 0


def test_fit_begins_anew(fitted):
    model = classifier().fit(X[:50], Y[:50]).fit(X[TRAIN], Y[TRAIN])
    assert np.array_equal(model.decision_function(X[TEST]), fitted.decision_function(X[TEST]))


def test_units_of_columns_do_not_matter(fitted):
    other = classifier().fit(X[TRAIN] * [1024.0, 0.5], Y[TRAIN])
    assert (other.predict(X[TEST] * [1024.0, 0.5]) == fitted.predict(X[TEST])).mean() > 0.99


def test_hinge_has_no_probabilities():
    model = classifier(loss="hinge", lifetime=2.0).fit(X[TRAIN], Y[TRAIN])
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError):
        model.predict_proba(X)


def test_a_share_of_held_out_rows_that_is_not_needed_may_be_any():
    assert classifier(validation_fraction=0.999, lifetime=2.0).fit(X[:50], Y[:50]).lifetime_ == 2.0
    assert classifier(validation_fraction=0.999).fit(X[:6], ["a", "b"] * 3).validation_errors_ is None


def test_the_largest_share_of_held_out_rows():
    assert classifier(validation_fraction=0.99).fit(X[TRAIN], Y[TRAIN]).validation_errors_.shape == (5,)  # 3 rows train


def test_rows_that_an_earlier_part_does_not_go_with():
    model = classifier(lifetime=2.0).fit(X[:50], Y[:50])
    with pytest.raises(ValueError, match="name all classes in the first partial_fit"):
        model.partial_fit(X[:2], ["green", "violet"])
    with pytest.raises(ValueError, match="classes of the first call"):
        model.partial_fit(X[:2], Y[:2], classes=["green", "violet"])
    with pytest.raises(ValueError, match="3 features"):
        model.partial_fit(RANDOM.rand(2, 3), Y[:2])


def test_few_and_equal_rows():
    """Too few to choose by, and no distances: a usual lifetime."""
    assert classifier().fit(X[:6], ["a", "b"] * 3).predict(X[:2]).shape == (2,)
    same = classifier().fit(np.ones((30, 2)), ["a", "b", "b"] * 10)
    assert (same.predict(np.ones((2, 2))) == "b").all()


@pytest.mark.slow
def test_the_least_validation_error_is_that_of_new_rows():
    """In cells without rows a model knows nothing, whatever a wider one knew: 20 % errors where 8 were promised."""
    rows, classes = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(rows))
    train, new = order[:600], order[600:]
    model = MondrianClassifier(30, random_state=0).fit(rows[train], classes[train])
    promised, error = model.validation_errors_.min(), 1 - model.score(rows[new], classes[new])
    assert error < promised + 3 * (promised * (1 - promised) / 120) ** 0.5
    assert error < 0.1
