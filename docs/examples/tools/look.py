"""Who runs on this node: a tool that attaches to a job from outside, by the pid of its launcher."""

import sys

from pypmix import Proc, Rank, Tool, Unreachable, attrs

try:
    tool = Tool(pid=int(sys.argv[1])) if sys.argv[1:] else Tool()  # by default the newest server of this user
    tool.open()
except Unreachable as error:
    raise SystemExit(f"no job to look at: {error}") from None

with tool:
    print("server:", tool.get_servers()[0], "of release", tool.server.split()[-1])
    for nspace in tool.query(attrs.QUERY_NAMESPACES).split(","):
        size = tool.get(attrs.JOB_SIZE, Proc(nspace, Rank.WILDCARD), default=0)
        print("job:", nspace, "of", size)
    print("port:", tool.lookup("port", default="none published"))
