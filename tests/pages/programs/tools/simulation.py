import signal
from pathlib import Path

import pypmix

with pypmix.Client() as me:
    if me.rank == 0:
        me.publish({"port": f"tcp://{me.node.hostname}:5000"})
    me.fence()
    if me.rank == 0:
        Path("ready").touch()
    signal.pause()
