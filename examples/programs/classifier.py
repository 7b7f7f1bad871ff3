"""A text classifier whose trained model is JSON: naive Bayes over words."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any, Iterable

_word = re.compile(r"[A-Za-z]{3,}")


def words(text: str) -> list[str]:
    """Returns the words of a text in lower case; fooBar and foo_bar are two words each."""
    return [word.lower() for word in _word.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text))]


def train(samples: Iterable[tuple[str, str]], vocabulary: int = 800) -> dict[str, Any]:
    """Trains a program on samples, pairs of a label and a text. Raises ValueError without samples.

    A program holds the `vocabulary` most frequent words of each label with the logarithms of their probabilities (Laplace smoothing), so
    its size does not depend on the number of samples.
    """
    texts: Counter[str] = Counter()
    counts: dict[str, Counter[str]] = {}
    for label, text in samples:
        texts[label] += 1
        counts.setdefault(label, Counter()).update(words(text))
    if not texts:
        raise ValueError("no samples to train on")
    distinct = len(set().union(*counts.values()))
    labels = {}
    for label, count in sorted(counts.items()):
        total = sum(count.values()) + distinct
        frequent = sorted(count.items(), key=lambda item: (-item[1], item[0]))[:vocabulary]
        labels[label] = {
            "prior": _log(texts[label] / sum(texts.values())),
            "unseen": _log(1 / total),
            "words": {word: _log((n + 1) / total) for word, n in frequent},
        }
    return {"kind": "naive-bayes", "labels": labels}


def run(program: dict[str, Any], text: str) -> str:
    """Returns the most likely label of a text."""
    if program.get("kind") != "naive-bayes":
        raise ValueError("not a program made by train(): %.80r" % (program,))
    seen = Counter(words(text))

    def likelihood(label: str) -> float:
        known = labels[label]
        total: float = known["prior"] + sum(n * known["words"].get(word, known["unseen"]) for word, n in seen.items())
        return total

    labels: dict[str, Any] = program["labels"]
    return max(sorted(labels), key=likelihood)


def _log(p: float) -> float:
    return round(math.log(p), 4)
