"""The directives of a spawn, as far as they apply to one node: parsed into applications and terms.

An unknown directive is ignored, as the Standard says, and refused by its name if it is required.
"""

from __future__ import annotations

import os

from pypmix.host.binding import level_of
from pypmix.host.job import Application
from pypmix.host.pmi.registration import PREPUT
from pypmix.host.preload import VARIABLE as PRELOAD
from pypmix.host.terms import Terms
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.attr import Attr
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.types import RANK_UNDEF, RANK_VALID, RANK_WILDCARD, REQUIRED, DataArray

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from pypmix.standard.ops import Spawn
    from pypmix.standard.types import App, Envar, Info, Proc

    Change = Callable[[dict[str, str]], None]
    Reader = Callable[["SpawnRequest", Any], None]

OPERATION = "spawn"

BREAKPOINT = "PMIX_BREAKPOINT"
"""The variable that names the only place in the program where ranks stop."""


def refused(status: int, detail: str) -> PMIxError:
    """Return the error of a spawn that cannot be carried out."""
    return PMIxError(detail, status=status, operation=OPERATION)


class SpawnRequest:
    """The requests of a spawn's directives: for the job, or for the job and then for one application.

    Attributes:
        terms: Fields of `Terms`.
        changes: The changes to the environment, in order.
        wdir: The working directory; empty if none was named.
        session_wdir: Whether the working directory is the job's own folder.
        hosts: The nodes that were named, perhaps with slots, as in `n1:2`.
        added: The nodes of `hosts` that are to join if they have not, as a list such as `n3:4,n4`.
        target: The allocation whose nodes to use; empty if none was named.
        hostfiles: Files that name nodes.
        added_files: The files of `hostfiles` whose nodes are to join if they have not.
        parent: The proc on whose behalf the job is spawned.
        crowded: Whether there may be more procs than CPUs.
        forwarded: Whether the caller wants stdout and stderr.
        pset: The process set of the procs; empty if none was named.
        preload: Files to carry to the nodes.
        preload_program: Whether the program is one of them.
        map_by: The mapping of procs to nodes, in the form of `Mapping.read`; empty if none was given.
        rank_by: The ranking of the mapped procs; empty if none was given.
        bind_to: The binding of the procs, in the form of `Binding.read`; empty if none was given.
        cpus: The CPUs that the procs may use, as a list; empty for all.
        width: The number of CPUs of each proc; 0 if none was given.
        stops: The places where procs stop for a debugger, by key: the ranks that stop there, None for all.
        daemons: Whether the procs are debugger daemons.
        debugged: The procs that the daemons are for; None if the same spawn starts these.
        per_proc: The number of daemons for each of these procs; 0 if not given.
        per_node: The number of daemons on each node of these procs; 0 if not given.
    """

    def __init__(self) -> None:
        self.terms: dict[str, Any] = {}
        self.changes: list[Change] = []
        self.wdir = ""
        self.session_wdir = False
        self.hosts: list[str] = []
        self.added: list[str] = []
        self.target = ""
        self.hostfiles: list[str] = []
        self.added_files: list[str] = []
        self.parent: Proc | None = None
        self.crowded = True
        self.forwarded = [False, False]
        self.pset = ""
        self.preload: tuple[str, ...] = ()
        self.preload_program = False
        self.map_by = ""
        self.rank_by = ""
        self.bind_to = ""
        self.cpus = ""
        self.width = 0
        self.inherits: bool | None = None
        self.forwards_env = False
        self.stops: dict[str, frozenset[int] | None] = {}
        self.daemons = False
        self.debugged: Proc | None = None
        self.per_proc = 0
        self.per_node = 0

    def of_app(self) -> SpawnRequest:
        """Return a request for an application that begins with this one; what concerns the whole job is shared."""
        request = SpawnRequest()
        request.__dict__.update(self.__dict__)
        request.changes = list(self.changes)
        request.stops = {}
        return request

    def read(self, infos: Iterable[Info]) -> None:
        """Read directives.

        Raises:
            NotSupported: A required directive is not offered here.
            PMIxError: A value is of another type than the directive has.
        """
        for info in infos:
            reader = READERS.get(info.key)
            if reader is not None:
                reader(self, _data(info))
            elif info.flags & REQUIRED and info.key not in MET:
                raise NotSupported(f"{name_of(info.key)} is required and not offered on this host", operation=OPERATION)


def name_of(key: str) -> str:
    """Return the Standard's name of a key, or the key itself if it has none."""
    attribute = attrs.by_key(key)
    return f"PMIX_{attribute.name}" if attribute is not None else repr(key)


