"""Spawn: start a further job that a client or tool has requested.

`directives` reads the attributes of the request into terms, mapping and binding. Here they meet the state of the host:
the caller's node and program, the nodes that the request names, and daemons that have to start first. What follows is
the same as for the first job: `Manager.start`.
"""

from __future__ import annotations

import errno
import os

from pypmix.host.binding import NONE
from pypmix.host.directives import SpawnRequest, read, refused, terms_of
from pypmix.host.launch import NO_FOLDER, is_missing
from pypmix.host.mapping import RANKFILE, RANKINGS, Mapping
from pypmix.host.notices import Notices
from pypmix.host.placing import NodeRequest, Target
from pypmix.host.tools import Orphanage
from pypmix.standard.enums import Status
from pypmix.standard.errors import PMIxError
from pypmix.standard.keys import DEBUGGER_DAEMONS
from pypmix.standard.ops import Spawn
from pypmix.standard.ops.events import is_set
from pypmix.standard.types import RANK_WILDCARD, Proc
from pypmix.topology.bitmaps import parse_list
from pypmix.topology.machine import LEVELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Upcall
    from pypmix.host.binding import Binding
    from pypmix.host.job import Application
    from pypmix.host.manager import Manager
    from pypmix.host.nodes import HostNode
    from pypmix.host.running import RunningJob

LOOPBACK = ("localhost", "127.0.0.1", "::1")
UNREADABLE: dict[type[OSError], int] = {
    FileNotFoundError: Status.ERR_NOT_FOUND,
    PermissionError: Status.ERR_NO_PERMISSIONS,
}
ALL = -1
"""All slots of a node."""


def _target(host: Manager, request: SpawnRequest, parent: Proc | None) -> Target:
    """Return the nodes and the rules by which to place the procs of a request."""
    named = _named(host, request)
    known = _nodes_by_name(host, parent)
    slots: dict[str, int] = {}
    for name, number in named:
        node = known.get(name) or known.get(name.rpartition("@")[2])
        if node is None:
            # Skip nodes without ranks: the launcher's own server, and nodes that are leaving.
            others = ", ".join([each.hostname for each in host.nodes if each.slots != 0])
            raise refused(Status.ERR_JOB_FAILED_TO_MAP, f"{name!r} is none of the nodes that there are: {others}")
        before = slots.get(node.hostname, 0)
        slots[node.hostname] = before + number if number and before != ALL else ALL
    nodes = tuple([node for node in host.nodes if node.hostname in slots])
    return Target(nodes, {name: number for name, number in slots.items() if number != ALL}, _mapping(host, request))


def _mapping(host: Manager, request: SpawnRequest) -> Mapping | None:
    """Return the mapping of a request; None if it is the host's."""
    found = host.site.mapping
    try:
        if request.map_by:
            found = Mapping.read(request.map_by, crowded=found.crowded, binding=found.binding)
            if found.by in LEVELS and not request.bind_to:
                # Procs that are mapped to hardware are bound to it, even where others are not bound.
                found = found.replace(binding=found.binding.replace(level=""))
        found = found.replace(binding=_binding(found.binding, request))
    except ValueError as error:
        raise refused(Status.ERR_JOB_FAILED_TO_MAP, str(error)) from None
    if found.by == RANKFILE:
        # The rankfile of the first job has no places for others.
        found = found.replace(by="", lines=())
    if request.rank_by:
        if request.rank_by not in RANKINGS:
            raise refused(
                Status.ERR_JOB_FAILED_TO_MAP,
                f"procs are ranked by {', '.join(RANKINGS)}, not by {request.rank_by!r:.80}",
            )
        found = found.replace(rank_by=request.rank_by)
    if not request.crowded:
        found = found.replace(crowded=False)
    return None if found == host.site.mapping else found


def _binding(binding: Binding, request: SpawnRequest) -> Binding:
    """Return the rules of binding of a request; raise `ValueError` if they are not valid."""
    if request.bind_to:
        binding = binding.read(request.bind_to)
    if request.width:
        # Procs with CPUs of their own are bound to these.
        level = "" if binding.level == NONE and not request.bind_to else binding.level
        binding = binding.replace(width=request.width, level=level)
        if level == NONE and request.width > 1:
            raise ValueError("procs with several CPUs each are bound to them, and PMIX_BINDTO is none")
    if request.cpus:
        parse_list(request.cpus)
        binding = binding.replace(cpus=request.cpus)
    return binding


