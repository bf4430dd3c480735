"""One rank tells the others how loaded it is; all of them listen."""

from pypmix import Client, EventCode, Range

LOAD = EventCode.custom(-4242)  # an application's own codes lie below -3000

with Client() as me, me.events(LOAD) as events:
    if not me.supports("notify"):
        print(f"rank {me.rank}: this server passes no events on")
        raise SystemExit

    me.fence(timeout=30)  # everybody listens

    if me.rank == 0:
        here = me.job.size == 1 or len(me.node.local_procs) == me.job.size  # some servers know of their own node only
        me.notify(LOAD, data_range=Range.LOCAL if here else Range.NAMESPACE, info={"acme.load": 0.75})

    event = events.get(timeout=20)
    print(f"rank {me.rank}: {event.code.name} from rank {event.source.rank}, load {event.info['acme.load']}")
    me.fence(timeout=30)
