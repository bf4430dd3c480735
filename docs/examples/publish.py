"""A service publishes where it listens, and others look that up without knowing who it is."""

from pypmix import Client, NotFound, Persist, Range

with Client() as me:
    if not me.supports("publish"):
        print("no server that keeps what is published")
        raise SystemExit
    if me.rank == 0:
        me.publish({"acme.port": "tcp://10.0.0.1:7777"}, data_range=Range.SESSION, persist=Persist.APP)

    print("port:", me.lookup("acme.port", timeout=20))  # waits until somebody has published it

    found = me.lookup(["acme.port", "acme.gone"])
    for key, published in found.items():
        print(key, "is", published.value, "by rank", published.by.rank)
    print("missing:", sorted(found.missing))

    try:
        me.lookup("acme.gone")
    except NotFound as error:
        print(error)

    me.fence(timeout=30)  # everybody has looked
    if me.rank == 0:
        me.unpublish("acme.port")