def _named(host: Manager, request: SpawnRequest) -> list[tuple[str, int]]:
    """Return the nodes that a request names, and the slots that it takes of each, 0 if not given."""
    from pypmix.host.rosters.names import read_hostfile, with_slots

    try:
        found = [with_slots(word, 0) for word in request.hosts]
        found += [(each.name, each.slots) for path in request.hostfiles for each in read_hostfile(_lines(path), path)]
    except ValueError as error:
        raise refused(Status.ERR_JOB_FAILED_TO_MAP, str(error)) from None
    if request.target:
        from pypmix.host.elastic import Elastic

        elastic = host.find_part(Elastic)
        granted = () if elastic is None else elastic.nodes_of(request.target)
        if not granted:
            raise refused(Status.ERR_JOB_FAILED_TO_MAP, f"there is no allocation {request.target!r:.80}")
        found += [(name, 0) for name in granted]
    return found


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return list(file)
    except OSError as error:
        raise refused(Status.ERR_JOB_FAILED_TO_MAP, f"the hostfile {path!r}: {error.strerror}") from None


def _nodes_by_name(host: Manager, parent: Proc | None) -> dict[str, HostNode]:
    """Return the nodes that ranks can be placed on, by all of their names."""
    nodes = dict.fromkeys(LOOPBACK, host.node_of(parent))
    for node in host.nodes:
        # A node without slots is about to leave.
        if node.slots != 0:
            nodes.update(dict.fromkeys(node.names, node))
    return nodes


def _absent(host: Manager, request: SpawnRequest, parent: Proc | None) -> tuple[tuple[str, int], ...]:
    """Return the nodes that a request adds, and that have not joined, with their slots."""
    from pypmix.host.rosters.names import merged, read_hostfile, read_hosts

    known = _nodes_by_name(host, parent)
    try:
        named = [each for text in request.added for each in read_hosts(text)]
        named += [each for path in request.added_files for each in read_hostfile(_lines(path), path)]
    except ValueError as error:
        raise refused(Status.ERR_JOB_FAILED_TO_MAP, str(error)) from None
    return tuple([(each.name, each.slots) for each in merged(named) if each.name.rpartition("@")[2] not in known])


def _with_files(host: Manager, apps: tuple[Application, ...]) -> tuple[Application, ...]:
    """Return applications with the paths of the files to carry to the nodes."""
    from pypmix.host.preload import resolved

    try:
        return resolved(apps, host.machine.env, host.machine.wdir)
    except OSError as error:
        status = UNREADABLE.get(type(error), Status.ERR_BAD_PARAM)
        raise refused(status, f"a file cannot be preloaded: {error.strerror}: {error.filename}") from None
    except ValueError as error:
        raise refused(Status.ERR_BAD_PARAM, str(error)) from None


def _failure(error: OSError) -> PMIxError:
    """Return the error of a job that could not be started."""
    where = f"{error.strerror}: {error.filename}" if error.filename else str(error)
    if is_missing(error):
        absent = error.strerror == NO_FOLDER
        return refused(Status.ERR_JOB_WDIR_NOT_FOUND if absent else Status.ERR_JOB_EXE_NOT_FOUND, where)
    if isinstance(error, PermissionError) or error.errno == errno.ENOEXEC:
        return refused(Status.ERR_JOB_APP_NOT_EXECUTABLE, where)
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM):
        return refused(Status.ERR_JOB_INSUFFICIENT_RESOURCES, where)
    return refused(Status.ERR_JOB_FAILED_TO_LAUNCH, where)


def _application_of(host: Manager, proc: Proc | None) -> Application | None:
    """Return the application that a proc runs; None for tools."""
    found = None if proc is None else host.find(proc)
    if found is None:
        return None
    first = 0
    for app in found[0].job.apps:
        first += app.np
        if found[1].proc.rank < first:
            return app
    return None


