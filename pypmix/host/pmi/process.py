"""A process that speaks PMI: each of its commands as an operation of a PMIx client that is its rank."""

from __future__ import annotations

import json

import pypmix
from pypmix import aio
from pypmix.host.pmi.registration import PREPUT
from pypmix.host.pmi.wire import Command, Decoder, encode
from pypmix.standard import attrs, statuses
from pypmix.standard.errors import NotFound, PMIxError, RemoteProtocolError
from pypmix.standard.logtext import get_logger
from pypmix.standard.types import RANK_UNDEF, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from _weakref import ref
    from collections.abc import Awaitable, Callable, Mapping

    from pypmix.host.pmi.registration import Registration
    from pypmix.standard.types import App

    Answer = Mapping[str, object]

_log = get_logger("pypmix.host")

MAX_NAME, MAX_KEY, MAX_VALUE = 256, 256, 1024
MAPPING = "PMI_process_mapping"
CHUNK = 1 << 16
OK: Answer = {"rc": 0}
NOW = {attrs.IMMEDIATE: True}
"""A get is answered with the values that the server has: a barrier has brought it all of them."""


class RankClient(aio.Client):
    """The client of a rank that speaks PMI."""

    def drop(self) -> None:
        """Close the connection without `PMIx_Finalize`, as the connection of a process that exits."""
        self._port.session.close()


