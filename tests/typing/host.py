"""Checked by mypy, never run: what the types of hosts say to those who write one."""

from __future__ import annotations

import asyncio
from typing import Any, assert_type

from pypmix import Info, Proc, ProcSet, Server, Status, aio, attrs
from pypmix.host import (
    LATER,
    BlockingProcesses,
    Host,
    JobLayout,
    Processes,
    Request,
    requests,
)
from pypmix.standard import ops
from pypmix.types import Pdata


class Asynchronous(Host):
    async def fence(self, req: requests.FenceRequest) -> bytes:
        assert_type(req.data, bytes)
        assert_type(req.collect, bool)
        assert_type(req.timeout, float | None)
        blobs = await self.exchange(req.signature, req.data, timeout=req.timeout)
        return b"".join(blobs)

    async def group(self, req: requests.GroupRequest) -> Any:
        assert_type(req.procs | req.added, ProcSet)
        context_id = self.next_context_id() if req.wants_context_id else None
        return req.reply(members=req.procs | req.added, context_id=context_id)

    async def spawn(self, req: requests.SpawnRequest) -> str:
        job = await self.launch(req.apps, near=req.requestor)
        return job.nspace

    async def client_aborted(self, req: requests.AbortRequest) -> None:
        await self.kill(req.targets, status=req.status)

    async def connect(self, req: requests.ConnectRequest) -> Any:
        return LATER

    async def query(self, req: requests.QueryRequest) -> dict[str, object]:
        return dict.fromkeys(req.keys, 1)


class Blocking(Host):
    def fence(self, req: requests.FenceRequest) -> bytes:
        return b"".join(self.run(self.exchange(req.signature, req.data)))

    def lookup(self, req: requests.LookupRequest) -> list[Pdata]:
        assert_type(req.keys, tuple[str, ...])
        return []

    def disconnect(self, req: requests.DisconnectRequest) -> Status:
        return Status.ERR_NOT_FOUND

    def job_control(self, req: requests.JobControlRequest) -> list[Info]:
        return [attrs.TIMEOUT(1)]

    def publish(self, req: requests.PublishRequest) -> int:  # type: ignore[override]
        return 5


class Everything(Host):
    async def handle(self, req: Request[Any]) -> Any:
        match req.op:
            case ops.FenceUpcall(procs=procs):
                assert_type(procs, tuple[Proc, ...])
                return b""
        return await super().handle(req)


async def main() -> None:
    async with Asynchronous(engine="native") as rm:
        assert_type(rm, Asynchronous)
        job = rm.job("demo", np=4, nodes={"n0": [0, 1], "n1": [2, 3]})
        assert_type(job, JobLayout)
        async with rm.start(job, ["./client"], forward_output=True) as procs:
            assert_type(procs, Processes)
            assert_type(await procs.wait(), dict[int, int])


def decorated() -> None:
    rm = Host()

    @rm.on("fence")
    async def fence(req: requests.FenceRequest) -> bytes:
        return req.data

    @rm.on("group")
    def group(req: requests.GroupRequest) -> None:
        return None

    assert_type(asyncio.run(fence(fence)), bytes)  # type: ignore[arg-type]
    with rm, rm.start(rm.job("demo", 2)) as procs:
        assert_type(procs, BlockingProcesses)
        assert_type(procs.wait(5), dict[int, int])


def typos(req: requests.FenceRequest) -> None:
    req.dtaa  # type: ignore[attr-defined]  # noqa: B018


def server(proc: Proc) -> None:
    with Server() as opened:
        assert_type(opened.dmodex_request(proc), bytes)
        assert_type(opened.setup_application("job"), tuple[Info, ...])
        assert_type(Server.generate_regex(["n0"]), str)


async def async_server(proc: Proc) -> None:
    async with aio.Server() as opened:
        assert_type(await opened.dmodex_request(proc), bytes)
        assert_type(await opened.client_env(proc), dict[str, str])
        assert_type(aio.Server.parse_ppn("raw:0"), list[list[int]])
