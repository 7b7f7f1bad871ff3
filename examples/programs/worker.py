"""A pool worker that trains and runs classifiers. Tempool runs it, see pool.toml.

It stores trained programs in the session of the call, so every worker of the pool can run them.
"""

from __future__ import annotations

from typing import Any, Sequence

import tempool

import classifier
import corpus


@tempool.method
def train(id: str, labels: Sequence[str] = corpus.LABELS) -> dict[str, Any]:
    """Trains a classifier that finds the standard library package of a piece of code, and stores it as program id."""
    samples = list(corpus.samples("train", labels))
    program = classifier.train(samples)
    call = tempool.context()
    call.programs.put(id, program)
    call.session["trained"] = {"program": id, "by": call.worker, "on": len(samples)}
    call.count("samples", len(samples))
    return {"samples": len(samples), "words": sum(len(label["words"]) for label in program["labels"].values())}


@tempool.method
def classify(id: str, texts: list[str]) -> list[str]:
    """Returns the label of each text, according to program id."""
    call = tempool.context()
    program = call.programs.get(id)
    call.session.change("classified", lambda n: (n or 0) + len(texts))
    return [classifier.run(program, text) for text in texts]


@tempool.method
def forget(id: str) -> None:
    """Deletes program id."""
    tempool.context().programs.delete(id)


if __name__ == "__main__":
    tempool.run()