class PmiProcess:
    """The connection of a process.

    Args:
        registered: The registrations by their numbers.
        reader: What it sends.
        writer: Takes the answers.
    """

    def __init__(
        self,
        registered: Mapping[int, ref[Registration]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._registered = registered
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder()
        self._rank: Registration
        self._client: RankClient
        self._parent: dict[str, str] = {}
        self._ended = False

    async def serve(self) -> bool:
        """Answer the commands of the process until it finalizes or its connection ends.

        Returns:
            Whether it has named its rank.
        """
        opened = False
        try:
            while data := await self._reader.read(CHUNK):
                for command in self._decoder.feed(data):
                    if not opened:
                        opened = await self._open(command)
                    else:
                        await self._answer(command)
                    if self._ended:
                        return True
        except PMIxError as error:
            _log.warning("the connection of a process that speaks PMI is closed: %s", error)
        except ConnectionError:
            pass
        finally:
            if opened and not self._ended:
                self._client.drop()
        return opened

    async def _open(self, command: Command) -> bool:
        """Let the process be the rank that it names."""
        if command.name != "initack":
            raise RemoteProtocolError(f"a PMI process begins with initack, not with {command.name!r:.40}")
        known = self._registered.get(command.number("pmiid"))
        rank = None if known is None else known()
        if rank is None:
            raise RemoteProtocolError(f"no rank has the PMI id {command.text('pmiid'):.40}")
        self._rank = rank
        self._parent = json.loads(rank.env.get(PREPUT, "{}"))
        self._client = RankClient(engine="python", env=rank.env)
        await self._client.open()
        place = {"size": rank.size, "rank": rank.proc.rank, "debug": 0}
        self._writer.write(encode("initack", OK) + b"".join([encode("set", {key: place[key]}) for key in place]))
        return True

    async def _answer(self, command: Command) -> None:
        """Carry a command out and send its answer."""
        operation = OPERATIONS.get(command.name)
        if operation is None:
            raise RemoteProtocolError(f"the PMI command {command.name!r:.40} is unknown")
        name, carry_out = operation
        try:
            fields = await carry_out(self, command)
        except (PMIxError, TypeError, ValueError) as error:
            # A value of PMI-1 has no spaces.
            fields = {"rc": -1, "msg": str(error).partition(" [")[0].replace(" ", "_")[:200]}
        self._writer.write(encode(name, fields))
        await self._writer.drain()

    async def initialize(self, command: Command) -> Answer:
        return {"pmi_version": 1, "pmi_subversion": 1, "rc": 0 if command.number("pmi_version") == 1 else -1}

    async def answer_limits(self, command: Command) -> Answer:
        return {"kvsname_max": MAX_NAME, "keylen_max": MAX_KEY, "vallen_max": MAX_VALUE, "rc": 0}

    async def answer_app_number(self, command: Command) -> Answer:
        return {"appnum": await self._client.get(attrs.APPNUM), "rc": 0}

    async def answer_universe_size(self, command: Command) -> Answer:
        return {"size": await self._client.get(attrs.UNIV_SIZE), "rc": 0}

    async def answer_space(self, command: Command) -> Answer:
        return {"kvsname": self._rank.proc.nspace, "rc": 0}

    async def put(self, command: Command) -> Answer:
        await self._client.put(command.text("key"), command.text("value"))
        return OK

    async def get(self, command: Command) -> Answer:
        """Return a value of the key-value space: of the parent, of the host, or put by some rank before a barrier."""
        value = await self._find(command.text("key"))
        if value is None:
            return {"rc": -1, "msg": "key_not_found", "value": "unknown"}
        return {"rc": 0, "msg": "success", "value": value}

    async def _find(self, key: str) -> str | None:
        if key in self._parent:
            return self._parent[key]
        if key == MAPPING:
            return await self._mapping()
        try:
            return str(await self._client.get(key, Proc(self._rank.proc.nspace, RANK_UNDEF), info=NOW))
        except NotFound:
            return None

    async def _mapping(self) -> str | None:
        """Return which ranks are on which node, in MPICH's form: (first node, number of nodes, ranks on each)."""
        nspace = self._rank.proc.nspace
        nodes = [await self._client.get(attrs.NODEID, Proc(nspace, rank)) for rank in range(self._rank.size)]
        blocks: list[list[int]] = []
        for rank, node in enumerate(nodes):
            if rank and node == nodes[rank - 1]:
                blocks[-1][2] += 1
            else:
                blocks.append([node, 1, 1])
        merged: list[list[int]] = []
        for node, _, ranks in blocks:
            if merged and merged[-1][2] == ranks and merged[-1][0] + merged[-1][1] == node:
                merged[-1][1] += 1
            else:
                merged.append([node, 1, ranks])
        text = ",".join(["(vector", *[f"({first},{count},{ranks})" for first, count, ranks in merged]]) + ")"
        return text if len(text) < MAX_VALUE else None

    async def wait_for_all(self, command: Command) -> Answer:
        await self._client.fence(collect=True)
        return OK

    async def publish(self, command: Command) -> Answer:
        await self._client.publish({command.text("service"): command.text("port")})
        return {"info": "ok", "rc": 0}

    async def look_up(self, command: Command) -> Answer:
        return {"info": "ok", "port": await self._client.lookup(command.text("service")), "rc": 0}

    async def unpublish(self, command: Command) -> Answer:
        await self._client.unpublish(command.text("service"))
        return {"info": "ok", "rc": 0}

    async def spawn(self, command: Command) -> Answer:
        preput = {
            command.text(f"preput_key_{number}"): command.text(f"preput_val_{number}")
            for number in range(command.number("preput_num", 0))
        }
        apps = [_app(part, {PREPUT: json.dumps(preput)}) for part in command.parts]
        await self._client.spawn(apps)
        return {"rc": 0, "errcodes": ",".join(["0"] * sum([app.maxprocs for app in apps]))}

    async def finalize(self, command: Command) -> Answer:
        await self._client.close()
        self._ended = True
        return OK

    async def abort(self, command: Command) -> Answer:
        code = command.number("exitcode", 1)
        message = command.fields.get("error_msg", command.fields.get("message", "PMI_Abort")).replace("_", " ")
        await self._client.abort(code or statuses.ERROR, message)
        return OK


def _app(fields: dict[str, str], env: dict[str, str]) -> App:
    """Return the application that the part of a spawn describes."""
    part = Command("spawn", fields)
    words = [part.text("execname"), *[part.text(f"arg{number + 1}") for number in range(part.number("argcnt", 0))]]
    infos = {
        part.text(f"info_key_{number}"): part.text(f"info_val_{number}") for number in range(part.number("info_num", 0))
    }
    hosts = {attrs.HOST: infos["host"]} if "host" in infos else None
    return pypmix.app(words, n=part.number("nprocs", 1), env=env, cwd=infos.get("wdir"), info=hosts)


OPERATIONS: dict[str, tuple[str, Callable[[PmiProcess, Command], Awaitable[Answer]]]] = {
    "init": ("response_to_init", PmiProcess.initialize),
    "get_maxes": ("maxes", PmiProcess.answer_limits),
    "get_appnum": ("appnum", PmiProcess.answer_app_number),
    "get_universe_size": ("universe_size", PmiProcess.answer_universe_size),
    "get_my_kvsname": ("my_kvsname", PmiProcess.answer_space),
    "put": ("put_result", PmiProcess.put),
    "get": ("get_result", PmiProcess.get),
    "barrier_in": ("barrier_out", PmiProcess.wait_for_all),
    "publish_name": ("publish_result", PmiProcess.publish),
    "lookup_name": ("lookup_result", PmiProcess.look_up),
    "unpublish_name": ("unpublish_result", PmiProcess.unpublish),
    "spawn": ("spawn_result", PmiProcess.spawn),
    "finalize": ("finalize_ack", PmiProcess.finalize),
    "abort": ("abort_result", PmiProcess.abort),
}
