"""A worker that needs 800 MB all the time, as one with a model in memory does."""
import tempool

model = bytearray(800_000_000)
for page in range(0, len(model), 4096):
    model[page] = 1


@tempool.method(raw=True)
def ask(body):
    return model[:1]


tempool.run()
