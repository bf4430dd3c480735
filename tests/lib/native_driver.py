"""A process that packs and unpacks with a native library: pickled requests on stdin, pickled answers on stdout."""

from __future__ import annotations

import ctypes as c
import os
import pickle
import sys
from typing import Any

from lib import abi
from pypmix.standard import codes


class Driver:
    def __init__(self, path: str) -> None:
        self.library = c.CDLL(path)
        self.hwloc = self.library
        self.hwloc.hwloc_bitmap_alloc.restype = c.c_void_p
        self.library.PMIx_Get_version.restype = c.c_char_p
        self.library.PMIx_Error_string.restype = c.c_char_p
        module = c.create_string_buffer(512)
        status = self.library.PMIx_server_init(module, None, c.c_size_t(0))
        if status:
            raise RuntimeError(f"PMIx_server_init returned {status}")

    def version(self) -> str:
        return str(self.library.PMIx_Get_version().decode())

    def error(self, status: int) -> str:
        return f"{status} {self.library.PMIx_Error_string(status).decode()}"

    def pack(self, type: int, items: list[Any]) -> bytes | str:
        memory = abi.Memory(self.hwloc)
        return self._pack(type, memory.block(type, items), len(items))

    def _pack(self, type: int, address: Any, count: int) -> bytes | str:
        buffer = abi.CDataBuffer()
        status = self.library.PMIx_Data_pack(
            None, c.byref(buffer), c.c_void_p(address), c.c_int32(count), c.c_uint16(type)
        )
        if status:
            return self.error(status)
        return c.string_at(buffer.base, buffer.used)

    def unpack(self, type: int, data: bytes, count: int) -> tuple[Any, ...] | str:
        buffer = abi.CDataBuffer()
        held = c.create_string_buffer(data, len(data) + 64)
        buffer.base = buffer.unpack = c.addressof(held)
        buffer.pack = buffer.base + len(data)
        buffer.used = buffer.allocated = len(data)
        kind = abi.SCALARS.get(type) or abi.STRUCTS[type]
        array = (kind * count)()
        number = c.c_int32(count)
        status = self.library.PMIx_Data_unpack(None, c.byref(buffer), c.byref(array), c.byref(number), c.c_uint16(type))
        if status:
            return self.error(status)
        assert buffer.unpack - buffer.base == len(data), "the library left bytes behind"
        return abi.Reader(self.hwloc).block(type, c.addressof(array), number.value)

    def topology(self) -> bytes | str:
        """Pack this machine's topology."""
        topology = c.c_void_p()
        self.hwloc.hwloc_topology_init(c.byref(topology))
        self.hwloc.hwloc_topology_load(topology)
        source = c.create_string_buffer(b"hwloc")
        pair = abi.CPair(c.addressof(source), topology.value)
        return self._pack(codes.TOPO, c.addressof(pair), 1)


def main() -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    driver = Driver(sys.argv[1])
    pickle.dump(driver.version(), answers)
    answers.flush()
    while True:
        try:
            name, *arguments = pickle.load(requests)
        except EOFError:
            break
        pickle.dump(getattr(driver, name)(*arguments), answers)
        answers.flush()
    driver.library.PMIx_server_finalize()
    os._exit(0)


main()
