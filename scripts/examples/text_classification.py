"""Text classification with one import replaced
============================================

The texts are 20 newsgroups, or any texts, as hashed word counts::

    python scripts/examples/text_classification.py            # a few made-up texts, at once
    python scripts/examples/text_classification.py 20news     # downloads 14 MB with scikit-learn

The pipeline is scikit-learn's; only the classifier is from here. ``n_jobs`` makes a binary problem faster too.
"""

from __future__ import annotations

import random
import sys
import time

from sklearn.datasets import fetch_20newsgroups
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from hogwild import HogwildClassifier

TOPICS = {
    "sea": "wave harbour sail anchor tide fish captain deck storm island".split(),
    "kitchen": "salt oven butter knife flour soup garlic pan spoon taste".split(),
    "music": "chord drum violin melody rhythm choir tune bass piano song".split(),
}
FILLER = "the a of and to in that it is was for on with as at by from or be this".split()


def make_texts(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Made-up texts of twenty words, of which a few tell the topic."""
    generator = random.Random(seed)
    topics = [generator.choice(list(TOPICS)) for _ in range(count)]
    words = [generator.choices(TOPICS[topic], k=3) + generator.choices(FILLER, k=17) for topic in topics]
    return [" ".join(text) for text in words], topics


def main(source: str = "") -> None:
    if source == "20news":
        texts, topics = fetch_20newsgroups(subset="all", remove=("headers", "footers"), return_X_y=True)
    else:
        texts, topics = make_texts(5000)
    train, test, y_train, y_test = train_test_split(texts, topics, random_state=0)
    for classifier in (HogwildClassifier(n_jobs=-1, random_state=0), SGDClassifier(n_jobs=-1, random_state=0)):
        model = make_pipeline(HashingVectorizer(stop_words="english"), classifier)
        model.fit(train[:100], y_train[:100])  # the first fit of a process loads compiled code: off the clock
        start = time.perf_counter()
        model.fit(train, y_train)
        seconds, name = time.perf_counter() - start, type(classifier).__name__
        print(f"{name:18} {seconds:6.2f} s with the vectorizer, test accuracy {model.score(test, y_test):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
