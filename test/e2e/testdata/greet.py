"""A worker that returns the greeting in words.py."""
import tempool
from words import GREETING


@tempool.method
def greet():
    return GREETING


tempool.run()
