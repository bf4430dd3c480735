"""Which server a tool is to be connected to: its directives and environment, and the places where servers are found."""

from __future__ import annotations

import os

from pypmix.engine.common import URI_VARIABLES
from pypmix.engine.python.client import ENGINE
from pypmix.engine.python.rendezvous import (
    Contact,
    believed,
    host_names,
    parse_uri,
    read,
    search,
    temporary_folder,
)
from pypmix.engine.python.session import local_socket
from pypmix.standard import keys
from pypmix.standard.errors import Unreachable
from pypmix.standard.record import Record
from pypmix.standard.types import RANK_VALID, Info, Proc, decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SYSTEM_FILES = {
    keys.CONNECT_TO_SYSTEM: keys.SYSTEM_FILE,
    keys.CONNECT_SYSTEM_FIRST: keys.SYSTEM_FILE,
    keys.CONNECT_TO_SCHEDULER: keys.SCHEDULER_FILE,
    keys.CONNECT_TO_SYS_CONTROLLER: keys.CONTROLLER_FILE,
}
"""The files of the servers that a node has one of, by the attribute that asks for them."""

LAUNCHER_URI = "PMIX_LAUNCHER_RNDZ_URI"
LAUNCHER_FILES = ("PMIX_LAUNCHER_RNDZ_FILE", "PMIX_LAUNCHER_RENDEZVOUS_FILE")
"""The variables that name the launcher that has started a tool: the Standard's name, and OpenPMIx's."""

_TEXTS = {
    keys.TOOL_ATTACHMENT_FILE: "file",
    keys.SERVER_URI: "uri",
    keys.TCP_URI: "uri",
    keys.SERVER_NSPACE: "nspace",
    keys.SERVER_HOSTNAME: "host",
    keys.SERVER_TMPDIR: "tmpdir",
    keys.SYSTEM_TMPDIR: "system_tmpdir",
    keys.TOOL_NSPACE: "tool_nspace",
}
_NUMBERS = {
    keys.SERVER_PIDINFO: "pid",
    keys.CONNECT_MAX_RETRIES: "retries",
    keys.CONNECT_RETRY_DELAY: "delay",
    keys.TOOL_RANK: "tool_rank",
    keys.TIMEOUT: "timeout",
}
_FLAGS = {
    keys.TOOL_DO_NOT_CONNECT: "apart",
    keys.TOOL_CONNECT_OPTIONAL: "optional",
    keys.LAUNCHER: "launcher",
    keys.PRIMARY_SERVER: "primary",
}


class Aim(Record):
    """The directives of a tool, in the names of this module.

    Attributes:
        file: A rendezvous file to read.
        uri: A URI, or `file:` and the path of a file that holds it.
        pid: The server's process id.
        nspace: The server's nspace.
        systems: The beginnings of the names of system-level files, in the order to try them.
        system_only: Whether to try nothing after these.
        host: The node of the server; this node by default.
        tmpdir: The folder that a session's files are in.
        system_tmpdir: The folder that the files of system servers are in.
        retries: How often to look again for a server that is not there.
        delay: Seconds between two looks.
        timeout: Seconds that a server may take for the handshake.
        tool_nspace: The nspace that the tool has chosen.
        tool_rank: Its rank.
        apart: Connect to no server.
        optional: Continue without a server if none is found.
        launcher: The tool launches jobs.
        primary: The server becomes the primary one.
        others: The directives for the server.
    """

    file: str = ""
    uri: str = ""
    pid: int = 0
    nspace: str = ""
    systems: tuple[str, ...] = ()
    system_only: bool = False
    host: str = ""
    tmpdir: str = ""
    system_tmpdir: str = ""
    retries: int = 0
    delay: int = 1
    timeout: int = 0
    tool_nspace: str = ""
    tool_rank: int = 0
    apart: bool = False
    optional: bool = False
    launcher: bool = False
    primary: bool = False
    others: tuple[Info, ...] = ()

    @property
    def explicit(self) -> bool:
        """Whether the directives name a server."""
        return bool(self.file or self.uri or self.pid or self.nspace or self.system_only)

    def __str__(self) -> str:
        if self.file:
            return f"the rendezvous file {self.file}"
        if self.uri:
            return f"the URI {self.uri}"
        if self.pid:
            return f"a server of pid {self.pid}"
        if self.nspace:
            return f"a server of nspace {self.nspace!r}"
        return "a system server" if self.system_only else "a server of this user"


def aim(directives: tuple[Info, ...]) -> Aim:
    """Read the directives of `PMIx_tool_init` or `PMIx_tool_attach_to_server`.

    Raises:
        ValueError: They contradict each other, or a value is not valid.
        TypeError: A value has the wrong type.
    """
    found: dict[str, Any] = {}
    systems: list[str] = []
    only = False
    others: list[Info] = []
    ranked = False
    for info in directives:
        key, data = info.key, info.value.data
        if key in _TEXTS:
            if not isinstance(data, str) or not data:
                raise TypeError(f"{key} is a string that is not empty, not {data!r}")
            name = _TEXTS[key]
            if found.get(name, data) != data:
                raise ValueError(f"it is said twice, and differently, what {name} is: {found[name]!r} and {data!r}")
            found[name] = data
        elif key in _NUMBERS:
            if not isinstance(data, int) or isinstance(data, bool) or data < 0:
                raise TypeError(f"{key} is a number of at least 0, not {data!r}")
            found[_NUMBERS[key]] = data
            ranked |= key == keys.TOOL_RANK
        elif key in _FLAGS:
            found[_FLAGS[key]] = data is not False
            if key == keys.LAUNCHER:
                others.append(info)
        elif key in SYSTEM_FILES:
            if data is not False:
                systems.append(SYSTEM_FILES[key])
                only |= key != keys.CONNECT_SYSTEM_FIRST
        else:
            others.append(info)
    if ranked and "tool_nspace" not in found:
        raise ValueError("a tool that brings a rank brings a nspace too: attrs.TOOL_NSPACE")
    if found.get("tool_rank", 0) > RANK_VALID:
        raise ValueError(f"a tool cannot have the rank {found['tool_rank']}")
    return Aim(systems=tuple(dict.fromkeys(systems)), system_only=only, others=tuple(others), **found)


