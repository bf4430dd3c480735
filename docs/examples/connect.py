"""A job starts another one, and both are one for a while."""

import sys

from pypmix import Client, Proc, Rank

starter = sys.argv[1:]

with Client() as me:
    if not me.supports("spawn"):
        print("no server that starts jobs")
        raise SystemExit

    if starter:
        (partner,) = starter
    elif me.rank == 0:
        partner = me.spawn([sys.executable, __file__, me.nspace], n=2).nspace
        me.put("partner", partner)
        me.commit()
    else:
        partner = me.get("partner", me.job[0], timeout=20)

    me.put("name", f"{'second' if starter else 'first'} {me.rank}")
    jobs = [Proc(me.nspace, Rank.WILDCARD), Proc(partner, Rank.WILDCARD)]
    with me.connect(jobs, timeout=20) as both:
        me.fence(both, collect=True, timeout=20)
        names = [me.get("name", Proc(partner, rank)) for rank in range(both.jobs[partner].size)]
        print(f"rank {me.rank} knows {', '.join(names)}, and is number {both.rank}")
