"""Schedules that have shown a fault once, as short as they were found."""

from __future__ import annotations

from faults.schedules import Job, Loss, Plan, Schedule

FOUND: dict[str, Schedule] = {
    "A leader of a bootstrap of whose end its host knows before its server, and is answered like the others.": Schedule(
        1,
        (Job(0, 1, 1), Job(0, 1, 3)),
        (0.5, 0.5, 1.0, 0.5, 0.1),
        (Plan("named", 0, 1, 4, 3, 0, None, 0, ("part",), 0), Plan("boot", 3, 1, 3, 11, 1, None, 0, (), 0)),
        (),
    ),
    "A member that leaves as soon as it has the group, which another server hears of before the group.": Schedule(
        3, (Job(3, 4, 3),), (0.5, 0.0, 1.0, 3.0, 0.5, 0.1), (Plan("whole", 1, 1, 1, 0, 0, None, 0, ("leave",), 11),), ()
    ),
    "Servers that are told of some of those whom a construct adds, one of whom has ended.": Schedule(
        1,
        (Job(0, 1, 2), Job(0, 1, 2)),
        (3.0,),
        (Plan("added", 2, 1, 4, 1, 1, None, 0, (), 0),),
        (Loss(0, "leader", 0, 0),),
    ),
    "A caller whose host has heard of its end before its server has read its last word.": Schedule(
        1,
        (Job(0, 1, 3), Job(0, 1, 2)),
        (0.1, 0.0, 0.1, 0.1, 1.0, 0.0),
        (Plan("boot", 3, 1, 1, 0, 0, None, 0, ("request", "part"), 0), Plan("named", 2, 1, 3, 4, 6, None, 0, (), 0)),
        (),
    ),
    "An added member whose leader ends in the moment in which the group stands.": Schedule(
        3,
        (Job(1, 3, 1),),
        (0.1, 3.0, 3.0),
        (Plan("added", 1, 1, 3, 27, 7, None, 0, (), 0),),
        (Loss(0, "server", 0, 0), Loss(30, "leader", 0, 0)),
    ),
    "A connection of servers that breaks just before the leader tells that its group is complete.": Schedule(
        3,
        (Job(0, 4, 1), Job(3, 1, 2)),
        (0.1, 1.0),
        (Plan("invited", 3, 2, 5, 0, 0, None, 0, (), 1),),
        (Loss(39, "link", 8, 1),),
    ),
    "Callers that are slow to say what they make of a failure, and a time limit that runs out first.": Schedule(
        4,
        (Job(2, 2, 1), Job(3, 4, 1)),
        (0.0, 0.0, 0.1, 3.0, 0.1, 0.0, 3.0),
        (Plan("named", 2, 1, 5, 102, 4, None, 1, (), 0),),
        (Loss(0, "client", 0, 0), Loss(0, "client", 1, 0), Loss(58, "process", 2, 0)),
    ),
    "The same, where the other servers come once more when it is over.": Schedule(
        4, (Job(0, 4, 1),), (3.0, 3.0, 1.0), (Plan("named", 0, 1, 4, 0, 4, None, 1, (), 0),), (Loss(0, "leader", 0, 0),)
    ),
    "A leader that ends during a construct that is optional.": Schedule(
        2,
        (Job(2, 1, 3),),
        (1.0, 1.0, 0.1, 0.0, 0.5, 0.0, 0.0, 3.0, 3.0),
        (Plan("whole", 1, 1, 1, 62, 5, 2, 0, (), 0),),
        (Loss(100, "leader", 0, 0),),
    ),
    "Invitations, requests and a leader that leaves and ends, with a connection and a server that are lost.": Schedule(
        4,
        (Job(3, 4, 2),),
        (1.0, 0.0, 0.0, 3.0, 0.0, 0.0),
        (
            Plan("whole", 3, 1, 1, 86, 1, None, 4, ("fence", "request", "part"), 14),
            Plan("invited", 1, 2, 2, 7, 4, 3, 1, ("request",), 7),
            Plan("invited", 3, 1, 6, 25, 0, None, 1, ("fence", "request", "part"), 6),
            Plan("named", 1, 1, 1, 47, 0, 2, 1, ("leave", "destruct"), 3),
        ),
        (Loss(109, "server", 2, 3), Loss(104, "link", 4, 3)),
    ),
    "A leader that leaves and dies; for some of the members it has failed.": Schedule(
        3,
        (Job(2, 3, 1), Job(1, 2, 2)),
        (3.0, 1.0),
        (
            Plan("named", 1, 1, 4, 0, 0, 3, 0, ("fence", "request", "part"), 0),
            Plan("named", 5, 1, 3, 73, 0, None, 0, (), 0),
            Plan("named", 0, 2, 6, 37, 1, 1, 1, ("destruct",), 5),
        ),
        (),
    ),
    "The same in a group that was invited, where handlers of some want to lead.": Schedule(
        1, (Job(1, 1, 3),), (0.5, 3.0), (Plan("invited", 4, 1, 3, 0, 0, None, 0, ("part",), 15),), ()
    ),
    "A host that is lost while it tells the others that a set of its own is no more.": Schedule(
        3,
        (Job(1, 1, 2),),
        (3.0, 0.5, 0.1, 0.5, 3.0, 0.0, 3.0, 1.0),
        (
            Plan("invited", 1, 1, 2, 34, 5, None, 0, ("destruct",), 0),
            Plan("invited", 1, 1, 2, 60, 0, None, 0, (), 0),
            Plan("pset", 1, 1, 1, 55, 0, None, 0, (), 3),
        ),
        (Loss(73, "server", 1, 0), Loss(40, "process", 0, 0)),
    ),
    "One who is added and whose server has callers of its own, and another who ends between the two answers.": Schedule(
        3,
        (Job(0, 3, 1), Job(2, 2, 1)),
        (0.0, 0.1, 1.0, 3.0, 0.1, 0.0, 0.5, 0.5, 3.0),
        (
            Plan("named", 1, 1, 1, 62, 0, None, 0, ("fence", "fence"), 0),
            Plan("added", 3, 1, 5, 51, 1, None, 0, ("destruct",), 0),
        ),
        (Loss(0, "leader", 4, 0), Loss(82, "client", 1, 0)),
    ),
    "One who chooses a leader, and loses its server before that has the choice.": Schedule(
        3,
        (Job(2, 3, 3),),
        (1.0, 1.0, 0.1),
        (Plan("named", 5, 1, 5, 0, 0, 0, 0, (), 7),),
        (Loss(85, "client", 6, 0), Loss(69, "process", 5, 0)),
    ),
    "A caller that ends after the others have the group, which has members elsewhere only because they are added.": (
        Schedule(
            2,
            (Job(1, 2, 2), Job(1, 2, 1)),
            (1.0, 0.1, 1.0, 3.0),
            (
                Plan("boot", 0, 2, 3, 17, 0, None, 0, ("fence", "leave", "fence"), 0),
                Plan("added", 4, 2, 3, 55, 6, None, 0, (), 0),
            ),
            (Loss(116, "server", 0, 0), Loss(78, "leader", 0, 0)),
        )
    ),
    "The same, where the caller who adds them has ended before.": Schedule(
        2,
        (Job(1, 2, 2), Job(1, 2, 1)),
        (1.0, 0.1, 1.0, 3.0),
        (Plan("added", 4, 2, 3, 55, 2, None, 0, (), 0),),
        (Loss(68, "leader", 0, 0),),
    ),
    "The same, where nobody may be missing.": Schedule(
        2,
        (Job(1, 2, 2), Job(1, 2, 1)),
        (1.0, 0.0, 0.5),
        (Plan("added", 4, 2, 3, 55, 0, None, 0, (), 0),),
        (Loss(69, "process", 0, 0),),
    ),
    "An invitation that is over before those who are invited have a handler for it, and its leader ends.": Schedule(
        1,
        (Job(0, 1, 2), Job(0, 1, 2)),
        (1.0,),
        (
            Plan("named", 0, 1, 1, 0, 0, None, 0, (), 0),
            Plan("named", 0, 1, 1, 0, 0, None, 0, (), 0),
            Plan("named", 0, 1, 1, 0, 0, None, 0, (), 0),
            Plan("invited", 0, 1, 4, 3, 0, None, 0, (), 0),
        ),
        (Loss(0, "process", 1, 0), Loss(18, "process", 0, 0)),
    ),
    "An invitation that a server has kept comes after the news that it is over, and its leader ends.": Schedule(
        4,
        (Job(0, 4, 1),),
        (1.0, 1.0, 1.0, 0.5, 1.0, 1.0),
        (
            Plan("named", 0, 1, 1, 57, 0, None, 0, ("fence", "fence", "destruct"), 0),
            Plan("invited", 0, 1, 4, 85, 0, None, 0, (), 1),
            Plan("job", 0, 1, 1, 0, 0, None, 0, (), 0),
            Plan("job", 0, 1, 1, 0, 0, None, 0, (), 0),
        ),
        (Loss(0, "process", 1, 0), Loss(0, "process", 2, 0), Loss(92, "process", 0, 0)),
    ),
    "The same, where the news comes before there is a handler for invitations.": Schedule(
        4,
        (Job(0, 4, 1),),
        (1.0, 1.0, 1.0, 0.5, 1.0),
        (
            Plan("named", 0, 1, 1, 0, 0, None, 0, (), 0),
            Plan("named", 0, 1, 1, 40, 0, None, 0, ("fence", "fence", "destruct"), 0),
            Plan("invited", 0, 1, 4, 68, 0, None, 0, (), 1),
            Plan("pset", 0, 1, 1, 0, 0, None, 0, (), 0),
        ),
        (Loss(0, "process", 1, 0), Loss(0, "client", 2, 0), Loss(75, "process", 0, 0)),
    ),
    "A member asks for a leader in place of one that has left, and the group is over for another by then.": Schedule(
        2,
        (Job(0, 2, 2),),
        (1.0, 1.0, 3.0, 1.0, 1.0, 1.0),
        (
            Plan("named", 0, 1, 1, 0, 0, None, 0, (), 0),
            Plan("named", 0, 1, 1, 0, 0, None, 0, (), 0),
            Plan("named", 0, 1, 1, 100, 0, None, 0, ("fence", "request", "part"), 0),
            Plan("named", 1, 1, 6, 18, 0, 3, 0, ("leave", "destruct"), 7),
        ),
        (Loss(48, "process", 0, 0),),
    ),
    "A link between two servers is lost in the middle of a construct.": Schedule(
        3,
        (Job(0, 3, 1),),
        (1.0,),
        (Plan("named", 0, 1, 3, 0, 0, None, 0, (), 0),),
        (Loss(13, "link", 0, 0),),
    ),
    "The same, where the members go on without those that fail.": Schedule(
        3,
        (Job(0, 3, 1),),
        (1.0,),
        (Plan("named", 0, 1, 3, 0, 4, None, 0, (), 0),),
        (Loss(11, "link", 0, 0),),
    ),
    "The same, where the job begins at the second server.": Schedule(
        3,
        (Job(1, 3, 1),),
        (1.0,),
        (Plan("named", 0, 1, 3, 0, 4, None, 0, (), 0),),
        (Loss(11, "link", 0, 0),),
    ),
    "A server has lost the definer of a process set before it hears of its end, and tells of the set.": Schedule(
        3,
        (Job(0, 1, 1),),
        (1.0,),
        (
            Plan("named", 0, 1, 1, 0, 0, None, 0, (), 0),
            Plan("named", 0, 1, 1, 0, 0, None, 0, (), 0),
            Plan("named", 0, 1, 1, 0, 0, None, 0, (), 0),
            Plan("pset", 0, 1, 1, 40, 0, None, 0, (), 1),
        ),
        (Loss(54, "link", 0, 0),),
    ),
    "A member whose server is cut off tells one that has just been let in that others have ended.": Schedule(
        3,
        (Job(1, 1, 3), Job(2, 2, 3)),
        (0.0, 0.0, 0.1),
        (
            Plan("named", 0, 1, 6, 28, 1, None, 0, ("request",), 0),
            Plan("named", 6, 1, 6, 41, 7, 5, 0, ("fence", "request", "part"), 0),
            Plan("invited", 8, 3, 5, 36, 1, None, 0, ("request", "leave"), 0),
            Plan("named", 0, 1, 5, 48, 4, None, 0, (), 0),
        ),
        (
            Loss(77, "link", 7, 1),
            Loss(104, "process", 0, 0),
            Loss(83, "process", 0, 0),
            Loss(51, "client", 0, 0),
            Loss(0, "process", 2, 0),
        ),
    ),
    "A member that leaves while another server's proc is admitted, which it does not know yet.": Schedule(
        8,
        (Job(0, 8, 2),),
        (0.5, 0.0, 0.1, 3.0, 3.0, 0.0),
        (Plan("added", 8, 3, 2, 8, 3, 0, 1, ("request", "leave"), 8),),
        (),
    ),
    "A member of a whole job's group leaves it before a server has the answer to the construct.": Schedule(
        4,
        (Job(0, 4, 1),),
        (1.0, 1.0, 3.0, 1.0, 1.0, 1.0, 0.0),
        (
            Plan("named", 0, 1, 1, 0, 0, None, 0, (), 0),
            Plan("whole", 0, 1, 1, 0, 0, None, 0, ("request", "leave"), 0),
        ),
        (),
    ),
    "A proc is admitted and ends before another one of its server, which learns of the group by that one.": Schedule(
        2,
        (Job(0, 1, 2), Job(0, 2, 3)),
        (3.0, 0.1, 0.1, 1.0, 0.0),
        (
            Plan("named", 0, 1, 1, 95, 0, None, 0, (), 0),
            Plan("named", 2, 1, 5, 8, 0, 3, 0, ("request",), 0),
            Plan("named", 3, 1, 1, 27, 0, None, 0, ("request",), 0),
            Plan("named", 0, 1, 1, 32, 0, None, 0, ("fence", "fence", "destruct"), 0),
        ),
        (Loss(94, "leader", 0, 0),),
    ),
    "A member leaves while the announcement of one who is admitted is on its way.": Schedule(
        4,
        (Job(0, 4, 1),),
        (0.1, 0.1, 0.0, 0.5, 0.0, 3.0),
        (Plan("invited", 3, 2, 3, 0, 0, None, 0, ("request", "leave"), 7),),
        (),
    ),
    "The leader of a group leaves it and ends, on the server that coordinates, before others fence.": Schedule(
        6,
        (Job(0, 4, 1),),
        (1.0, 0.0, 0.5, 0.0, 1.0),
        (Plan("named", 0, 1, 3, 0, 0, None, 0, ("part", "fence"), 0),),
        (),
    ),
    "A server that lives was declared lost when a group is formed without its members.": Schedule(
        3,
        (Job(1, 2, 2),),
        (1.0,),
        (*[Plan("named", 0, 1, 1, 0, 0, None, 0, (), 0)] * 3, Plan("added", 1, 1, 3, 0, 1, None, 0, (), 0)),
        (Loss(0, "link", 0, 1),),
    ),
}
"""By what happens in them."""