def _data(info: Info) -> Any:
    attribute = attrs.by_key(info.key)
    if attribute is None or info.value.type in attribute.types:
        return info.value.data
    if codes.BOOL in attribute.types and info.value.type == codes.UNDEF:
        # A flag without a value is set.
        return True
    raise refused(statuses.ERR_BAD_PARAM, f"the value of {name_of(info.key)} is of another type than the Standard says")


def _term(field: str) -> Reader:
    def read(request: SpawnRequest, data: Any) -> None:
        request.terms[field] = data

    return read


def _seconds(request: SpawnRequest, data: int) -> None:
    if data < 0:
        raise refused(statuses.ERR_BAD_PARAM, f"a job cannot run for {data} s")
    request.terms["limit"] = float(data)


def _restarts(request: SpawnRequest, data: int) -> None:
    if data < 0:
        raise refused(statuses.ERR_BAD_PARAM, f"a process cannot be started again {data} times")
    request.terms["restarts"] = data


def _folder(field: str) -> Reader:
    def read(request: SpawnRequest, data: str | None) -> None:
        request.terms[field] = data or ""

    return read


def _forward(number: int) -> Reader:
    def read(request: SpawnRequest, data: bool) -> None:
        request.forwarded[number] = data

    return read


def _forward_stdin(request: SpawnRequest, data: bool) -> None:
    if data and request.terms.get("stdin") is None:
        request.terms["stdin"] = 0


def _stdin_target(request: SpawnRequest, data: Proc) -> None:
    if data.rank != RANK_WILDCARD and data.rank >= RANK_VALID:
        request.terms["stdin"] = None
    else:
        request.terms["stdin"] = data.rank


def _not_shown(request: SpawnRequest, data: bool) -> None:
    if data:
        request.terms["shown"] = (False, False)


def _wdir(request: SpawnRequest, data: str | None) -> None:
    request.wdir = data or ""


def _pset(request: SpawnRequest, data: str | None) -> None:
    request.pset = data or ""


def _session_wdir(request: SpawnRequest, data: bool) -> None:
    request.session_wdir = data


def _hosts(request: SpawnRequest, data: str | None) -> None:
    request.hosts += [name for name in (data or "").split(",") if name]


def _added_hosts(request: SpawnRequest, data: str | None) -> None:
    _hosts(request, data)
    if data:
        request.added.append(data)


def _hostfile(request: SpawnRequest, data: str | None) -> None:
    if data:
        request.hostfiles.append(data)


def _added_hostfile(request: SpawnRequest, data: str | None) -> None:
    _hostfile(request, data)
    if data:
        request.added_files.append(data)


def _preload(request: SpawnRequest, data: str | None) -> None:
    request.preload = (*request.preload, *[name for name in (data or "").split(",") if name])


def _preload_program(request: SpawnRequest, data: bool) -> None:
    request.preload_program = data


def _target(request: SpawnRequest, data: object) -> None:
    if not isinstance(data, str):
        raise refused(statuses.ERR_BAD_PARAM, "one allocation is named by PMIX_SPAWN_TARGET, as a string")
    request.target = data


INHERIT, NOINHERIT = "inherit", "noinherit"
"""Qualifiers of a mapping: whether procs inherit the variables that were set for their parent's application."""


def _map_by(request: SpawnRequest, data: str | None) -> None:
    words = (data or "").lower().split(":")
    said = {word == INHERIT for word in words if word in (INHERIT, NOINHERIT)}
    if len(said) > 1 or (said and request.inherits not in (None, *said)):
        raise refused(statuses.ERR_BAD_PARAM, "procs inherit the variables of their parent's application, or do not")
    if said:
        request.inherits = said.pop()
        words = [word for word in words if word not in (INHERIT, NOINHERIT)]
        if words in ([], [""]):
            return
    _map(request, ":".join(words))


def _ppr(request: SpawnRequest, data: str | None) -> None:
    _map(request, f"ppr:{(data or '').lower().removeprefix('ppr:')}")


def _map(request: SpawnRequest, text: str) -> None:
    if request.map_by not in ("", text):
        raise refused(
            statuses.ERR_JOB_FAILED_TO_MAP,
            f"the procs of a job are mapped in one way, not by {request.map_by} and {text:.80}",
        )
    request.map_by = text


def _rank_by(request: SpawnRequest, data: str | None) -> None:
    text = (data or "").lower()
    # Earlier releases number procs by the objects of a level.
    text = "fill" if level_of(text) else text
    if request.rank_by not in ("", text):
        raise refused(
            statuses.ERR_JOB_FAILED_TO_MAP,
            f"the procs of a job are ranked in one way, not by {request.rank_by} and {text:.80}",
        )
    request.rank_by = text


