"""Every rank asks what its server knows: how large the job is, who runs where, and which jobs there are."""

from pypmix import Client, attrs

with Client() as me:
    here = me.raw.resolve_peers(nspace=me.nspace)
    print(f"rank {me.rank}: {me.query(attrs.JOB_SIZE)} procs, {len(here)} of them here")

    if me.rank == 0:
        found = me.query([attrs.JOB_SIZE, attrs.QUERY_NAMESPACES, "acme.what"])
        print("jobs:", found.get(attrs.QUERY_NAMESPACES))
        print("no answer to:", sorted(found.missing))

    if me.rank == 0 and not me.singleton:
        for row in me.query(attrs.QUERY_PROC_TABLE, nspace=me.nspace, default=()):
            print(f"proc {row.proc.rank} runs on {row.hostname} as pid {row.pid}")
