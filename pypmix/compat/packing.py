"""Values packed into buffers, which are dicts: `{'bytes': ..., 'bytes_used': ..., 'bytes_unpacked': ...}`."""

from __future__ import annotations

import struct
import zlib

from pypmix.compat.running import attempt
from pypmix.compat.scalars import from_bytes, refused, to_bytes, to_int
from pypmix.compat.values import from_info, from_value, to_info, to_value
from pypmix.data import DataBuffer
from pypmix.standard import codes, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.values import INFLATE_LIMIT, inflate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Buffer = dict[str, Any]


def _kind(data_type: int | None, value: object = None) -> int:
    if data_type is None:
        return codes.INFO if isinstance(value, dict) and "key" in value else codes.VALUE
    if data_type not in (codes.VALUE, codes.INFO):
        raise refused("what is packed is a value or an info", statuses.ERR_NOT_SUPPORTED)
    return data_type


def _typed(kind: int, value: object) -> Any:
    return to_info(value) if kind == codes.INFO else to_value(value)


def _contents(buffer: object) -> tuple[bytes, int]:
    """Return the bytes of a buffer, and the number of unpacked bytes."""
    if buffer is None:
        return b"", 0
    if not isinstance(buffer, dict):
        raise refused(f"a buffer is a dict, not {buffer!r:.80}")
    data = to_bytes(buffer.get("bytes"))
    done = buffer.get("bytes_unpacked")
    taken = 0 if done is None else to_int(codes.SIZE, done)
    if taken > len(data):
        raise refused(f"{taken} bytes of {len(data)} cannot have been unpacked")
    return data, taken


def _fill(buffer: object, data: bytes, unpacked: int) -> Buffer:
    made: Buffer = buffer if isinstance(buffer, dict) else {}
    made.update({"bytes": data, "bytes_used": len(data), "bytes_unpacked": unpacked})
    return made


def _pack(buffer: object, value: object, data_type: int | None) -> Buffer:
    kind = _kind(data_type, value)
    data, taken = _contents(buffer)
    return _fill(buffer, data + DataBuffer().pack(kind, _typed(kind, value)).bytes(), taken)


def _unpack(buffer: object, data_type: int | None) -> Any:
    kind = _kind(data_type)
    if buffer is None:
        raise refused("there is no buffer")
    data, taken = _contents(buffer)
    rest = DataBuffer(data[taken:])
    if not rest.more():
        raise refused("nothing is left to unpack", statuses.ERR_UNPACK_READ_PAST_END_OF_BUFFER)
    found = rest.one(kind)
    _fill(buffer, data, len(data) - len(rest.bytes()))
    return from_info(found) if kind == codes.INFO else from_value(found)


def _copy(value: object, data_type: int | None) -> Any:
    kind = _kind(data_type, value)
    return from_info(to_info(value)) if kind == codes.INFO else from_value(to_value(value))


def _append(buffer: object, source: object) -> Buffer:
    data, taken = _contents(buffer)
    more, done = _contents(source)
    return _fill(buffer, data + more[done:], taken)


def _unload(buffer: object) -> dict[str, Any]:
    if buffer is None:
        raise refused("there is no buffer")
    data, taken = _contents(buffer)
    _fill(buffer, b"", 0)
    return from_bytes(data[taken:])


def _load(buffer: object, payload: object) -> Buffer:
    _contents(buffer)
    return _fill(buffer, to_bytes(payload), 0)


def _read_data(value: object) -> bytes:
    data = to_bytes(value)
    if not data:
        raise refused("there is nothing to compress or decompress")
    return data


def _compress(value: object) -> bytes:
    data = _read_data(value)
    if len(data) > INFLATE_LIMIT:
        raise refused(f"{len(data)} bytes are more than can be decompressed again", statuses.ERR_NOT_AVAILABLE)
    made = struct.pack("=I", len(data)) + zlib.compress(data)
    if len(made) >= len(data):
        raise refused("compressing it would make it no smaller", statuses.ERR_NOT_AVAILABLE)
    return made


def _decompress(value: object) -> bytes:
    try:
        return inflate(_read_data(value))
    except ValueError as error:
        raise PMIxError(str(error), status=statuses.ERR_NOT_AVAILABLE, operation="data_decompress") from error


class Packing:
    """The methods that pack and unpack, as pypmix's `DataBuffer` does; `target` makes no difference to it."""

    def data_pack(
        self, pybuf: object, pysrc: object, data_type: int | None = None, target: object = None
    ) -> tuple[int, Any]:
        """`PMIx_Data_pack`: append a value or an info to a buffer, None for a new one; returns the buffer."""
        status, made = attempt(_pack, pybuf, pysrc, data_type)
        return status, pybuf if made is None else made

    def data_unpack(
        self, pybuf: object, data_type: int | None = None, target: object = None
    ) -> tuple[int, dict[str, Any] | None]:
        """`PMIx_Data_unpack`: take the next value or info."""
        return attempt(_unpack, pybuf, data_type)

    def data_copy(self, pysrc: object, data_type: int | None = None) -> tuple[int, dict[str, Any] | None]:
        """`PMIx_Data_copy`: return a copy of a value or an info."""
        return attempt(_copy, pysrc, data_type)

    def data_copy_payload(self, pydest: object, pysrc: object) -> tuple[int, Any]:
        """`PMIx_Data_copy_payload`: append the remaining bytes of a buffer to another buffer."""
        status, made = attempt(_append, pydest, pysrc)
        return status, pydest if made is None else made

    def data_unload(self, pybuf: object) -> tuple[int, dict[str, Any] | None]:
        """`PMIx_Data_unload`: take the remaining bytes of a buffer, as a byte object."""
        return attempt(_unload, pybuf)

    def data_load(self, pybuf: object, payload: object) -> tuple[int, Any]:
        """`PMIx_Data_load`: fill a buffer with the contents of a byte object."""
        status, made = attempt(_load, pybuf, payload)
        return status, pybuf if made is None else made

    def data_embed(self, pybuf: object, payload: object) -> tuple[int, Any]:
        """`PMIx_Data_embed`: the same as `data_load`."""
        return self.data_load(pybuf, payload)

    def data_compress(self, pybytes: object) -> tuple[int, bytes | None]:
        """`PMIx_Data_compress`: compress bytes; the status is `PMIX_ERR_NOT_AVAILABLE` if the result is not smaller."""
        return attempt(_compress, pybytes)

    def data_decompress(self, pybytes: object) -> tuple[int, bytes | None]:
        """`PMIx_Data_decompress`: decompress the bytes that `data_compress` returned."""
        return attempt(_decompress, pybytes)
