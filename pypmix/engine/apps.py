"""An application to spawn, as libpmix sends it to servers."""

from __future__ import annotations

import os

from pypmix.standard.types import App


def complete(app: App) -> App:
    """Return the application with its command, the name of its program and its directory: 4.2 crashes without them."""
    cmd = app.cmd or app.argv[0]
    argv = app.argv
    name = os.path.basename(cmd)
    if not argv or os.path.basename(argv[0]) != name:
        argv = (name, *argv)
    return App(cmd, argv, app.env, app.cwd or os.getcwd(), app.maxprocs, app.info)