def _bind_to(request: SpawnRequest, data: str | None) -> None:
    text = (data or "").lower()
    if request.bind_to not in ("", text):
        raise refused(
            statuses.ERR_JOB_FAILED_TO_MAP,
            f"the procs of a job are bound in one way, not to {request.bind_to} and {text:.80}",
        )
    request.bind_to = text


def _cpu_list(request: SpawnRequest, data: str | None) -> None:
    request.cpus = data or ""


def _cpus_each(request: SpawnRequest, data: int) -> None:
    request.width = data


def _parent(request: SpawnRequest, data: Proc) -> None:
    request.parent = data


def _not_crowded(request: SpawnRequest, data: bool) -> None:
    request.crowded = not data


def _stop(attribute: Attr[object]) -> Reader:
    """Stop procs for a debugger at a place."""

    def read(request: SpawnRequest, data: Any) -> None:
        if data is False or data == RANK_UNDEF:
            request.stops.pop(attribute.key, None)
        elif data is True or data == RANK_WILDCARD:
            request.stops[attribute.key] = None
        else:
            ranks = [proc.rank for proc in data.items] if isinstance(data, DataArray) else [data]
            request.stops[attribute.key] = None if RANK_WILDCARD in ranks else frozenset(ranks)

    return read


def _breakpoint(request: SpawnRequest, data: str | None) -> None:
    request.changes.append(lambda env: env.__setitem__(BREAKPOINT, data or ""))


def _few(field: str) -> Reader:
    def read(request: SpawnRequest, data: int) -> None:
        if not data:
            raise refused(statuses.ERR_BAD_PARAM, "a number of debugger daemons is 1 at least")
        setattr(request, field, data)

    return read


def _debugged(request: SpawnRequest, data: Proc) -> None:
    request.debugged = data


def _no_launch(_request: SpawnRequest, data: bool) -> None:
    if data:
        # Ignoring it would start procs that must not be started.
        raise NotSupported("PMIX_DO_NOT_LAUNCH is not offered on this host", operation=OPERATION)


def _envar(apply: Callable[[dict[str, str], str, str, str], None]) -> Reader:
    def read(request: SpawnRequest, data: Envar) -> None:
        name, value, separator = data.name or "", data.value or "", data.separator
        if not name or "=" in name or "\0" in name + value:
            raise refused(statuses.ERR_BAD_PARAM, f"{name!r} is not the name of an environment variable")
        request.changes.append(lambda env: apply(env, name, value, separator))

    return read


def _set(env: dict[str, str], name: str, value: str, _separator: str) -> None:
    env[name] = value


def _add(env: dict[str, str], name: str, value: str, _separator: str) -> None:
    env.setdefault(name, value)


def _prepend(env: dict[str, str], name: str, value: str, separator: str) -> None:
    env[name] = f"{value}{separator}{env[name]}" if env.get(name) else value


def _append(env: dict[str, str], name: str, value: str, separator: str) -> None:
    env[name] = f"{env[name]}{separator}{value}" if env.get(name) else value


def _first(env: dict[str, str], name: str, value: str, separator: str) -> None:
    rest = [part for part in env.get(name, "").split(separator) if part and part != value] if separator else []
    env[name] = separator.join([value, *rest])


def _unset(request: SpawnRequest, data: str | None) -> None:
    request.changes.append(lambda env: _remove_variable(env, data or ""))


def _remove_variable(env: dict[str, str], name: str) -> None:
    env.pop(name, None)


