"""A worker that stores values in its clients' sessions."""
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
    """Run a program, a list of numbers to add, and return the result with the process id."""
    return {"result": x + sum(tempool.context().programs.get(name)), "pid": os.getpid()}


@tempool.method
def plain():
    return os.getpid()


tempool.run()
