"""Scripts after the patterns of scikit-learn's gallery reach the same scores with one line replaced, the import."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

THEIRS = "from sklearn.linear_model import SGDClassifier, SGDRegressor"
OURS = "from hogwild import HogwildClassifier as SGDClassifier, HogwildRegressor as SGDRegressor"
HALF_A_POINT = 0.005

OUT_OF_CORE = f"""
{THEIRS}
from sklearn.feature_extraction.text import HashingVectorizer
vectorizer = HashingVectorizer(n_features=2**18, alternate_sign=False)
model = SGDClassifier(max_iter=5, random_state=seed)
for first in range(1000, len(texts), 500):
    batch = slice(first, first + 500)
    model.partial_fit(vectorizer.transform(texts[batch]), labels[batch], classes=["baking", "sport"])
score = model.score(vectorizer.transform(texts[:1000]), labels[:1000])
"""

GRID_SEARCH = f"""
{THEIRS}
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
steps = ("vect", CountVectorizer()), ("tfidf", TfidfTransformer()), ("clf", SGDClassifier(random_state=seed))
grid = {{"tfidf__norm": ["l1", "l2"], "clf__alpha": [1e-4, 1e-3], "clf__loss": ["hinge", "log_loss"]}}
search = GridSearchCV(Pipeline(steps), grid, cv=2).fit(texts[1000:1600], labels[1000:1600])
score = search.score(texts[:1000], labels[:1000])
"""

REGRESSION = f"""
{THEIRS}
from sklearn.datasets import make_regression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
X, y = make_regression(1000, 20, noise=10, random_state=seed)
X, X_test, y, y_test = train_test_split(100 * X + 5, y, random_state=seed)
model = make_pipeline(StandardScaler(), SGDRegressor(penalty="elasticnet", random_state=seed)).fit(X, y)
score = model.score(X_test, y_test)
"""


@pytest.fixture(scope="module")
def news() -> dict[str, Any]:
    """Texts of thirty common words, and three of their own topic, which some have wrong."""
    random = np.random.default_rng(0)
    sport = random.random(4000) < 0.5
    words = np.minimum(random.zipf(1.3, (4000, 30)), 5000)
    own = random.integers(0, 40, (4000, 3)) + 10_000 + 40 * (sport ^ (random.random(4000) < 0.05))[:, None]
    texts = [" ".join(f"word{word}" for word in text) for text in np.hstack((words, own))]
    return {"texts": texts, "labels": np.where(sport, "sport", "baking")}


def score_of(script: str, names: dict[str, Any]) -> float:
    space = dict(names)
    exec(script, space)
    return float(space["score"])


@pytest.mark.parametrize("script", [OUT_OF_CORE, GRID_SEARCH, REGRESSION], ids=["out of core", "grid", "regression"])
def test_the_import_is_all_that_changes(script: str, news: dict[str, Any]) -> None:
    theirs, ours = (
        np.median([score_of(text, news | {"seed": seed}) for seed in range(3)])
        for text in (script, script.replace(THEIRS, OURS))
    )
    assert ours > theirs - HALF_A_POINT
