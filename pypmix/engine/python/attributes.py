"""The functions and attributes that this engine supports, for answers to `QUERY_ATTRIBUTE_SUPPORT`.

This table decides nothing: an attribute works because the code of its operation reads it. If an attribute is added
there, add its name here, for the client, the server, or both. Attributes of hosts are in `host/directives.py`.
"""

from __future__ import annotations

from pypmix.standard import attrs, codes, keys
from pypmix.standard.types import DataArray, Info, RegAttr, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

CLIENT = keys.CLIENT_ATTRIBUTES, keys.CLIENT_FUNCTIONS
SERVER = keys.SERVER_ATTRIBUTES, keys.SERVER_FUNCTIONS
HOST = keys.HOST_ATTRIBUTES, keys.HOST_FUNCTIONS
"""The qualifiers that ask for the attributes and for the functions of one side."""

_FENCE = "COLLECT_DATA TIMEOUT"
_GET = (
    "IMMEDIATE OPTIONAL TIMEOUT DATA_SCOPE GET_REFRESH_CACHE JOB_INFO NODE_INFO APP_INFO SESSION_INFO HOSTNAME NODEID "
    "APPNUM SESSION_ID"
)

FUNCTIONS: dict[tuple[str, str], dict[str, str]] = {
    CLIENT: {
        "PMIx_Init": "TIMEOUT",
        "PMIx_Finalize": "EMBED_BARRIER TIMEOUT",
        "PMIx_Put": "",
        "PMIx_Commit": "",
        "PMIx_Fence": _FENCE,
        "PMIx_Get": _GET,
        "PMIx_Abort": "",
        "PMIx_Publish": "RANGE PERSISTENCE TIMEOUT",
        "PMIx_Lookup": "RANGE WAIT TIMEOUT",
        "PMIx_Unpublish": "RANGE TIMEOUT",
        "PMIx_Query_info": "QUERY_REFRESH_CACHE PROCID NSPACE RANK HOSTNAME NODEID APPNUM SESSION_ID "
        "CLIENT_ATTRIBUTES CLIENT_FUNCTIONS",
        "PMIx_Resolve_peers": "",
        "PMIx_Resolve_nodes": "",
        "PMIx_Log": "LOG_GENERATE_TIMESTAMP",
        "PMIx_Job_control": "",
        "PMIx_Allocation_request": "",
        "PMIx_Process_monitor": "SEND_HEARTBEAT",
        "PMIx_Heartbeat": "",
        "PMIx_Get_credential": "TIMEOUT",
        "PMIx_Validate_credential": "TIMEOUT",
        "PMIx_Fabric_register": "",
        "PMIx_Fabric_update": "",
        "PMIx_Compute_distances": "",
        "PMIx_Group_construct": "GROUP_ASSIGN_CONTEXT_ID GROUP_INFO TIMEOUT",
        "PMIx_Group_destruct": "TIMEOUT",
    },
    SERVER: {
        "PMIx_Fence": f"{_FENCE} GROUP_FT_COLLECTIVE",
        "PMIx_Get": "IMMEDIATE TIMEOUT DATA_SCOPE GET_REFRESH_CACHE",
        "PMIx_Query_info": "QUERY_NAMESPACES QUERY_NAMESPACE_INFO QUERY_PROC_TABLE QUERY_LOCAL_PROC_TABLE "
        "QUERY_RESOLVE_PEERS QUERY_RESOLVE_NODE QUERY_NUM_GROUPS QUERY_GROUP_NAMES QUERY_GROUP_MEMBERSHIP GROUP_ID "
        "QUERY_NUM_PSETS QUERY_PSET_NAMES QUERY_PSET_MEMBERSHIP PSET_NAME "
        "QUERY_SUPPORTED_KEYS QUERY_ATTRIBUTE_SUPPORT PROCID NSPACE RANK HOSTNAME NODEID APPNUM SESSION_ID "
        "SERVER_ATTRIBUTES SERVER_FUNCTIONS",
        "PMIx_Resolve_peers": "",
        "PMIx_Resolve_nodes": "",
    },
}
"""Operations that each side carries out without its host, with their attributes; it forwards all others."""


def supported(side: tuple[str, str], qualifiers: Iterable[Info]) -> list[Info]:
    """Return the infos about one side in an answer to `QUERY_ATTRIBUTE_SUPPORT`.

    Args:
        side: `CLIENT` or `SERVER`.
        qualifiers: The qualifiers of the query; without a qualifier that names a side, the answer has everything.
    """
    names, listing = side
    asked = {info.key: info.value.data for info in qualifiers}
    everything = not any(key in asked for keys in (CLIENT, SERVER, HOST) for key in keys)
    functions = FUNCTIONS[side]
    found = []
    if everything or names in asked:
        text = asked.get(names)
        wanted = text.split(",") if isinstance(text, str) and text not in ("", "all") else list(functions)
        for name in wanted:
            attributes = functions.get(name, "").split()
            if attributes:
                registered = tuple([_registered(attribute) for attribute in attributes])
                found.append(_array(name, codes.REGATTR, registered))
    if everything or listing in asked:
        found.append(Info(listing, Value.unchecked(codes.STRING, ",".join(functions))))
    return found


def _registered(name: str) -> RegAttr:
    attribute = getattr(attrs, name)
    return RegAttr("PMIX_" + name, attribute.key, attribute.types[0])


def _array(key: str, type: int, items: tuple[object, ...]) -> Info:
    return Info(key, Value.unchecked(codes.DATA_ARRAY, DataArray(type, items)))


def elsewhere(qualifiers: tuple[Info, ...]) -> list[tuple[Info, ...]]:
    """Return the qualifiers of the queries by which a client asks its server for its and its host's support.

    There is one query for each qualifier, and each qualifier is a string, as native servers expect it.
    """
    given = {info.key: info.value for info in qualifiers}
    everything = Value.unchecked(codes.STRING, "all")
    found: list[tuple[Info, ...]] = []
    for key in (*SERVER, *HOST):
        value = given.get(key)
        if value is not None or not qualifiers:
            known = value is not None and value.type == codes.STRING and value.data
            found.append((Info(key, value if value is not None and known else everything),))
    return found
