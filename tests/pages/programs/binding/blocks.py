# pypmix run -n 1 --bind-to none
from pathlib import Path

from lib.blocks import Session

from pypmix import Client, attrs

worker = Path("worker")
worker.write_text("#!/bin/sh\nexit 0\n")
worker.chmod(0o755)

session = Session("binding", globals())
with Client() as me:
    session.run(0)
    session.run(1)
    assert "SHARE_L3CACHE" in repr(shared)
    assert "SHARE_CORE" not in repr(shared)
