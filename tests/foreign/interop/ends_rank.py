"""Rank 2 beside `ends.c`: receives the events of the end of rank 1, and tells rank 0 that it has."""

import json

import pypmix
from pypmix import EventCode

with pypmix.Client() as me, me.events(EventCode.PROC_TERMINATED, EventCode.EVENT_PROC_TERMINATED) as ends:
    me.fence(timeout=20)
    heard = [ends.get(timeout=20) for _ in range(2)]
    assert {proc.rank for event in heard for proc in event.affected} == {1}
    me.notify(EventCode.custom(-4242), targets=[me.job[0]])
    print(json.dumps([int(event.code) for event in heard]), flush=True)
