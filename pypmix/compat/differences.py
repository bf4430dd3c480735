"""The differences from the official binding: the source of `pypmix compat --check` and of the reference's table."""

from __future__ import annotations

from pypmix.standard.record import Record

CALL = "call"
HANDLER = "handler"
COMPARED = "compared"
UNKNOWN = "unknown"
NONE = ""
"""The ways in which the checker finds a difference in a program, `NONE` where it shows in no line of it."""


class Difference(Record):
    """One thing that is not as in the official binding.

    Args:
        name: The method, or the key of a server module; several with spaces between them; empty for what is of none.
        topic: What it is about, a heading of the reference.
        official: What the official binding does.
        here: What pypmix does.
        advice: What to do about it; empty where nothing need be done.
        check: How the checker finds it.
        where: Which of those are meant, a rule of `pypmix.compat.check`; empty for all.
    """

    name: str
    topic: str
    official: str
    here: str
    advice: str = ""
    check: str = NONE
    where: str = ""


TOPICS = {
    "names": "Names and constants",
    "values": "Values",
    "client": "Clients",
    "groups": "Groups",
    "events": "Events and callbacks",
    "server": "Servers",
    "tool": "Tools and schedulers",
}
"""The headings of the reference, in their order."""

TABLE: tuple[Difference, ...] = (
    # Names and constants
    Difference(
        "",
        "names",
        "Attributes such as `PMIX_TIMEOUT` are `bytes` at 4.2 and 5.0, `str` on master.",
        "They are strings that equal their bytes too and have `decode`; keys may be given as either.",
    ),
    Difference(
        "get_version",
        "names",
        "The version of libpmix, `bytes` at 4.2.",
        "The version of pypmix and, once initialized, its engine, as `str`.",
        "Do not take it apart; ask `pypmix doctor` for the library.",
        CALL,
        "taken_apart",
    ),
    Difference(
        "",
        "names",
        "Forks of OpenPMIx have constants of their own, and releases lose some.",
        "The constants of all releases from 4.2 on, and no others: a further one is a `NameError`.",
        "Define it in the program.",
        UNKNOWN,
        "constants",
    ),
    Difference(
        "",
        "names",
        "Releases have methods that others lack.",
        "Those of master, and no others: a further one is an `AttributeError`.",
        "See the methods of master's binding for what took its place.",
        UNKNOWN,
        "methods",
    ),
    Difference(
        "error_string proc_state_string scope_string persistence_string data_range_string info_directives_string "
        "alloc_directive_string iof_channel_string job_state_string link_state_string device_type_string "
        "value_string info_string app_string data_print",
        "names",
        "Phrases that differ from release to release.",
        "The Standard's own names, such as `PMIX_ERR_TIMEOUT` and `TERMINATED`.",
    ),
    Difference(
        "",
        "names",
        "`from pmix import *` brings `os`, `time`, `threading` and other modules too at 4.2 and 5.0.",
        "It brings the classes, functions and constants of PMIx alone, as on master.",
        "Import those modules in the program.",
    ),
    Difference(
        "",
        "names",
        "The functions that end in `_nb` are on master only.",
        "They are there.",
    ),
    # Values
    Difference(
        "",
        "values",
        "Some values are stored altered with status 0, or come back as None: strings that are not ASCII, integers near "
        "or beyond the ends of their range, `PMIX_TIME`, separators of `PMIX_ENVAR`, `PMIX_PERSIST`, "
        "`PMIX_DATA_RANGE`, `PMIX_LINK_STATE`, `PMIX_JOB_STATE`, `PMIX_DEVTYPE`, `PMIX_LOCTYPE`, `PMIX_PROC_NSPACE`, "
        "arrays of `PMIX_UINT64`.",
        "Every value comes back as it was put, or is refused with a status.",
    ),
    Difference(
        "",
        "values",
        "`PMIX_COORD`, `PMIX_REGATTR`, `PMIX_GEOMETRY`, `PMIX_ENDPOINT`, `PMIX_DEVICE_DIST`, `PMIX_TOPO`, "
        "`PMIX_PROC_CPUSET` and `PMIX_DATA_BUFFER` crash the process at 4.2.",
        "They are converted, and refused with `PMIX_ERR_NOT_SUPPORTED` where the native engine's libpmix cannot carry "
        "them.",
    ),
    Difference(
        "put store_internal get publish",
        "values",
        "A key of more than 511 bytes is cut off without a word.",
        "`PMIX_ERR_BAD_PARAM`.",
        "Shorten the key.",
        CALL,
        "long_key",
    ),
    Difference(
        "put store_internal",
        "values",
        "A value without `val_type`, or no dict, raises a `TypeError` or a `KeyError`.",
        "`PMIX_ERR_BAD_PARAM`.",
        "Give `{'value': ..., 'val_type': ...}`.",
        CALL,
        "untyped",
    ),
    Difference(
        "",
        "values",
        "At 4.2 an array of `PMIX_INFO` is `PMIX_ERR_NOT_FOUND` when it is asked for, an empty array raises a "
        "`TypeError`, and arrays of `PMIX_PROC` have nspaces as `bytes`.",
        "Arrays come back as they were put, with nspaces as `str`.",
    ),
    Difference(
        "put publish",
        "values",
        "The exit code of a `PMIX_PROC_INFO` is lost on the way, and so is the NUL at the end of a `PMIX_REGEX`.",
        "Such a value is refused, with `PMIX_ERR_NOT_SUPPORTED` and `PMIX_ERR_BAD_PARAM`.",
    ),
    Difference(
        "",
        "values",
        "A string that is not ASCII comes back as `bytes`, raises an exception, or is stored as another one.",
        "It comes back as `str` where it is UTF-8, as `bytes` where it is not.",
    ),
    Difference(
        "",
        "values",
        "Lists of flags, arrays of coordinates and other forms of the Standard's appendix are refused.",
        "They are taken; what comes back has the forms of the binding.",
    ),
    # Clients
    Difference(
        "init",
        "client",
        "A process without a launcher gets `PMIX_ERR_UNREACH` and an empty name.",
        "It is a job of one, with `PMIX_SUCCESS` and a name.",
        "A program that tells by this status whether it was launched asks for `PMIX_JOB_SIZE` instead.",
        COMPARED,
        "PMIX_ERR_UNREACH",
    ),
    Difference(
        "get get_nb",
        "client",
        "A key of None asks for all that a proc has put.",
        "`PMIX_ERR_NOT_SUPPORTED`.",
        "Name the keys.",
        CALL,
        "no_key",
    ),
    Difference(
        "progress_thread_stop",
        "client",
        "Stops libpmix's progress thread.",
        "`PMIX_ERR_NOT_SUPPORTED`: nothing would make progress then.",
        "Leave it out.",
        CALL,
    ),
    Difference(
        "resource_block resource_block_nb",
        "client",
        "Asks the scheduler for a block of resources.",
        "`PMIX_ERR_NOT_SUPPORTED`.",
        "Use `allocation_request`.",
        CALL,
    ),
    Difference(
        "load_topology",
        "client",
        "Loads the topology where libpmix was built with hwloc.",
        "`PMIX_SUCCESS`, and nothing is loaded: `compute_distances` asks for the topology itself.",
    ),
    Difference(
        "init finalize",
        "client",
        "At 4.2 a second `init` raises a `RuntimeError`, a second object takes the handlers of the first away, and "
        "`init` prints on standard output.",
        "All objects of a process share a connection, which the last `finalize` closes.",
    ),
    Difference(
        "fence",
        "client",
        "Stops all threads of the program while it waits, before master.",
        "No call does.",
    ),
    Difference(
        "lookup lookup_nb",
        "client",
        "Where not all was found, the values that were are lost.",
        "They come with `PMIX_ERR_PARTIAL_SUCCESS`.",
    ),
    Difference(
        "unpublish",
        "client",
        "An error crashes the process at 4.2.",
        "It is a status.",
    ),
    Difference(
        "query query_nb",
        "client",
        "Where not all was found, the answers that were are lost.",
        "They come with `PMIX_QUERY_PARTIAL_SUCCESS`.",
    ),
    Difference(
        "get_cpuset",
        "client",
        "What the server said of the process, or what hwloc says.",
        "The cores that the kernel lets the process, or the thread, run on.",
    ),
    Difference(
        "",
        "client",
        "Some errors raise exceptions, some are printed and lost.",
        "All are a status; what they say goes to the log `pypmix.compat`.",
    ),
    Difference(
        "data_pack data_unpack data_copy data_copy_payload data_load data_unload data_embed data_print",
        "values",
        "`PMIX_ERR_INIT` before `init`.",
        "They work before `init`, too.",
    ),
    # Groups
    Difference(
        "group_construct group_invite group_join",
        "groups",
        "Before `init`, the process crashes at 4.2.",
        "`(PMIX_ERR_INIT, [])`.",
    ),
    Difference(
        "group_construct group_construct_nb",
        "groups",
        "An empty list of procs is none at 4.2 and 5.0, and on master the caller's whole job, though its "
        "own examples mean none.",
        "None of them: others add the caller (`PMIX_GROUP_ADD_MEMBERS`). None is the whole job.",
        "Give None where the whole job is meant.",
        CALL,
        "no_peers",
    ),
    Difference(
        "group_destruct",
        "groups",
        "Hangs at 4.2 where the host does not support groups.",
        "Ends with the host's status.",
    ),
    Difference(
        "register_event_handler",
        "groups",
        "The leader gets a refused invitation as `PMIX_GROUP_INVITE_FAILED`.",
        "A handler for it hears so, too, unless it is one for the Standard's `PMIX_GROUP_INVITE_DECLINED` as well.",
    ),
    # Events and callbacks
    Difference(
        "register_event_handler",
        "events",
        "An exception of a handler vanishes, and the chain of handlers may stall.",
        "It is logged with its traceback (`pypmix.compat`), and the chain goes on with an error status.",
    ),
    Difference(
        "",
        "events",
        "Callbacks run on libpmix's progress thread, where a blocking call hangs the process or returns "
        "`PMIX_ERR_WOULD_BLOCK`.",
        "They run one after the other on a thread of their own, from where calls may be made. Only what a server asks "
        "its own handlers returns `PMIX_ERR_WOULD_BLOCK` there.",
    ),
    Difference(
        "notify_event",
        "events",
        "Any proc can be named as the source.",
        "A client's event has the client as its source; a server's has the proc that is named.",
        "Name the source in an info of the event if it is another proc.",
        CALL,
        "foreign_source",
    ),
    Difference(
        "register_event_handler",
        "events",
        "A handler that returns no pair of a status and results stops the chain of handlers.",
        "A status alone will do, and None is `PMIX_EVENT_NO_ACTION_TAKEN`.",
    ),
    # Servers
    Difference(
        "fencenb group fabric jobcontrol monitor iofpull pushstdin allocate getcredential validatecredential "
        "toolconnected",
        "server",
        "At 4.2 and 5.0 a handler kills the thread that serves, or raises a `TypeError`, and all clients hang; "
        "`PMIX_TIMEOUT` does not help.",
        "Handlers of all generations work: `(args, cbfunc, cbdata)` of master, and `(args)` that returns a status or a "
        "tuple of it and its data.",
    ),
    Difference(
        "fencenb group connect disconnect publish lookup",
        "server",
        "A handler that never answers leaves its clients waiting for ever at 4.2.",
        "They get `PMIX_ERR_TIMEOUT` where they have given a `PMIX_TIMEOUT`.",
    ),
    Difference(
        "init",
        "server",
        "An unknown key in the map of handlers is accepted before master, and never called.",
        "`PMIX_ERR_INIT`, and the log names the key, as on master.",
    ),
    Difference(
        "setup_application collect_inventory dmodex_request",
        "server",
        "Calls in several threads disturb each other.",
        "They may be made from any thread, at the same time.",
    ),
    Difference(
        "generate_cpuset_string",
        "server",
        "`PMIX_ERR_NOT_SUPPORTED` at 4.2.",
        "It works, without hwloc.",
    ),
    Difference(
        "fencenb directmodex",
        "server",
        "Data are cut off at their first NUL at 4.2 and 5.0.",
        "They are passed on whole.",
    ),
    Difference(
        "",
        "server",
        "An exception of a handler leaves the clients hanging at 4.2; on master they get `PMIX_ERROR`.",
        "It is logged with its traceback, and the clients get `PMIX_ERROR`.",
    ),
    Difference(
        "",
        "server",
        "A handler that returns None makes the request fail with a `TypeError` that is printed.",
        "The same request fails with `PMIX_ERROR`, which is logged, unless `cbfunc` has been called.",
        "Return a status from every path of the handler.",
        HANDLER,
        "returns_nothing",
    ),
    Difference(
        "notifyevent",
        "server",
        "At 4.2 and 5.0 registered as `notify_event`, and never called.",
        "Called, under either name; its return ends it, whether or not `cbfunc` is called.",
    ),
    Difference(
        "listener",
        "server",
        "Accepted as a key of the server module, and never called.",
        "The same.",
        "Take it out of the map.",
        HANDLER,
        "listener",
    ),
    Difference(
        "register_nspace",
        "server",
        "Returns `PMIX_OPERATION_SUCCEEDED` (-157), which programs that compare with `PMIX_SUCCESS` take for an error.",
        "`PMIX_SUCCESS`.",
    ),
    Difference(
        "register_nspace setup_local_support deregister_nspace",
        "server",
        "With `PMIX_OPERATION_SUCCEEDED`, `cbfunc` is not called.",
        "That status is never returned, and `cbfunc` is called.",
        "Do not wait for `PMIX_OPERATION_SUCCEEDED`; test for `PMIX_SUCCESS`.",
        COMPARED,
        "PMIX_OPERATION_SUCCEEDED",
    ),
    Difference(
        "init",
        "server",
        "A server cannot be initialized again at 4.2.",
        "It can. On the native engine, where no libpmix can, the first server stays and serves again, with the "
        "folder and the name that it had.",
    ),
    Difference(
        "fence connect disconnect publish lookup unpublish group_construct group_invite group_join group_leave "
        "group_destruct fence_nb connect_nb publish_nb lookup_nb unpublish_nb",
        "server",
        "A server that calls a client's operation gets `PMIX_ERR_UNREACH` or `PMIX_ERR_NOT_SUPPORTED`, or hangs.",
        "`PMIX_ERR_UNREACH`. Queries, job control, allocations, credentials, monitors and spawns go to the server's "
        "own handlers.",
        "Call it in a client, or call the handler itself.",
        CALL,
        "on_server",
    ),
    Difference(
        "get",
        "server",
        "A server reads what its clients have put.",
        "It reads job info, and what it has put and stored itself; what clients have committed comes packed, by "
        "`dmodex_request`.",
        "Let a client read it.",
        CALL,
        "on_server",
    ),
    Difference(
        "setup_fork",
        "server",
        "Adds to the environment; variables of an outer job stay, and win over it.",
        "Those that tie a child to another server are taken out.",
    ),
    Difference(
        "iof_flow_control",
        "server",
        "Asks those who push input to wait.",
        "`PMIX_SUCCESS`, without an effect.",
        "Keep what comes too fast.",
        CALL,
    ),
    Difference(
        "register_attributes",
        "server",
        "Clients can query which attributes the host supports.",
        "They are kept, and clients are not told.",
        "Answer `PMIX_QUERY_ATTRIBUTE_SUPPORT` in the handler `query`.",
        CALL,
    ),
    Difference(
        "collect_job_info",
        "server",
        "A buffer for the library of another server.",
        "The infos of `register_nspace`, packed; `data_unpack` reads them.",
        "Send the infos themselves to the other host, and call `register_nspace` there.",
        CALL,
    ),
    Difference(
        "generate_regex2 parse_regex2",
        "server",
        "The encoding that the library likes best, possibly compressed.",
        "The encoding `raw` alone.",
        "Read lists of other encodings where they were made.",
        CALL,
    ),
    Difference(
        "define_process_set",
        "server",
        "A second set of a name takes the place of the first.",
        "`PMIX_ERR_EXISTS`.",
        "Call `delete_process_set` before.",
        CALL,
        "defined_again",
    ),
    # Tools and schedulers
    Difference(
        "set_server_module",
        "tool",
        "The tool's own library serves, also over the connection to its server.",
        "A server of the Python engine serves beside the tool, those who connect to it; nothing comes from the tool's "
        "server.",
        "Let the processes that ask connect to the tool.",
        CALL,
    ),
    Difference(
        "session_control",
        "tool",
        "Asks the scheduler.",
        "`PMIX_ERR_UNREACH` of a server without the handler `sessioncontrol`, `PMIX_ERR_NOT_SUPPORTED` of a tool.",
        "Make requests for sessions by `allocation_request` and `job_control`.",
        CALL,
    ),
)
"""Each difference."""
