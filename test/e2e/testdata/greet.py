"""A worker that says what the file beside it says."""
import tempool
from words import GREETING


@tempool.method
def greet():
    return GREETING


tempool.run()