READERS: dict[str, Reader] = {
    attrs.WDIR.key: _wdir,
    attrs.SET_SESSION_CWD.key: _session_wdir,
    attrs.PSET_NAME.key: _pset,
    attrs.HOST.key: _hosts,
    attrs.ADD_HOST.key: _added_hosts,
    attrs.HOSTFILE.key: _hostfile,
    attrs.ADD_HOSTFILE.key: _added_hostfile,
    attrs.SPAWN_TARGET.key: _target,
    attrs.PRELOAD_BIN.key: _preload_program,
    attrs.PRELOAD_FILES.key: _preload,
    attrs.MAPBY.key: _map_by,
    attrs.PPR.key: _ppr,
    attrs.RANKBY.key: _rank_by,
    attrs.BINDTO.key: _bind_to,
    attrs.CPU_LIST.key: _cpu_list,
    attrs.CPUS_PER_PROC.key: _cpus_each,
    attrs.REPORT_BINDINGS.key: _term("bindings"),
    attrs.DISPLAY_MAP.key: _term("maps"),
    attrs.NO_OVERSUBSCRIBE.key: _not_crowded,
    attrs.DO_NOT_LAUNCH.key: _no_launch,
    **{each.key: _stop(each) for each in (attrs.DEBUG_STOP_ON_EXEC, attrs.DEBUG_STOP_IN_INIT, attrs.DEBUG_STOP_IN_APP)},
    attrs.BREAKPOINT.key: _breakpoint,
    attrs.DEBUGGER_DAEMONS.key: lambda request, data: setattr(request, "daemons", data),
    attrs.DEBUG_TARGET.key: _debugged,
    attrs.DEBUG_DAEMONS_PER_PROC.key: _few("per_proc"),
    attrs.DEBUG_DAEMONS_PER_NODE.key: _few("per_node"),
    attrs.PARENT_ID.key: _parent,
    attrs.SET_ENVAR.key: _envar(_set),
    attrs.ADD_ENVAR.key: _envar(_add),
    attrs.PREPEND_ENVAR.key: _envar(_prepend),
    attrs.APPEND_ENVAR.key: _envar(_append),
    attrs.FIRST_ENVAR.key: _envar(_first),
    attrs.UNSET_ENVAR.key: _unset,
    attrs.FWD_ENVIRONMENT.key: lambda request, data: setattr(request, "forwards_env", data),
    attrs.INDEX_ARGV.key: _term("indexed"),
    attrs.JOB_TIMEOUT.key: _seconds,
    attrs.FWD_STDIN.key: _forward_stdin,
    attrs.FWD_STDOUT.key: _forward(0),
    attrs.FWD_STDERR.key: _forward(1),
    attrs.STDIN_TGT.key: _stdin_target,
    attrs.TAG_OUTPUT.key: _term("tagged"),
    attrs.IOF_TAG_OUTPUT.key: _term("tagged"),
    attrs.IOF_RANK_OUTPUT.key: _term("tagged"),
    attrs.TIMESTAMP_OUTPUT.key: _term("stamped"),
    attrs.IOF_TIMESTAMP_OUTPUT.key: _term("stamped"),
    attrs.MERGE_STDERR_STDOUT.key: _term("merged"),
    attrs.IOF_MERGE_STDERR_STDOUT.key: _term("merged"),
    attrs.OUTPUT_TO_FILE.key: _folder("file"),
    attrs.IOF_OUTPUT_TO_FILE.key: _folder("file"),
    attrs.OUTPUT_TO_DIRECTORY.key: _folder("directory"),
    attrs.IOF_OUTPUT_TO_DIRECTORY.key: _folder("directory"),
    attrs.OUTPUT_NOCOPY.key: _not_shown,
    attrs.IOF_FILE_ONLY.key: _not_shown,
    attrs.JOB_RECOVERABLE.key: _term("keep_going"),
    attrs.MAX_RESTARTS.key: _restarts,
    attrs.SPAWN_CHILD_SEP.key: _term("separate"),
    attrs.REPORT_CHILD_SEP.key: lambda request, data: request.terms.__setitem__("counted", not data),
    attrs.NOTIFY_COMPLETION.key: _term("tell_end"),
    attrs.NOTIFY_JOB_EVENTS.key: _term("tell_job"),
    attrs.NOTIFY_PROC_TERMINATION.key: _term("tell_ranks"),
    attrs.NOTIFY_PROC_ABNORMAL_TERMINATION.key: _term("tell_failures"),
    attrs.EVENT_SILENT_TERMINATION.key: _term("silent"),
}
"""The readers of directives, by key."""

MET = frozenset(
    attribute.key
    for attribute in (
        attrs.PREFIX,
        attrs.PERSONALITY,
        attrs.ENVARS_HARVESTED,
        attrs.SETUP_APP_ENVARS,
        attrs.WDIR_USER_SPECIFIED,
        attrs.FWD_STDDIAG,
        attrs.SPAWN_TIMEOUT,
        attrs.TIMEOUT,
        attrs.IOF_CACHE_SIZE,
        attrs.IOF_DROP_OLDEST,
        attrs.IOF_DROP_NEWEST,
        attrs.ABORT_NON_ZERO_TERM,
    )
)
"""Directives that hold here in any case: all is on this node, and a spawn takes hardly any time."""


