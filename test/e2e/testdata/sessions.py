"""A worker that keeps what its clients say in their sessions."""
import os

import tempool


@tempool.method
def remember(key, value):
    tempool.context().session[key] = value
    return tempool.context().session.id


@tempool.method
def recall(key):
    return tempool.context().session.get(key)


@tempool.method
def learn(name, program):
    tempool.context().programs.put(name, program)


@tempool.method
def perform(name, x):
    """Runs a program: numbers to add, one after the other. Tells which process did it."""
    return {"result": x + sum(tempool.context().programs.get(name)), "pid": os.getpid()}


@tempool.method
def plain():
    return os.getpid()


tempool.run()
