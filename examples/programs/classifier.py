"""A text classifier as a program that JSON can hold: naive Bayes over words."""

import math
import re
from collections import Counter

_word = re.compile(r"[A-Za-z]{3,}")


def words(text):
    """The words of a text, in lower case, those of fooBar and foo_bar one by one."""
    return [word.lower() for word in _word.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text))]


def train(samples, vocabulary=800):
    """Makes a program of samples, pairs of a label and a text; ValueError without any.

    Each label keeps its `vocabulary` most frequent words with the logarithms of their probabilities, smoothed by one (Laplace), so
    that a program stays small however much it was trained on.
    """
    texts, counts = Counter(), {}
    for label, text in samples:
        texts[label] += 1
        counts.setdefault(label, Counter()).update(words(text))
    if not texts:
        raise ValueError("there is nothing to train on")
    different = len(set().union(*counts.values()))
    labels = {}
    for label, count in sorted(counts.items()):
        total = sum(count.values()) + different
        frequent = sorted(count.items(), key=lambda item: (-item[1], item[0]))[:vocabulary]
        labels[label] = {
            "prior": _log(texts[label] / sum(texts.values())),
            "unseen": _log(1 / total),
            "words": {word: _log((n + 1) / total) for word, n in frequent},
        }
    return {"kind": "naive-bayes", "labels": labels}


def run(program, text):
    """The label that a program finds likeliest for a text."""
    if program.get("kind") != "naive-bayes":
        raise ValueError("this is no program of train(): %.80r" % (program,))
    seen = Counter(words(text))

    def likelihood(label):
        known = program["labels"][label]
        return known["prior"] + sum(n * known["words"].get(word, known["unseen"]) for word, n in seen.items())

    return max(sorted(program["labels"]), key=likelihood)


def _log(p):
    return round(math.log(p), 4)
