"""A pool worker that trains classifiers and runs them. Run by Tempool, see pool.toml next to it.

What it trains it keeps in the session of the call, so any worker of the pool runs what another has made.
"""

import tempool

import classifier
import corpus


@tempool.method
def train(id, labels=corpus.LABELS):
    """Trains a classifier that tells from which package of the standard library a piece of code is, and keeps it as program id."""
    samples = list(corpus.samples("train", labels))
    program = classifier.train(samples)
    call = tempool.context()
    call.programs.put(id, program)
    call.session["trained"] = {"program": id, "by": call.worker, "on": len(samples)}
    call.count("samples", len(samples))
    return {"samples": len(samples), "words": sum(len(label["words"]) for label in program["labels"].values())}


@tempool.method
def classify(id, texts):
    """The label that program id gives to each of the texts."""
    call = tempool.context()
    program = call.programs.get(id)
    call.session.change("classified", lambda n: (n or 0) + len(texts))
    return [classifier.run(program, text) for text in texts]


@tempool.method
def forget(id):
    """Deletes program id."""
    tempool.context().programs.delete(id)


if __name__ == "__main__":
    tempool.run()
