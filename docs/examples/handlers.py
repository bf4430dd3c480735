"""Handlers of one event are called one after the other, until one of them is done with it."""

import threading

from pypmix import Client, EventCode, Range

ALERT = EventCode.custom(-5001)

with Client() as me:
    seen = threading.Event()

    @me.on(ALERT, name="acme.log")
    def log(event):
        print(f"rank {me.rank} sees {event.code.name}")
        return event.pass_on({"acme.logged": True})  # what the next handler finds in its event.results

    @me.on(ALERT, after="acme.log")
    def act(event):
        print(f"rank {me.rank} acts, logged: {event.results['acme.logged']}")
        seen.set()
        return event.done()  # no other handler needs to be called

    me.notify(ALERT, data_range=Range.PROC_LOCAL)
    seen.wait(10)
