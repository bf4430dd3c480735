"""What the programs of this folder share: a callback to wait for, and a word at the end."""

import threading

LIMIT = 30


class Told:
    """A callback; `wait` returns what it was called with, without the cbdata, which it checks."""

    def __init__(self):
        self._called = threading.Event()
        self._args = ()

    def __call__(self, *args):
        self._args = args
        self._called.set()

    def wait(self):
        assert self._called.wait(LIMIT), "the callback was not called"
        assert self._args[-1] is self, self._args
        return self._args[:-1]


def begun(function, *args):
    """Call a method that ends in `_nb`, and return what its callback was called with."""
    told = Told()
    rc = function(*args, told, told)
    assert rc == 0, (function, rc)
    return told.wait()


def equal(found, expected):
    assert found == expected, f"{found!r} is not {expected!r}"


def done(me):
    print(f"rank {me['rank']} is done", flush=True)
