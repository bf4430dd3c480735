"""Rank 0 invites all others to a team; rank 1 declines, and the team goes on without it."""

from pypmix import Client, PMIxError
from pypmix.groups import Declined, Failed


def lead(me):
    with me.invite("acme.team", me.job.procs[1:], timeout=20) as invite:
        for answer in invite.answers():
            match answer:
                case Declined(proc=proc, reason=reason):
                    print(f"rank {proc.rank} declines: {reason}")
                    invite.drop(proc)
                case Failed(proc=proc):
                    invite.drop(proc)
        return invite.complete()


def join(me):
    with me.invitations() as invitations:
        invitation = invitations.get(timeout=20)
        if me.rank == 1:
            return invitation.decline("out of memory")
        return invitation.accept(timeout=20)


with Client() as me:
    if me.job.size < 2 or not me.supports("group.invite"):
        print(f"rank {me.rank} has no proc to invite")
    else:
        try:
            team = lead(me) if me.rank == 0 else join(me)
            if team:
                with team:
                    print(f"rank {me.rank} is {team.rank} of {team.size} in {team.name}")
            else:
                print(f"rank {me.rank} goes on by itself")
        except PMIxError as error:
            print(f"rank {me.rank} has no team: {error}")
