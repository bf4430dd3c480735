"""What pypmix promises of the values that procs give each other, beyond the Standard: see `harness.promises`."""

from __future__ import annotations

from harness.lack import Lack
from harness.promise import Promise

FENCE = "pypmix, Client.get"
CALLS = "pypmix, Client.bcast and its kind"

OLD_LIBRARY = "libpmix 4.2 keeps for good what it has read, unless its server is of 4.2, too, and shares its memory"
OLD_SERVER = "a 4.2 server does not know PMIX_GET_REFRESH_CACHE, without which the library keeps what it has read"
CACHED = "libpmix 5.0.8 answers from its cache in spite of the attribute"

PROMISES = (
    Promise("fence: new values", FENCE, "after a collecting fence no get answers from what was read before it"),
    Promise("values: again and again", CALLS, "the same calls as often as one likes, by all roots"),
    Promise("values: kinds", CALLS, "bytes and PMIx values with their types, other objects by a codec"),
    Promise("values: any size", CALLS, "values of any size, in pieces"),
    Promise("values: mistakes are told", CALLS, "another root, call or codec is an error at those it concerns"),
    Promise("values: groups side by side", CALLS, "calls among the members of several groups, and of the job"),
    Promise("values: old ones go", CALLS, "servers keep the values of the last two calls"),
)

LACKS: tuple[Lack, ...] = (
    *[
        Lack("fence: new values", server, "native-4.2.*", OLD_LIBRARY)
        for server in ("python-server*", "prterun*", "native-server-[5-9].*")
    ],
    Lack("fence: new values", "prterun*", "native-5.0.8", CACHED),
    *[
        Lack("fence: new values", server, "native-5.0.*", OLD_SERVER)
        for server in ("mpirun-4.1.*", "native-server-4.2.*", "slurm-22.*")
    ],
)
