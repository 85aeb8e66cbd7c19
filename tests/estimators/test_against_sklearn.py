"""Scripts in which ``SGDClassifier`` is replaced by its counterpart reach the same scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import SGDClassifier

import hogwild
from hogwild import HogwildClassifier

HALF_A_POINT = 0.005


def out_of_core(model: Any, texts: list[str], labels: np.ndarray, size: int, test: int) -> float:
    """scikit-learn's pattern: the first texts held out, the others hashed and learnt in batches."""
    vectorizer = HashingVectorizer(n_features=2**18, alternate_sign=False, token_pattern=r"\S+")
    for first in range(test, len(texts), size):
        part = slice(first, first + size)
        model.partial_fit(vectorizer.transform(texts[part]), labels[part], classes=np.unique(labels))
    return float(model.score(vectorizer.transform(texts[:test]), labels[:test]))


def as_texts(rows: Any) -> list[str]:
    """Rows of word counts as texts again: each feature a word, so often."""
    repeated = [np.repeat(rows.indices[b:e], rows.values[b:e].astype(int)) for b, e in zip(rows.begin, rows.end)]
    return [" ".join(map(str, words)) for words in repeated]


@pytest.mark.slow
def test_out_of_core_film_reviews(real_data: Path) -> None:
    rows = hogwild.open_data(real_data / "imdb" / "train_counts.svm.gz")
    chosen = rows.select(np.random.default_rng(0).permutation(len(rows))[:8000])
    texts, labels = as_texts(chosen), np.array(chosen.targets > 0).astype(int)
    ours, theirs = (
        np.median([out_of_core(kind(random_state=k), texts, labels, 1000, 2000) for k in range(3)])
        for kind in (HogwildClassifier, SGDClassifier)
    )
    assert ours > theirs - HALF_A_POINT


@pytest.mark.slow
def test_twenty_newsgroups(real_data: Path) -> None:
    train = hogwild.open_data(real_data / "20news" / "train.svm.gz")
    test = hogwild.open_data(real_data / "20news" / "test.svm.gz", width=train.width)
    (X, y), (Xt, yt) = train.to_scipy(), test.to_scipy()
    ours = np.median([HogwildClassifier(random_state=k, n_jobs=2).fit(X, y).score(Xt, yt) for k in range(3)])
    assert ours > SGDClassifier(random_state=0, n_jobs=2).fit(X, y).score(Xt, yt) - HALF_A_POINT
