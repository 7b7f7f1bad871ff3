"""A text classifier whose trained model is JSON: naive Bayes over words."""

import math
import re
from collections import Counter

_word = re.compile(r"[A-Za-z]{3,}")


def words(text):
    """Returns the words of a text in lower case; fooBar and foo_bar are two words each."""
    return [word.lower() for word in _word.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text))]


def train(samples, vocabulary=800):
    """Trains a program on samples, pairs of a label and a text. Raises ValueError without samples.

    A program holds the `vocabulary` most frequent words of each label with the logarithms of their probabilities (Laplace smoothing), so
    its size does not depend on the number of samples.
    """
    texts, counts = Counter(), {}
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


def run(program, text):
    """Returns the most likely label of a text."""
    if program.get("kind") != "naive-bayes":
        raise ValueError("not a program made by train(): %.80r" % (program,))
    seen = Counter(words(text))

    def likelihood(label):
        known = program["labels"][label]
        return known["prior"] + sum(n * known["words"].get(word, known["unseen"]) for word, n in seen.items())

    return max(sorted(program["labels"]), key=likelihood)


def _log(p):
    return round(math.log(p), 4)
