"""A worker that has one tenant at a time: the newest lease that has begun. It notes every call under an older one."""
import os

import tempool

notes = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
tenant = ""


def number(lease):
    _, _, incarnation, seq = lease.split(".")
    return int(incarnation), int(seq)


def note(text):
    os.write(notes, f"{os.getpid()}: {text}\n".encode())


@tempool.method
def begin(lease):
    global tenant
    if tenant and number(lease) <= number(tenant):
        note(f"{lease} begins after {tenant}")
    tenant = lease


@tempool.method
def touch(lease):
    if lease != tenant:
        note(f"{lease} is used while {tenant} is the tenant")


@tempool.method
def echo(value):
    return value


tempool.run()
