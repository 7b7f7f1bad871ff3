import tempool

ill = []


@tempool.on_health
def check():
    if ill:
        raise RuntimeError("the GPU is gone")


@tempool.method
def fall_ill():
    ill.append(1)


@tempool.method
def report(reason):
    tempool.unhealthy(reason)


@tempool.method
def echo(x):
    return x


tempool.run()
