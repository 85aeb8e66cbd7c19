"""Texts that do not fit in memory
===============================

Batches of texts are hashed as they come and learnt with ``partial_fit``; the scores grow::

    python scripts/examples/out_of_core.py             # made-up texts
    python scripts/examples/out_of_core.py FILE        # lines "label<TAB>text"

The script follows scikit-learn's "Out-of-core classification of text documents", with the classifier replaced. A
batch costs what is in it and not the 2^20 weights of the model. The picture shows the accuracy after every batch.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator

import matplotlib.pyplot as plt
from sklearn.feature_extraction.text import HashingVectorizer
from text_classification import make_texts

from hogwild import HogwildClassifier

BATCH = 1000


def read(path: str) -> Iterator[tuple[str, str]]:
    """(label, text) of each line."""
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            label, _, text = line.rstrip("\n").partition("\t")
            yield label, text


def batches(path: str) -> Iterator[tuple[list[str], list[str]]]:
    """(texts, labels) of a thousand lines at a time."""
    texts, topics = make_texts(10_000) if not path else ([], [])
    pairs = read(path) if path else iter(zip(topics, texts, strict=True))
    while batch := list(itertools.islice(pairs, BATCH)):
        yield [text for _, text in batch], [label for label, _ in batch]


def main(path: str = "") -> None:
    vectorizer = HashingVectorizer(n_features=2**20, alternate_sign=False)
    model = HogwildClassifier(random_state=0)
    stream = batches(path)
    texts, labels = next(stream)  # held out: the first thousand
    held_out, classes = vectorizer.transform(texts), sorted(set(labels))
    seen, seconds = 0, 0.0
    curve = []  # (texts, accuracy) after each batch
    for texts, batch_labels in stream:
        X = vectorizer.transform(texts)
        start = time.perf_counter()
        model.partial_fit(X, batch_labels, classes=classes)
        seconds += time.perf_counter() - start
        seen += len(texts)
        curve.append((seen, model.score(held_out, labels)))
        print(f"{seen:7,} texts, {seconds:6.2f} s of learning, test accuracy {curve[-1][1]:.4f}")
    _, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axis.plot(*zip(*curve, strict=True), marker="o")
    axis.set(xlabel="texts learnt", ylabel="accuracy on 1,000 held out", title="Learning batch by batch")
    plt.show()


if __name__ == "__main__":
    main(*sys.argv[1:2])
