"""`PMIx_Data_pack` and `PMIx_Data_unpack`: typed values to bytes that any server of a job can read."""

from __future__ import annotations

from pypmix.lazy import renamed
from pypmix.wire.codec import DESCRIBED, Packer, Unpacker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self


def rename_committed(data: bytes, name: Callable[[str], str]) -> bytes:
    """Return a message of committed values between servers of the Python engine, with other names for its nspaces.

    Raises:
        RemoteProtocolError: It is a message of another engine's server.
    """
    from pypmix.wire.modex import rename_modex

    return rename_modex(data, name)


class DataBuffer:
    """`pmix_data_buffer_t`: values of any type, packed one after the other and unpacked in the same order.

    Their types are written along, so that what is unpacked as another type than it was packed as is an error. Values
    of all types come out as they went in, floats with every digit; of process statistics (4.2 and 5.0 only) natives
    keep neither `percent_cpu` nor `peak_vsize`, and neither does this.

    Args:
        data: What `bytes` of another buffer has returned; nothing for an empty buffer.

    Example:
        >>> packed = DataBuffer().pack(DataType.UINT32, 7, 8).pack(DataType.STRING, "blue").bytes()
        >>> buffer = DataBuffer(packed)
        >>> buffer.unpack(DataType.UINT32), buffer.one(DataType.STRING)
        ([7, 8], 'blue')
    """

    __slots__ = ("_packer", "_unpacker")

    def __init__(self, data: bytes = b"") -> None:
        self._packer = Packer(DESCRIBED).pack_raw(bytes(data))
        self._unpacker: Unpacker | None = None

    @renamed("pypmix.types.DataBuffer")
    def pack(self, data_type: int, *values: Any) -> Self:
        """`PMIx_Data_pack`: append values of one type.

        Args:
            data_type: Their `DataType`.
            values: The data, in the form of `Value(type, ...).data`; any number, also none.

        Returns:
            The buffer itself.

        Raises:
            TypeError: A value is of another kind than the type holds.
            OverflowError: A value is out of the type's range.

        Example:
            >>> buffer = DataBuffer().pack(DataType.PROC, Proc("job", 0), Proc("job", 1))
        """
        self._turn_to_pack().pack(data_type, *values)
        return self

    @renamed("pypmix.types.DataBuffer")
    def unpack(self, data_type: int, most: int | None = None) -> list[Any]:
        """`PMIx_Data_unpack`: take the next values, as many as were packed together.

        Args:
            data_type: Their `DataType`.
            most: How many to accept; any number by default.

        Returns:
            Their data.

        Raises:
            RemoteProtocolError: No such values come next.

        Example:
            >>> DataBuffer().pack(DataType.UINT32, 7, 8).unpack(DataType.UINT32)
            [7, 8]
        """
        return self._turn_to_unpack().unpack(data_type, most)

    @renamed("pypmix.types.DataBuffer")
    def one(self, data_type: int) -> Any:
        """Take the next value, which was packed alone.

        Args:
            data_type: Its `DataType`.

        Returns:
            Its data.

        Raises:
            RemoteProtocolError: No such value comes next.

        Example:
            >>> DataBuffer().pack(DataType.STRING, "blue").one(DataType.STRING)
            'blue'
        """
        return self._turn_to_unpack().one(data_type)

    def more(self) -> bool:
        """Return True if anything is left to unpack.

        Example:
            >>> buffer = DataBuffer().pack(DataType.STRING, "blue")
            >>> while buffer.more():
            ...     print(buffer.one(DataType.STRING))
            blue
        """
        return self._turn_to_unpack().more()

    def bytes(self) -> bytes:
        """`PMIx_Data_unload`: return the packed bytes that have not been unpacked.

        Example:
            >>> me.put("acme.packed", DataBuffer().pack(DataType.STRING, "blue").bytes())
        """
        return self._turn_to_pack().bytes()

    def _turn_to_pack(self) -> Packer:
        if self._unpacker is not None:
            self._packer = Packer(DESCRIBED).pack_raw(self._unpacker.rest())
            self._unpacker = None
        return self._packer

    def _turn_to_unpack(self) -> Unpacker:
        if self._unpacker is None:
            self._unpacker = Unpacker(self._packer.bytes(), DESCRIBED)
        return self._unpacker