def read(
    op: Spawn, env: Mapping[str, str], base: str, folder: str, parent: Application | None = None
) -> tuple[SpawnRequest, tuple[Application, ...]]:
    """Return the request of a spawn, and its applications.

    Args:
        op: The spawn.
        env: The environment that ranks inherit.
        base: The working directory of applications that name none.
        folder: The job's own folder.
        parent: The application of the requesting proc, whose variables the job inherits.

    Raises:
        PMIxError: It cannot be carried out.
    """
    job = SpawnRequest()
    job.terms["stdin"] = None
    job.read(op.directives)
    apps: list[Application] = []
    for app in op.apps:
        request = job.of_app()
        request.read(app.info)
        before = sum([each.np for each in apps])
        for key, ranks in request.stops.items():
            own = range(before, before + app.maxprocs) if ranks is None else ranks
            known = job.stops.get(key, frozenset())
            job.stops[key] = None if known is None else known.union(own)
        job.daemons, job.debugged = request.daemons, request.debugged
        job.per_proc, job.per_node = request.per_proc, request.per_node
        apps.append(_application(app, request, env, base, folder, parent if request.inherits is not False else None))
        job.parent, job.crowded, job.map_by, job.rank_by = (
            request.parent,
            request.crowded,
            request.map_by,
            request.rank_by,
        )
        job.inherits, job.bind_to, job.cpus, job.width = request.inherits, request.bind_to, request.cpus, request.width
    reader = job.terms["stdin"]
    if reader not in (None, RANK_WILDCARD) and reader >= sum([app.np for app in apps]):
        raise refused(statuses.ERR_BAD_PARAM, f"there is no rank {reader} that could read the job's input")
    first = apps[0].wdir or base
    for field in ("file", "directory"):
        if job.terms.get(field):
            job.terms[field] = os.path.join(first, job.terms[field])
    return job, tuple(apps)


def _application(
    app: App, request: SpawnRequest, inherited: Mapping[str, str], base: str, folder: str, parent: Application | None
) -> Application:
    program = app.cmd or app.argv[0]
    argv = app.argv
    # The name of the program may be missing from its arguments; libraries put it there too.
    if not argv or os.path.basename(argv[0]) != os.path.basename(program):
        argv = (os.path.basename(program), *argv)
    wdir = os.path.normpath(os.path.join(base, app.cwd or "", request.wdir))
    preload = tuple([(name, os.path.join(wdir, name)) for name in request.preload])
    if request.preload_program:
        preload += ((program, ""),)
    if request.session_wdir:
        wdir = folder
    elif wdir == base:
        # Ranks start there anyway; without a folder, starting is faster.
        wdir = ""
    before = _environment(inherited, parent)
    for setting in app.env:
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise refused(statuses.ERR_BAD_PARAM, f"the environment holds NAME=VALUE, not {setting!r:.80}")
        before[name] = value
    after = dict(before)
    for change in request.changes:
        change(after)
    # The environments of daemons differ.
    known = {} if request.forwards_env else inherited
    added = tuple([(name, value) for name, value in after.items() if known.get(name) != value])
    unset = tuple([name for name in inherited if name not in after])
    try:
        return Application(argv, app.maxprocs, added, wdir, program, unset, request.pset, preload)
    except (TypeError, ValueError) as error:
        raise refused(statuses.ERR_BAD_PARAM, str(error)) from None


def _environment(inherited: Mapping[str, str], parent: Application | None) -> dict[str, str]:
    """Return the initial environment of ranks: the host's, with the settings of the parent's application."""
    if parent is None:
        return dict(inherited)
    found = parent.environment(inherited)
    # The folder of the parent's job is removed with that job.
    if PRELOAD in found and PRELOAD not in inherited:
        del found[PRELOAD]
    # It belongs to the job that was spawned by PMI: MPI in a job of this one would connect to that one's parent.
    found.pop(PREPUT, None)
    return found


def terms_of(request: SpawnRequest, tool: bool) -> Terms:
    """Return the terms of a spawned job.

    Args:
        request: The request of the spawn.
        tool: Whether a tool has requested it: a tool shows forwarded output itself, so it is not shown here. Ranks show
            nothing; libpmix passes it to their handlers, if they have any.
    """
    fields = dict(request.terms)
    if tool:
        stdout, stderr = fields.get("shown", (True, True))
        fields["shown"] = (stdout and not request.forwarded[0], stderr and not request.forwarded[1])
    if request.stops:
        fields["stops"] = tuple(
            [(key, "" if ranks is None else ",".join(map(str, sorted(ranks)))) for key, ranks in request.stops.items()]
        )
    return Terms(kept=True, pushed=True, **fields)