def _spawn(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, Spawn)
    if not host.may_begin(upcall.requestor):
        raise refused(Status.ERR_JOB_CANCELED, "the host is ending its jobs")
    first, daemons = op, None
    if any(is_set(infos, DEBUGGER_DAEMONS) for infos in (op.directives, *[app.info for app in op.apps])):
        from pypmix.host.debugging import divide

        first, daemons = divide(op)
    request, apps = _read(host, upcall, first)
    if (request.added or request.added_files) and _grow(host, upcall, request):
        return
    job = _begin(host, upcall, request, apps)

    def started() -> None:
        if job.unlaunched is not None:
            upcall.fail(_failure(job.unlaunched))
            return
        if daemons is not None:
            host.answer_with(lambda _host, _upcall: start_daemons(job.nspace), upcall)
            return
        upcall.reply(job.nspace)
        host.part(Notices).job_started(job)

    def start_daemons(nspace: str) -> None:
        assert daemons is not None
        request, apps = _read(host, upcall, daemons)
        request.debugged = request.debugged or Proc(nspace, RANK_WILDCARD)
        beside = _begin(host, upcall, request, apps)

        def all_started() -> None:
            if beside.unlaunched is not None:
                error = _failure(beside.unlaunched)
                job.end(1, f"{job} was ended because its debugger daemons cannot be started: {error.detail}")
                upcall.fail(error)
                return
            upcall.reply(nspace)
            host.part(Notices).job_started(job)

        beside.when_started(all_started)

    job.when_started(started)


def _read(host: Manager, upcall: Upcall, op: Spawn) -> tuple[SpawnRequest, tuple[Application, ...]]:
    """Return the request of a spawn and its applications, whose files exist."""
    machine, application = host.machine, _application_of(host, upcall.requestor)
    request, apps = read(op, machine.env, machine.wdir or os.sep, host.next_folder, application)
    return request, _with_files(host, apps) if any(app.preload for app in apps) else apps


def _begin(host: Manager, upcall: Upcall, request: SpawnRequest, apps: tuple[Application, ...]) -> RunningJob:
    """Start the job of a request, or debugger daemons beside the ranks that they are for."""
    tool = upcall.requestor is not None and not host.has_run(upcall.requestor.nspace)
    terms = terms_of(request, tool)
    if terms.restarts and host.native:
        raise refused(Status.ERR_NOT_SUPPORTED, "ranks are started again with servers of the python engine only")
    if request.daemons:
        from pypmix.host.debugging import place_daemons

        apps, target = place_daemons(host, request, apps)
        # The run does not fail with a debugger.
        terms = terms.replace(target=request.debugged, counted=False, separate=True, stops=())
    else:
        target = _target(host, request, upcall.requestor)
    # They act on ends of ranks.
    host.part(Notices)
    host.part(Orphanage)
    try:
        parent = request.parent or upcall.requestor
        found = None if upcall.requestor is None else host.find(upcall.requestor)
        wdir = "" if found is None else found[0].job.wdir
        job = host.add(apps, terms, parent, target=target, session_wdir=request.session_wdir, wdir=wdir)
    except OverflowError as error:
        raise refused(Status.ERR_JOB_INSUFFICIENT_RESOURCES, str(error)) from None
    except OSError as error:
        raise _failure(error) from None
    if terms.stops or terms.target is not None:
        from pypmix.host.debugging import Debugging

        host.part(Debugging).watch(job)
    return job


def _grow(host: Manager, upcall: Upcall, request: SpawnRequest) -> bool:
    """Add the nodes that a spawn adds and that have not joined; return True if the spawn waits for them."""
    from pypmix.host.elastic import Elastic

    elastic = host.find_part(Elastic)
    absent = () if elastic is None else _absent(host, request, upcall.requestor)
    if elastic is None or not absent:
        return False
    elastic.grow(NodeRequest(absent), lambda _id, error: _go_on(host, upcall, error))
    return True


def _go_on(host: Manager, upcall: Upcall, error: PMIxError | None) -> None:
    """Continue a spawn when the nodes that it adds have joined, or fail it if they cannot."""
    if error is not None:
        upcall.fail(refused(Status.ERR_JOB_ALLOC_FAILED, error.detail))
    else:
        host.answer_with(_spawn, upcall)


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {Spawn: _spawn}
