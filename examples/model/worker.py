"""Reads handwritten digits with a neural network of scikit-learn, which each process trains at its start.

A model of your own is more likely loaded: `model = joblib.load("model.joblib")` in start().
"""
from typing import Any

import numpy
import tempool
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

PIXELS, BRIGHTEST = 64, 16  # of an image: 8 rows of 8 brightnesses from 0 to 16

digits: Any = load_digits()
held_out = numpy.arange(len(digits.target)) % 4 == 0  # images that the model does not see in its training
model = make_pipeline(StandardScaler(), MLPClassifier((256, 128), max_iter=300, random_state=0))


@tempool.on_start
def start() -> None:
    model.fit(digits.data[~held_out], digits.target[~held_out])


@tempool.method
def check(at_least: float) -> dict[str, float]:
    """Returns the share of the held-out images that the model reads right. If it is less than at_least, it fails."""
    accuracy = model.score(digits.data[held_out], digits.target[held_out])
    if accuracy < at_least:
        raise tempool.Error(f"the model reads {accuracy:.1%} of the held-out images right, less than {at_least:.1%}", "model_too_bad")
    return {"accuracy": accuracy}


@tempool.method
def predict(images: list[list[float]]) -> list[dict[str, Any]]:
    """Returns the digit of each image and its probability. An image is a list of 64 brightnesses, row by row."""
    try:
        pixels = numpy.asarray(images, dtype=float)
    except (TypeError, ValueError):
        raise tempool.Error("images are lists of numbers", "bad_image") from None
    if pixels.ndim != 2 or pixels.shape[1] != PIXELS or not numpy.all((pixels >= 0) & (pixels <= BRIGHTEST)):
        raise tempool.Error(f"an image is a list of {PIXELS} numbers from 0 to {BRIGHTEST}", "bad_image")
    tempool.context().count("images", len(pixels))
    return [{"digit": int(p.argmax()), "probability": round(float(p.max()), 4)} for p in model.predict_proba(pixels)]


@tempool.method
def example(number: int) -> dict[str, Any]:
    """Returns a held-out image, as predict takes it."""
    images = digits.data[held_out].astype(int)
    if not isinstance(number, int) or not 0 <= number < len(images):
        raise tempool.Error(f"there are the examples 0 to {len(images) - 1}", "no_example")
    return {"images": [images[number].tolist()]}


tempool.run()
