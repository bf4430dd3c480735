"""Rank 0 starts a job, reads what it writes, and waits for its end."""

import pypmix

with pypmix.Client() as me:
    if me.rank == 0:
        try:
            job = me.spawn(["echo", "some text"], n=2)
            with me.output(job) as output:
                for piece in output:
                    print(f"{piece.source.rank} writes to {pypmix.IOFChannel(piece.channel).name}: {piece.text!r}")
            print(f"exit code {job.wait(timeout=20)}")
        except (pypmix.NotSupported, pypmix.Unreachable) as error:
            print(error)
    me.fence()
    print(f"rank {me.rank} goes on")
