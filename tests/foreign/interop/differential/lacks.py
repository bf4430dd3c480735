"""What servers that are not ours lack of plans with losses, by the name of the loss, and what must be observed instead.

Most rows are about jobs that have ranks of C alone: what these miss is libpmix's, and no plan has it on that server. A
row of mixed jobs is about what ranks of C alone get there.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from lib.job import Job
from lib.lack import Lack, Outcome

C, MIXED = "c", "mixed"
"""What a job is made of: ranks of C alone, or of Python as well."""

LOCAL = "a local group"

PROBE = "test_differential.test_a_loss_alone"

OURS = ("python-server",)
HOST_42, HOST_50, HOST_70 = "native-server-4.2.*", "native-server-5.0.*", "native-server-7.*"
PRRTE_3, PRRTE_5 = "prterun-5.0.*", "prterun-7.*"
PRRTE = (PRRTE_3, PRRTE_5)
OLD = (HOST_42, HOST_50, PRRTE_3)
NEW = (HOST_70, PRRTE_5)
OF_50 = (HOST_50, PRRTE_3)
ALL = (*OLD, *NEW)

DONE, MISSED, LATE, LOST, PARTIAL = "status 0", "status -46", "status -24", "status -61", "status -52"
NOTHING = "nothing"
VALUE = "[sux]=.*"
FORGETFUL = (MISSED, PARTIAL, "status -20")

DATA_OF_THE_DEAD = "what a rank has put that dies"
REMOTE, HIDDEN = "what is for other nodes", "scopes, after a death"
REFRESHED, SOME_COLLECT = "scopes, after a second exchange", "a fence that some collect in"

PAGE = "how-it-works/libpmix.md#A wildcard among the procs"
PAGE_OF_SCOPES = "how-it-works/libpmix.md#A get that asks the server again"
PAGE_OF_FENCES = "how-it-works/libpmix.md#A fence that some collect in"
PAGE_OF_COMMITS = "how-it-works/libpmix.md#A get that meets the commit"

WILDCARD = "a job and its ranks, in a construct"
AT_ONCE, CONNECTED = "operations at once", "a connection that ends"


def results_of(job: Job, word: str) -> set[str]:
    """Return what the ranks of a job have got from the lines of an operation, written with its limit."""
    found: set[str] = set()
    for script in (job.temporary.parent.parent / "scripts").iterdir():
        out = job.temporary.parent / f"{script.name}.out"
        lines = [line.partition(" ") for line in out.read_text().splitlines()] if out.exists() else []
        results = {number: text for number, _, text in lines}
        steps = [line.split() for line in script.read_text().splitlines()]
        found |= {results.get(number, NOTHING) for _, number, name, *_ in steps if name == word}
    return found


def results(expected: Mapping[str, Sequence[str]]) -> Outcome:
    """Return the outcome that the lines of operations get these results, and no others, however the job ends.

    Args:
        expected: Patterns of the results, by the operation with its limit.
    """

    def hold(job: Job) -> bool:
        return all(
            (found := results_of(job, word)) and all(any(re.fullmatch(each, text) for each in texts) for text in found)
            for word, texts in expected.items()
        )

    fact = "; ".join(f"{word}: {' or '.join(texts)}" for word, texts in expected.items())
    return Outcome(fact, hold, hangs=None)


def lacks(
    losses: Sequence[str],
    servers: Sequence[str],
    reason: str,
    expected: Mapping[str, Sequence[str]],
    client: str = "*",
    proof: str = "",
) -> Iterator[Lack]:
    """Yield the rows of losses that servers lack for the same reason; one that has a proof is not tried."""
    for loss, server in product(losses, servers):
        if proof:
            yield Lack(loss, server, client, reason, proof=proof, harm=True)
        else:
            # `{}` is the operation, the last word of the loss.
            named = {word.format(loss.rpartition(" ")[2]): texts for word, texts in expected.items()}
            yield Lack(loss, server, client, reason, expect=results(named), probe=PROBE)


def orders(operation: str) -> tuple[str, str]:
    return f"a shorter limit, first in a {operation}", f"a shorter limit, last in a {operation}"


UNANSWERED = "neither the library nor its server has a limit of {}, so that the call does not end"
FORGOTTEN = "libpmix from 5.0 on forgets a group whose {} has failed, so that its next destruct fails"
ONE_TOLD = "a server of libpmix 5.0 tells some of those who wait of a failure, and the others of a success"
TWO_OPERATIONS = "a server of libpmix takes a wildcard and the procs that it stands for as two operations"
NO_LOCAL_ID = "it gives no context id to a group whose first caller says that it is local"
COUNTED_ON = "a server of libpmix goes on counting a call that a Python client has ended at its own limit"
UNHEARD = "no libpmix takes a member that leaves out of a fence that a C rank waits in"
SHOWN = "a rank of the native engine reads what a C rank of its node has put for other nodes alone"
SCOPES = "now and then it shows ranks of a node what is for others, and after a death not what is for them"
NO_PARTICIPANT = "a server of libpmix finds no participant in a proc that has ended"
NOT_MISSED = "it does not miss a proc that ended before"
WAITED_FOR = "it goes on waiting for the member that has ended"
CONNECTION_LOST = "a server of libpmix 7 says that a connection is lost, which is the member's"

LACKS: tuple[Lack, ...] = (
    # Limits that differ.
    *lacks(orders("fence"), OF_50, ONE_TOLD, {"fence/8": (DONE, LATE), "fence/2": (DONE, LATE)}),
    *lacks(orders("connect"), OLD, UNANSWERED.format("connects"), {"connect/2": (NOTHING,)}),
    *lacks(orders("disconnect"), OLD, UNANSWERED.format("disconnects"), {"disconnect/2": (NOTHING,)}),
    *lacks(orders("construct"), OLD, UNANSWERED.format("constructs"), {"construct/2": (NOTHING,)}),
    *lacks(orders("destruct"), (HOST_42,), UNANSWERED.format("destructs"), {"destruct/2": (NOTHING,)}),
    *lacks(orders("destruct"), OF_50, FORGOTTEN.format("destruct"), {"destruct": (LATE, MISSED)}),
    *lacks(orders("destruct"), NEW, FORGOTTEN.format("destruct"), {"destruct": (MISSED, "status -25", NOTHING)}),
    *lacks(orders("destruct"), OURS, FORGOTTEN.format("destruct"), {"destruct": FORGETFUL}, "c-5.0.*"),
    *lacks(orders("construct"), OURS, FORGOTTEN.format("construct"), {"destruct": FORGETFUL}, "c-5.0.*"),
    # A Python client ends its call itself.
    *lacks([orders("fence")[1]], (HOST_42, *NEW), COUNTED_ON, {"fence/8": (DONE, LATE)}, MIXED),
    *lacks([orders("connect")[1]], NEW, COUNTED_ON, {"connect/8": (DONE, LATE)}, MIXED),
    *lacks([orders("disconnect")[1]], NEW, COUNTED_ON, {"disconnect/8": (DONE, LATE)}, MIXED),
    *lacks([orders("construct")[1]], NEW, COUNTED_ON, {"construct/8": (r"group \d+ 0,1,2", LATE)}, MIXED),
    *lacks(["a leave, in a fence"], ALL, UNHEARD, {"fence/8": (DONE, LATE, PARTIAL)}, MIXED),
    *lacks(
        ["a cancelled construct", "a cancelled destruct"],
        OURS,
        "the next call of that name is refused until the server has answered the one that was cancelled",
        {},
        proof="interop/differential/losses.py: LossPlanner.cancelled",
    ),
    # What servers of libpmix do not know.
    *lacks(
        [f"a cancelled {operation}" for operation in ("fence", "connect", "disconnect", "construct", "destruct")],
        ALL,
        "it goes on counting a call that was cancelled",
        {},
        proof="use/groups.md#Whose limit counts, and how to cancel",
    ),
    *lacks(
        [
            f"a group made without a death {when} it, {how}"
            for when in ("before", "during")
            for how in ("optional", "tolerant", "notified")
        ],
        ALL,
        "what it makes of a group that has lost a member varies",
        {},
        proof="lib.promises.LACKS",
    ),
    # The job, and all of its ranks.
    *lacks(["a job and its ranks, in a fence"], ALL, TWO_OPERATIONS, {"fence": (DONE, LATE)}),
    *lacks(["a job and its ranks, in a connect"], OLD, TWO_OPERATIONS, {"connect": (NOTHING,)}),
    *lacks(["a job and its ranks, in a connect"], NEW, TWO_OPERATIONS, {"connect": (LATE,)}),
    *lacks(
        [WILDCARD],
        PRRTE,
        "it takes the wildcard for the one member, depending on who comes first",
        {},
        proof=PAGE,
    ),
    *lacks(
        [AT_ONCE, CONNECTED],
        (PRRTE_3,),
        "now and then its server does not answer several operations at once, and it does not end after a connect",
        {},
        proof="interop/differential/plans.py: Planner.at_once",
    ),
    # C ranks of 4.2 take the missing id for a number, and those of 5.0 the answer for an invalid one.
    *lacks([LOCAL], (HOST_42,), NO_LOCAL_ID, {"local": (r"group (None|\d+) (0,1,2,3|\?)",)}),
    *lacks([LOCAL], (PRRTE_3,), NO_LOCAL_ID, {"local": ("status -27",)}),
    # Deaths before the others call.
    *lacks([DATA_OF_THE_DEAD], ALL, "it has no data of a proc that has ended", {"get": (MISSED, VALUE)}),
    *lacks([HIDDEN], (HOST_50, HOST_70), SHOWN, {"get": (VALUE, MISSED)}, MIXED),
    *lacks([REFRESHED], (HOST_50, HOST_70), SHOWN, {}, MIXED, proof=PAGE_OF_SCOPES),
    *lacks([SOME_COLLECT], ALL, "a server of libpmix refuses it, or tells some of a failure", {}, proof=PAGE_OF_FENCES),
    *lacks([REMOTE, HIDDEN], PRRTE, SCOPES, {}, proof=PAGE_OF_COMMITS),
    *lacks(["a death before a fence"], (HOST_42, HOST_70), NO_PARTICIPANT, {"fence/8": (MISSED,)}),
    *lacks(["a death before a fence"], (HOST_50,), NO_PARTICIPANT, {"fence/8": (MISSED, DONE)}),
    *lacks(["a death before a fence", "a death before a connect"], PRRTE, NOT_MISSED, {"{}/8": (DONE,)}),
    *lacks(["a death before a construct"], PRRTE, NOT_MISSED, {"construct/8": (r"group \d+ 0,1,2",)}),
    *lacks(["a death before a destruct"], ALL, NOT_MISSED, {"destruct/8": (DONE,)}),
    # Deaths while they wait.
    *lacks(["a death during a fence"], OF_50, ONE_TOLD, {"fence/8": (DONE, PARTIAL)}),
    *lacks(["a death during a fence", "a death during a connect"], NEW, CONNECTION_LOST, {"{}/8": (LOST,)}),
    *lacks(["a death during a disconnect"], OLD, "it ends with an error", {"disconnect/8": (PARTIAL,)}),
    *lacks(["a death during a disconnect"], (HOST_70,), CONNECTION_LOST, {"disconnect/8": (LOST,)}),
    *lacks(["a death during a disconnect"], (PRRTE_5,), WAITED_FOR, {"disconnect/8": (LATE, LOST)}),
    *lacks(["a death during a construct"], OLD, WAITED_FOR, {"construct/8": (NOTHING,)}),
    *lacks(
        ["a death during a construct"],
        (PRRTE_5,),
        "now and then it goes on waiting for the member that has ended",
        {},
        proof="interop/differential/losses.py: LossPlanner.death",
    ),
    *lacks(["a death during a destruct"], (HOST_42,), WAITED_FOR, {"destruct/8": (NOTHING,)}),
    *lacks(["a death during a destruct"], OF_50, WAITED_FOR, {"destruct/8": (LATE,)}),
    *lacks(["a death during a destruct"], (HOST_70,), CONNECTION_LOST, {"destruct/8": (LOST,)}),
    *lacks(["a death during a destruct"], (PRRTE_5,), NOT_MISSED, {"destruct/8": (DONE,)}),
    *lacks(["a death during a fence of a group"], OF_50, ONE_TOLD, {"fence/8": (DONE, LATE, PARTIAL)}),
    *lacks(["a death during a fence of a group"], NEW, CONNECTION_LOST, {"fence/8": (LOST,)}),
    *lacks(
        ["a death before a disconnect", "a death during a connect"],
        (PRRTE_3,),
        "the launcher does not end after the death of a rank that was connected",
        {"{}/8": (DONE, PARTIAL)},
    ),
)


def find_lack(loss: str, server: str, kinds: Sequence[str]) -> Lack | None:
    """Return why a server lacks what a loss takes in a job of such ranks; None if it does not."""
    makeup = C if all(kind.startswith("c-") for kind in kinds) else MIXED
    for lack in LACKS:
        clients = any(fnmatch.fnmatchcase(each, lack.client) for each in (makeup, *kinds))
        if lack.feature == loss and fnmatch.fnmatchcase(server, lack.server) and clients:
            return lack
    return None
