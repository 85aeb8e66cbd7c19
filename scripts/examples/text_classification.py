"""Text classification with one import replaced
============================================

The texts are 20 newsgroups, or any texts, as weighted word counts::

    python scripts/examples/text_classification.py            # a few made-up texts, at once
    python scripts/examples/text_classification.py 20news     # downloads 14 MB with scikit-learn

The pipeline is scikit-learn's; only the classifier is from here. ``n_jobs`` makes a binary problem faster too. The
picture shows the heaviest words of every topic.
"""

from __future__ import annotations

import random
import sys
import time

import matplotlib.pyplot as plt
from sklearn.datasets import fetch_20newsgroups
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline

from hogwild import HogwildClassifier

TOPICS = {
    "sea": "wave harbour sail anchor tide fish captain deck storm island".split(),
    "kitchen": "salt oven butter knife flour soup garlic pan spoon taste".split(),
    "music": "chord drum violin melody rhythm choir tune bass piano song".split(),
}
FILLER = "the a of and to in that it is was for on with as at by from or be this".split()
SHOWN = 8  # words of a topic


def make_texts(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Made-up texts of twenty words: two are of the topic, two of any, and the rest of none."""
    generator = random.Random(seed)
    often = range(10, 0, -1)  # the first words of a topic come more often
    texts, topics = [], generator.choices(list(TOPICS), k=count)
    for topic in topics:
        words = generator.choices(TOPICS[topic], often, k=2)
        words += [generator.choice(TOPICS[other]) for other in generator.choices(list(TOPICS), k=2)]
        texts.append(" ".join(words + generator.choices(FILLER, k=17)))
    return texts, topics


def draw(model: Pipeline) -> None:
    """The heaviest words of the first three topics."""
    words = model[0].get_feature_names_out()
    _, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
    for topic, weights, axis in zip(model[-1].classes_, model[-1].coef_, axes, strict=False):
        heaviest = weights.argsort()[-SHOWN:]
        axis.barh(words[heaviest], weights[heaviest], color="tab:blue")
        axis.set(title=str(topic), xlabel="weight")
    plt.show()


def main(source: str = "") -> None:
    if source == "20news":
        bunch = fetch_20newsgroups(subset="all", remove=("headers", "footers"))
        texts, topics = bunch.data, [bunch.target_names[topic] for topic in bunch.target]
    else:
        texts, topics = make_texts(5000)
    train, test, y_train, y_test = train_test_split(texts, topics, random_state=0)
    for classifier in (HogwildClassifier(n_jobs=-1, random_state=0), SGDClassifier(n_jobs=-1, random_state=0)):
        model = make_pipeline(TfidfVectorizer(stop_words="english"), classifier)
        model.fit(train[:100], y_train[:100])  # the first fit of a process loads compiled code: off the clock
        start = time.perf_counter()
        model.fit(train, y_train)
        seconds, name = time.perf_counter() - start, type(classifier).__name__
        print(f"{name:18} {seconds:6.2f} s with the vectorizer, test accuracy {model.score(test, y_test):.4f}")
    draw(model)


if __name__ == "__main__":
    main(*sys.argv[1:2])