def candidates(target: Aim, env: Mapping[str, str]) -> list[Contact]:
    """Return the servers that the directives allow, best first; empty if none is found.

    Raises:
        Unreachable: A file or URI that names the server cannot be read or is not valid.
    """
    if target.file:
        return [_read(target.file)]
    if target.uri.startswith("file:"):
        return [_read(target.uri.removeprefix("file:"))]
    if target.uri:
        return [_complete_contact(_parsed(target.uri), target, env)]
    names = host_names(target.host)
    if target.pid:
        return search(folders(target, env), [f"pmix.{host}.tool.{target.pid}" for host in names])
    if target.nspace:
        return search(folders(target, env), [f"pmix.{host}.tool.{target.nspace}" for host in names])
    contacts: list[Contact] = []
    for system in target.systems:
        for host in names:
            contacts += _system(os.path.join(_system_folder(target, env), f"{system}.{host}"))
    if target.system_only:
        return contacts
    return (
        contacts
        + _environment_contacts(target, env)
        + search(folders(target, env), [f"pmix.{host}.tool" for host in names], True)
    )


def folders(target: Aim, env: Mapping[str, str]) -> list[str]:
    """Return where to look for rendezvous files; the folders below are looked at as well."""
    if target.tmpdir:
        return [target.tmpdir]
    return [folder for folder in (env.get("PMIX_SERVER_TMPDIR"), _system_folder(target, env)) if folder]


def launched_by(env: Mapping[str, str]) -> Contact | None:
    """Return the server that has launched this process, None if no server has."""
    if "PMIX_NAMESPACE" not in env:
        return None
    uri = next((env[name] for name in URI_VARIABLES if env.get(name)), None)
    if uri is None:
        return None
    ours = env.get("PYPMIX_SERVER", "").partition(" ")
    contact = _parsed(uri)
    return contact.replace(
        release=env.get("PMIX_VERSION", ""),
        pypmix=ours[2] if ours[0] == contact.nspace else "",
        local=local_socket(env, contact.uri),
    )


def identity(env: Mapping[str, str]) -> Proc:
    """Return the name under which a server has launched this process."""
    text = env.get("PMIX_RANK", "")
    rank = decimal(text)
    try:
        if rank is None:
            raise ValueError(f"PMIX_RANK={text!r:.40} is not a valid rank")
        return Proc(env["PMIX_NAMESPACE"], rank)
    except ValueError as error:
        raise Unreachable(
            f"the environment does not tell who this process is: {error}", operation="open", engine=ENGINE
        ) from None


def _environment_contacts(target: Aim, env: Mapping[str, str]) -> list[Contact]:
    """Return the servers that the environment names."""
    contacts: list[Contact] = []
    if env.get(LAUNCHER_URI):
        contacts.append(_complete_contact(_parsed(env[LAUNCHER_URI]), target, env))
    for name in LAUNCHER_FILES:
        if env.get(name) and os.path.exists(env[name]):
            contacts.append(_read(env[name]))
    own = launched_by(env)
    return [*contacts, own] if own is not None else contacts


def _system_folder(target: Aim, env: Mapping[str, str]) -> str:
    return target.system_tmpdir or env.get("PMIX_SYSTEM_TMPDIR") or temporary_folder(env)


def _system(path: str) -> list[Contact]:
    try:
        contact = read(path, believed)
    except OSError:
        return []
    return [contact] if contact is not None else []


def _read(path: str) -> Contact:
    try:
        contact = read(path)
    except OSError as error:
        raise Unreachable(
            f"the rendezvous file {path} cannot be read: {error.strerror}",
            operation="open",
            engine=ENGINE,
            hint="does the server run, and is it of this user?",
        ) from None
    if contact is None:
        raise Unreachable(f"{path} is not a rendezvous file of a server", operation="open", engine=ENGINE)
    return contact


def _parsed(uri: str) -> Contact:
    try:
        return parse_uri(uri)
    except ValueError as error:
        raise Unreachable(str(error), operation="open", engine=ENGINE) from None


def _complete_contact(contact: Contact, target: Aim, env: Mapping[str, str]) -> Contact:
    """Return a contact with the fields that a rendezvous file of the same URI adds, above all the release."""
    own = launched_by(env)
    if own is not None and own.uri == contact.uri:
        return own
    names = [f"pmix.{host}.tool" for host in host_names(target.host)]
    for other in search(folders(target, env), names, True):
        if other.uri == contact.uri:
            return other
    return contact
