"""What pypmix promises of the values that procs give each other, beyond the Standard: see `lib.promises`."""

from __future__ import annotations

from lib.lack import Lack, returned
from lib.promise import Promise, shipped

FENCE = "pypmix, Client.get"
CALLS = "pypmix, Client.bcast and its kind"

OLD_LIBRARY = (
    "libpmix 4.2 keeps for good what it has read, unless its server is of 4.2 and shares its memory, which our own "
    "host does not"
)
OLD_SERVER = "a 4.2 server does not know PMIX_GET_REFRESH_CACHE, without which the library keeps what it has read"
CACHED = "libpmix 5.0.8 answers from its cache in spite of the attribute"

OLD_VALUES = returned(
    "a rank reads the first values of another one for good",
    lambda found: found[0][-1] == [3, 6] and [[0, 0]] * 4 in found,
)

PROMISES = (
    shipped("fence: new values"),
    Promise("values: again and again", CALLS, "the same calls as often as one likes, by all roots"),
    Promise("values: kinds", CALLS, "bytes and PMIx values with their types, other objects by a codec"),
    Promise("values: any size", CALLS, "values of any size, in pieces"),
    Promise("values: mistakes are told", CALLS, "another root, call or codec is an error at those it concerns"),
    Promise("values: groups side by side", CALLS, "calls among the members of several groups, and of the job"),
    Promise("values: members go", CALLS, "members leave or die: all survivors of a call have the same outcome"),
    Promise("values: old ones go", CALLS, "servers keep the values of the last two calls"),
)

SHARED = (
    "libpmix 4.2 reads what others have put from memory that it shares with its server, while the server writes there: "
    "after a fence it may not find a key, or may find an older value. A put, a fence and a get, a dozen times, show it "
    "in half of the runs, and in none with PMIX_MCA_gds=hash in the environment of mpirun"
)
TRACE = "how-it-works/libpmix.md#A put while others read"
OFTEN = ("values: again and again", "values: any size", "values: old ones go")

LACKS: tuple[Lack, ...] = (
    *[
        Lack(
            "fence: new values",
            server,
            "native-4.2.*",
            OLD_LIBRARY,
            expect=OLD_VALUES,
            probe="test_modex.test_a_collecting_fence_renews_what_was_read",
        )
        for server in ("python-server*", "prterun*", "native-server-*")
    ],
    Lack(
        "fence: new values",
        "prterun*",
        "native-5.0.8",
        CACHED,
        expect=OLD_VALUES,
        probe="test_modex.test_a_collecting_fence_renews_what_was_read",
    ),
    *[
        Lack(
            "fence: new values",
            server,
            "native-5.0.*",
            OLD_SERVER,
            expect=OLD_VALUES,
            probe="test_modex.test_a_collecting_fence_renews_what_was_read",
        )
        for server in ("mpirun-4.1.*", "native-server-4.2.*", "slurm-22.*")
    ],
    *[Lack(feature, "mpirun-4.1.*", "native-4.2.*", SHARED, proof=TRACE, harm=True) for feature in OFTEN],
)
