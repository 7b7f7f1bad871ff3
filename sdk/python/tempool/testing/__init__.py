"""Test a worker's methods without a pool, and a client's program without workers.

    from tempool.testing import FakeGateway, TestWorker, crash  # before the worker's module, whose run() then does nothing
    import worker

    assert TestWorker().call("square", {"x": 12}) == 144

    with FakeGateway() as gateway, Client(gateway.endpoint) as client:
        gateway.on("hello", "greet", "first answer", crash(), lambda params, call: "Hello, %(name)s!" % params)
"""

from .gateway import Call, FakeGateway, crash
from .sessions import MemorySessions
from .worker import TestWorker

__all__ = ["Call", "FakeGateway", "MemorySessions", "TestWorker", "crash"]
