"""A worker that answers with what it gets."""
import tempool


@tempool.method(raw=True)
def echo(body):
    return body


tempool.run()
