"""The structured types of the Standard, as immutable Python values.

A new data type has a row in `native/vocabulary/constants.tsv`, from which `codes.py` gets its number, and then one
place for each question:

- its Python form, if it is a structure: a record here or in `structures.py`, entered in `RECORDS`; if it is a number,
  its range in `RANGES`
- its bytes: `wire/encode.py`, by which `wire/decode.py` decodes it, too: an entry of `STRUCTURES` for a plain
  structure, or of a tuple such as `UNSIGNED` for a number
- which releases decode it: `_VALUES` and `_ELEMENTS` in `wire/readers.py`
- its C form, for the native engine: the structure in `native/cdef/pmix.h`; its number in `native/shim/types.h`, its
  size and its end in `native/shim/values.c`; its conversion in `engine/native/marshal.py`

`tests/lib/strategies.py` makes values of all types, with which the tests try both engines.
"""

from __future__ import annotations

from pypmix.lazy import load
from pypmix.standard import codes
from pypmix.standard.record import Record, tuple_item

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, Final
else:
    Any = object

MAX_NSLEN = 255
MAX_KEYLEN = 511

RANK_UNDEF = 0xFFFFFFFF
RANK_WILDCARD = 0xFFFFFFFE
RANK_LOCAL_NODE = 0xFFFFFFFD
RANK_INVALID = 0xFFFFFFFC
RANK_LOCAL_PEERS = 0xFFFFFFFB
RANK_VALID = 0xFFFFFFFF - 50

MAX_NESTING = 48
"""The most lists and dicts in each other. Decoders take 64 levels, of which an operation needs some for itself."""

REQUIRED = 1
"""`InfoFlags.REQUIRED`, cheap to import."""

_RANK_NAMES = {
    RANK_UNDEF: "UNDEF",
    RANK_WILDCARD: "*",
    RANK_LOCAL_NODE: "LOCAL_NODE",
    RANK_INVALID: "INVALID",
    RANK_LOCAL_PEERS: "LOCAL_PEERS",
}


def name_call() -> str:
    """Return the method of this package that the program has called, as the start of an error text: `get: `.

    It is looked up when an error is raised: calls without errors pay nothing for it. The text is empty if the program
    has called a constructor.
    """
    import sys

    frame, found = sys._getframe(1), ""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("pypmix."):
        name = frame.f_code.co_name
        # The functions of this package that calls and helpers share have no operation of their own.
        if name[0] not in "_<" and not frame.f_globals["__name__"].startswith(_SHARED):
            found = f"{name}: "
        frame = frame.f_back  # type: ignore[assignment]
    return found


_SHARED = ("pypmix.standard.", "pypmix.arguments", "pypmix.apps", "pypmix.lazy", "pypmix.oldnames")


def read_integer(data: object) -> int | None:
    """Return an integer as an int: an int, or another object with `__index__`, such as NumPy's; None for all else.

    Neither a bool nor an array is an integer.
    """
    if data.__class__ is int:
        return data
    if isinstance(data, bool) or not hasattr(data, "__index__") or _is_array(data):
        return None
    try:
        return int(data.__index__())
    except TypeError:
        # An array without dimensions may hold a float.
        return None


def _is_array(data: object) -> bool:
    """Return True if an object has a length; arrays of NumPy and Torch without dimensions have none."""
    return hasattr(data, "__len__") and getattr(data, "shape", None) != ()


def check_integer(data: object, what: str) -> int:
    """Return an argument that is an integer as an int; see `read_integer`.

    Args:
        data: The argument.
        what: Its meaning, such as `a rank`.

    Raises:
        TypeError: It is not an integer.
    """
    found = read_integer(data)
    if found is None:
        raise TypeError(f"{name_call()}{what} is an int, not {type(data).__name__}")
    return found


def check_number(data: object, what: str) -> float:
    """Return an argument that is a number as an int or a float: also other objects with `__index__` or `__float__`.

    Args:
        data: The argument.
        what: Its meaning, such as `a timeout is a number of seconds`.

    Raises:
        TypeError: It is not a number.
    """
    if data.__class__ is float:
        return data
    found = read_integer(data)
    if found is not None:
        return found
    plain: Any = _number(data)
    if isinstance(plain, bool) or not hasattr(plain, "__float__") or _is_array(plain):
        raise TypeError(f"{name_call()}{what}, not {type(data).__name__}")
    return float(plain.__float__())


def check_name(text: str, limit: int, what: str) -> str:
    """Return `text` if it fits into a field of `limit` bytes; raise `TypeError` or `ValueError` otherwise."""
    if not isinstance(text, str):
        raise TypeError(f"{name_call()}{what} must be a str, not {type(text).__name__}")
    if not text.isascii() or len(text) > limit or "\0" in text:
        try:
            size = len(text.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:
            raise ValueError(f"{name_call()}{what} must not contain a lone surrogate: {text!r:.80}") from None
        if size > limit:
            raise ValueError(f"{name_call()}{what} of {size} bytes is longer than {limit}: {text[:40]!r}...")
        if "\0" in text:
            raise ValueError(f"{name_call()}{what} must not contain a NUL character: {text!r}")
    return text


def decimal(text: str, most: int = RANK_VALID) -> int | None:
    """Return the number in an untrusted text; None if it is not a number or exceeds `most`."""
    if not (text.isascii() and text.isdecimal()) or len(text) > 19 or int(text) > most:
        return None
    return int(text)


class Proc(tuple[str, int]):
    """`pmix_proc_t`: the identifier of a process, its nspace and its rank.

    Args:
        nspace: The namespace, at most 255 bytes; a group or process-set id where the Standard allows one.
        rank: The rank, or one of the special ranks (`Rank.WILDCARD`, ...).

    Example:
        >>> right = Proc(me.nspace, (me.rank + 1) % me.job.size)
        >>> print(right.nspace, right.rank)
        >>> whole_job = Proc(me.nspace, Rank.WILDCARD)
    """

    __slots__ = ()

    def __new__(cls, nspace: str, rank: int) -> Proc:
        check_name(nspace, MAX_NSLEN, "an nspace")
        if rank.__class__ is not int:
            rank = check_integer(rank, "a rank")
        if not 0 <= rank <= RANK_UNDEF:
            raise OverflowError(f"{name_call()}a rank lies between 0 and {RANK_UNDEF}, not {rank}")
        return tuple.__new__(cls, (nspace, rank))

    @classmethod
    def unchecked(cls, nspace: str, rank: int) -> Proc:
        """Make a proc without checks, from valid values."""
        return tuple.__new__(cls, (nspace, rank))

    @classmethod
    def unchecked_ranks(cls, nspace: str, ranks: Iterable[int]) -> list[Proc]:
        """Make the procs of several ranks at once, which is faster than one by one."""
        from itertools import repeat

        made: Iterable[Proc] = map(tuple.__new__, repeat(cls), zip(repeat(nspace), ranks))
        return list(made)

    nspace: Final[str] = tuple_item(0)
    rank: Final[int] = tuple_item(1)

    def __getnewargs__(self) -> tuple[str, int]:
        return self[0], self[1]

    def __str__(self) -> str:
        return f"{self[0]}:{_RANK_NAMES.get(self[1], self[1])}"

    def __repr__(self) -> str:
        return f"Proc({self[0]!r}, {self[1]})"


class Value(tuple[int, Any]):
    """`pmix_value_t`: a value with its PMIx type.

    `Value(DataType.UINT32, 7)` equals `uint32(7)`.

    Args:
        data_type: A `DataType`.
        data: A Python value of that type.

    Raises:
        TypeError: The data is of another kind than the type holds.
        OverflowError: The data is out of the type's range.

    Example:
        >>> load = Value(DataType.UINT32, 7)
        >>> load, load.type, load.data
        (uint32(7), 14, 7)
        >>> me.put("acme.load", load)
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __new__(cls, data_type: int, data: object = None) -> Value: ...

    else:

        def __new__(cls, data_type=None, data=None, **former):
            if former or data_type is None:
                if data_type is not None or "type" not in former:
                    raise TypeError(f"Value() takes a data_type and the data, not {', '.join(former) or 'nothing'}")
                load("pypmix.oldnames", "rename_arguments")("pypmix.Value", cls.__init__, former)
                return cls(data=data, **former)
            return tuple.__new__(cls, (int(data_type), check(data_type, data)))

    @classmethod
    def unchecked(cls, data_type: int, data: object) -> Value:
        """Make a value without checks, from valid data."""
        return tuple.__new__(cls, (data_type, data))

    type: Final[int] = tuple_item(0)
    data: Final[Any] = tuple_item(1)

    def __getnewargs__(self) -> tuple[int, Any]:
        return self[0], self[1]

    def __repr__(self) -> str:
        return f"{type_name(self[0]).lower()}({self[1]!r})"


class Info(tuple[str, Value, int]):
    """`pmix_info_t`: a key, its value, and the directive flags (`InfoFlags`).

    Args:
        key: At most 511 bytes; an attribute may stand for its key.
        value: A `Value`; use `pypmix.types.info(key, value)` to infer the type from a Python value.
        flags: A sum of `InfoFlags`.

    Example:
        >>> host = Info("pmix.host", Value(DataType.STRING, "node1"), InfoFlags.REQUIRED)
        >>> host == attrs.HOST("node1", flags=InfoFlags.REQUIRED)
        True
    """

    __slots__ = ()

    def __new__(cls, key: str, value: Value, flags: int = 0) -> Info:
        if not isinstance(value, Value):
            raise TypeError(f"the value of info {str(key)!r} must be a Value, not {type(value).__name__}")
        name = key.key if isinstance(key, TypedKey) else key
        return tuple.__new__(cls, (check_name(name, MAX_KEYLEN, "a key"), value, int(flags)))

    @classmethod
    def unchecked(cls, key: str, value: Value, flags: int) -> Info:
        """Make an info without checks, from valid parts."""
        return tuple.__new__(cls, (key, value, flags))

    key: Final[str] = tuple_item(0)
    value: Final[Value] = tuple_item(1)
    flags: Final[int] = tuple_item(2)

    def __getnewargs__(self) -> tuple[str, Value, int]:
        return self[0], self[1], self[2]

    def __repr__(self) -> str:
        return f"Info({self[0]!r}, {self[1]!r}" + (f", flags={self[2]:#x})" if self[2] else ")")


if TYPE_CHECKING:
    Infos = Mapping[Any, object] | Iterable[Info] | None


class DataArray(Record):
    """`pmix_data_array_t`: values of one type.

    Example:
        >>> DataArray(DataType.UINT32, (1, 2, 3)) == array(DataType.UINT32, [1, 2, 3]).data
        True
    """

    type: int
    items: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


class KeyValue(Record):
    """`pmix_kval_t`: a key and its value, as data stores keep them."""

    key: str
    value: Value


class Pdata(Record):
    """`pmix_pdata_t`: a published `Value`, its key and its publisher, as hosts and `me.raw.lookup` have it.

    Example:
        >>> for found in me.raw.lookup(["acme.port"]):
        ...     print(found.key, "is", found.value.data, "by", found.proc)
    """

    proc: Proc
    key: str
    value: Value


class Query(Record):
    """`pmix_query_t`: requested keys, with qualifiers.

    Example:
        >>> size = Query(("pmix.job.size",), (attrs.NSPACE("job"),))
        >>> found = me.raw.query_info([size])
    """

    keys: tuple[str, ...]
    qualifiers: tuple[Info, ...] = ()


class App(Record):
    """`pmix_app_t`: an application to spawn.

    Example:
        >>> job = me.spawn([App("./worker", ("./worker", "--fast"), maxprocs=4), App("./reader")])
    """

    cmd: str | None
    argv: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    cwd: str | None = None
    maxprocs: int = 1
    info: tuple[Info, ...] = ()


class ProcInfo(Record):
    """`pmix_proc_info_t`: the node, the executable, the pid and the `ProcState` of a process.

    Example:
        >>> for each in me.query(attrs.QUERY_PROC_TABLE, nspace="job"):
        ...     print(each.proc, "is", each.pid, "on", each.hostname, ProcState(each.state).name)
    """

    proc: Proc
    hostname: str | None
    executable: str | None
    pid: int
    state: int
    exit_code: int = 0


class Envar(Record):
    """`pmix_envar_t`: a change to an environment variable; the separator is one character for prepend and append.

    Example:
        >>> path = attrs.PREPEND_ENVAR(Envar("PATH", "/opt/acme/bin", ":"))
        >>> job = me.spawn(app(["./worker"], n=4, info=[path]))
    """

    name: str | None
    value: str | None
    separator: str = ":"


class RegAttr(Record):
    """`pmix_regattr_t`: an attribute that a library or host supports.

    Example:
        >>> RegAttr("PMIX_TIMEOUT", "pmix.timeout", DataType.INT, ("Seconds to wait",)).key
        'pmix.timeout'
    """

    name: str | None
    key: str
    type: int
    description: tuple[str, ...] = ()


class DeviceDistance(Record):
    """`pmix_device_distance_t`: how far a device is, least and most.

    Example:
        >>> for device in me.fabric.compute_distances(devices=DeviceType.GPU):
        ...     print(device.osname, device.mindist, device.maxdist)
    """

    uuid: str | None
    osname: str | None
    type: int
    mindist: int
    maxdist: int


NAMES: dict[int, str] = {number: name for name, number in vars(codes).items() if name.isupper() and name[0] != "_"}

RANGES: dict[int, tuple[int, int]] = {
    codes.BYTE: (0, 2**8 - 1),
    codes.SIZE: (0, 2**64 - 1),
    codes.PID: (-(2**31), 2**31 - 1),
    codes.INT: (-(2**31), 2**31 - 1),
    codes.INT8: (-(2**7), 2**7 - 1),
    codes.INT16: (-(2**15), 2**15 - 1),
    codes.INT32: (-(2**31), 2**31 - 1),
    codes.INT64: (-(2**63), 2**63 - 1),
    codes.UINT: (0, 2**32 - 1),
    codes.UINT8: (0, 2**8 - 1),
    codes.UINT16: (0, 2**16 - 1),
    codes.UINT32: (0, 2**32 - 1),
    codes.UINT64: (0, 2**64 - 1),
    codes.TIME: (-(2**63), 2**63 - 1),
    codes.STATUS: (-(2**31), 2**31 - 1),
    codes.PERSIST: (0, 2**8 - 1),
    codes.POINTER: (0, 2**64 - 1),
    codes.SCOPE: (0, 2**8 - 1),
    codes.DATA_RANGE: (0, 2**8 - 1),
    codes.COMMAND: (0, 2**8 - 1),
    codes.INFO_DIRECTIVES: (0, 2**32 - 1),
    codes.DATA_TYPE: (0, 2**16 - 1),
    codes.PROC_STATE: (0, 2**8 - 1),
    codes.PROC_RANK: (0, 2**32 - 1),
    codes.ALLOC_DIRECTIVE: (0, 2**8 - 1),
    codes.IOF_CHANNEL: (0, 2**16 - 1),
    codes.JOB_STATE: (0, 2**8 - 1),
    codes.LINK_STATE: (0, 2**8 - 1),
    codes.DEVTYPE: (0, 2**64 - 1),
    codes.LOCTYPE: (0, 2**16 - 1),
    codes.STOR_MEDIUM: (0, 2**64 - 1),
    codes.STOR_ACCESS: (0, 2**64 - 1),
    codes.STOR_PERSIST: (0, 2**64 - 1),
    codes.STOR_ACCESS_TYPE: (0, 2**16 - 1),
    codes.RESBLOCK_DIRECTIVE: (0, 2**8 - 1),
    codes.ALLOC_INHERIT: (0, 2**8 - 1),
}
"""Least and greatest value of every type whose data is an int."""

ENUMS: dict[int, str] = {
    codes.STATUS: "Status",
    codes.PERSIST: "Persist",
    codes.SCOPE: "Scope",
    codes.DATA_RANGE: "Range",
    codes.INFO_DIRECTIVES: "InfoFlags",
    codes.DATA_TYPE: "DataType",
    codes.PROC_STATE: "ProcState",
    codes.ALLOC_DIRECTIVE: "AllocDirective",
    codes.IOF_CHANNEL: "IOFChannel",
    codes.JOB_STATE: "JobState",
    codes.LINK_STATE: "LinkState",
    codes.DEVTYPE: "DeviceType",
    codes.LOCTYPE: "Locality",
    codes.STOR_MEDIUM: "StorageMedium",
    codes.STOR_ACCESS: "StorageAccess",
    codes.STOR_PERSIST: "StoragePersistence",
    codes.STOR_ACCESS_TYPE: "StorageAccessType",
    codes.RESBLOCK_DIRECTIVE: "ResBlockDirective",
    codes.ALLOC_INHERIT: "AllocInheritance",
}
"""The enum that a value of the type becomes in Python."""

RECORDS: dict[int, type] = {
    codes.PROC: Proc,
    codes.APP: App,
    codes.INFO: Info,
    codes.PDATA: Pdata,
    codes.KVAL: KeyValue,
    codes.PROC_INFO: ProcInfo,
    codes.QUERY: Query,
    codes.ENVAR: Envar,
    codes.REGATTR: RegAttr,
    codes.DEVICE_DIST: DeviceDistance,
}
"""The classes of the types whose data is a record; `structures` adds those that few programs use."""

_BYTES = frozenset(
    {
        codes.BYTE_OBJECT,
        codes.COMPRESSED_STRING,
        codes.COMPRESSED_BYTE_OBJECT,
        codes.DATA_BUFFER,
        codes.REGEX,
    }
)
_FLOAT_MAX = (2**24 - 1) * 2.0**104
BY_CLASS = {cls: number for number, cls in RECORDS.items()}
"""The types of the classes in `RECORDS`."""
_BY_ENUM = {name: number for number, name in ENUMS.items()} | {"EventCode": codes.STATUS}


_JUST_PROCS = {Proc}

_new_tuple = tuple.__new__


def record_of(type: int) -> type[Any] | None:
    """Return the class of the data of a type; None if its data is not a record."""
    if type not in RECORDS:
        load("pypmix.standard.structures")
    return RECORDS.get(type)


def type_name(number: int) -> str:
    """Return the Standard's name of a data type without `PMIX_`, or `type 104` for an unknown one."""
    return NAMES.get(number, f"type {int(number)}")


def check(type: int, data: object, element: int | None = None, level: int = 0) -> Any:
    """Return `data` in the form that values of this type hold.

    Args:
        type: A `DataType`.
        data: A Python value.
        element: For arrays, the type of the elements; inferred from the first one if None.
        level: The number of lists and dicts around it.

    Raises:
        TypeError: The data is of another kind than the type holds.
        ValueError: Lists and dicts are nested more than `MAX_NESTING` deep.
        OverflowError: The data is out of the type's range.
    """
    bounds = RANGES.get(type)
    if bounds is not None:
        return _integer(type, data, bounds)
    if type == codes.STRING or type == codes.PROC_NSPACE:
        return _string(type, data)
    if type == codes.BOOL:
        if not isinstance(data, bool):
            data = _number(data)
            if not isinstance(data, bool):
                raise _mismatch(type, data)
        return data
    if type in _BYTES:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise _mismatch(type, data)
        return bytes(data)
    if type == codes.FLOAT or type == codes.DOUBLE:
        return _floating(type, data)
    if type == codes.DATA_ARRAY:
        return checked_array(data, element, level)
    if type == codes.VALUE:
        return from_python(data, level)
    if type == codes.UNDEF:
        if data is not None:
            raise _mismatch(type, data)
        return None
    record = record_of(type)
    if record is not None:
        if not isinstance(data, record):
            raise _mismatch(type, data)
        return data
    raise TypeError(f"{type_name(type)} is not a data type that pypmix knows")


def _mismatch(type: int, data: object) -> TypeError:
    return TypeError(f"{type_name(type)} cannot hold {a(data)}: {data!r:.80}")


def a(data: object) -> str:
    """Return the name of an object's class with its article, for error texts."""
    name = data.__class__.__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _integer(type: int, data: object, bounds: tuple[int, int]) -> int:
    number = read_integer(data)
    if number is None:
        raise _mismatch(type, data)
    if not bounds[0] <= number <= bounds[1]:
        raise OverflowError(f"{number} is out of range for {type_name(type)} ({bounds[0]} to {bounds[1]})")
    return number


def _string(type: int, data: object) -> str | None:
    if data is None and type == codes.STRING:
        return None
    if not isinstance(data, str):
        raise _mismatch(type, data)
    if type == codes.PROC_NSPACE:
        return check_name(data, MAX_NSLEN, "an nspace")
    if "\0" in data:
        raise ValueError(f"STRING cannot hold a NUL character, put bytes instead: {data!r:.80}")
    try:
        data.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(f"STRING cannot hold a lone surrogate: {data!r:.80}") from error
    # `str()` of a member of an enum of strings is the member's name.
    return str.__str__(data)


def _floating(type: int, data: object) -> float:
    if not isinstance(data, int | float):
        data = _number(data)
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise _mismatch(type, data)
    try:
        number = float(data)
    except OverflowError:
        raise OverflowError(f"{type_name(type)} cannot hold an int of {data.bit_length()} bits") from None  # type: ignore[union-attr]
    if isinstance(data, int) and number != data:
        raise OverflowError(f"{type_name(type)} cannot hold {data} exactly: give float({data}) to round it")
    if type == codes.FLOAT and abs(number) != float("inf") and abs(number) > _FLOAT_MAX:
        raise OverflowError(f"{number} is out of range for FLOAT")
    return number


def checked_array(data: object, element: int | None, level: int = 0) -> DataArray:
    level += 1
    if level > MAX_NESTING:
        raise ValueError(f"lists and dicts are nested more than {MAX_NESTING} deep, or one contains itself")
    if isinstance(data, DataArray):
        if element is not None and data.type not in (element, codes.UNDEF):
            raise TypeError(f"an array of {type_name(element)} is wanted, not of {type_name(data.type)}")
        if data.type == codes.PROC and isinstance(data.items, tuple) and {*map(type, data.items)} == _JUST_PROCS:
            # Procs are always valid, and groups have many of them.
            return data
        return DataArray(int(data.type), _checked_items(int(data.type), data.items, level))
    if isinstance(data, dict):
        data = tuple([_entry(key, value, level) for key, value in data.items()])
        if element is None or element == codes.INFO:
            return DataArray(codes.INFO, data)
    if hasattr(data, "dtype"):
        code = _numeric(data)
        if element is None:
            element = code if len(data.shape) == 1 else codes.DATA_ARRAY  # type: ignore[attr-defined]
        data = data.tolist() if element == code else list(data)  # type: ignore[attr-defined, call-overload]
    if not isinstance(data, list | tuple) or isinstance(data, Proc | Value | Info):
        raise _mismatch(codes.DATA_ARRAY, data)
    if element is None:
        # An empty list has no element to infer the type from: it is one of ints.
        if not data:
            return DataArray(codes.INT64, ())
        # The first element is converted once: twice on each level would be 2**n times for n lists in each other.
        first: Value = _checked_items(codes.VALUE, data[:1], level)[0]
        if first.type != codes.VALUE:
            return DataArray(first.type, _checked_items(first.type, data[1:], level, first.data))
        element = codes.VALUE
    return DataArray(int(element), _checked_items(int(element), data, level))


def _checked_items(element: int, data: Iterable[object], level: int, *converted: Any) -> tuple[Any, ...]:
    """Return the items of an array in the form that values of its type hold; errors name the item's place.

    Args:
        element: The type of the elements.
        data: The items.
        level: The number of lists and dicts around them.
        converted: Items before these, in the form that values of the type hold.
    """
    items: list[Any] = list(converted)
    try:
        for item in data:
            if isinstance(item, Value) and element != codes.VALUE:
                if item.type != element:
                    raise TypeError(f"an array of {type_name(element)} cannot hold a {type_name(item.type)}")
                item = item.data
            items.append(check(element, item, None, level))
    except (TypeError, ValueError, OverflowError) as error:
        raise at_place(error, f"[{len(items)}]") from None
    return tuple(items)


def at_place(error: TypeError | ValueError | OverflowError, place: str) -> Exception:
    """Return an error of the same kind whose text names the call and a place, before the inner place if it has one.

    Args:
        error: A refusal of a value.
        place: The place in a value, such as `[0]`, or the key of one.
    """
    call = name_call()
    text = str(error).removeprefix(call)
    kind = next(kind for kind in (TypeError, OverflowError, ValueError) if isinstance(error, kind))
    text = place + text if text.startswith("[") else f"{place}: {text}"
    return kind(text if text.startswith(call.removesuffix(": ")) else call + text)


def from_python(data: object, level: int = 0) -> Value:
    """Return the typed value of a Python object.

    `bool` becomes BOOL, `int` INT64, `float` DOUBLE, `str` STRING, `bytes` BYTE_OBJECT, a list or tuple a DATA_ARRAY
    of the first element's type, which all others must have, too (INT64 if it is empty), a dict a DATA_ARRAY of INFO;
    members of pypmix's enums and its records keep their
    types. Scalars of NumPy keep their types (`numpy.int32` is INT32), and its arrays become DATA_ARRAYs of the element
    type, nested for several dimensions. A C peer that reads another integer type needs an explicit one, such as
    `uint32(7)`.

    Args:
        data: The object.
        level: The number of lists and dicts around it.

    Raises:
        ValueError: Lists and dicts are nested more than `MAX_NESTING` deep.
        TypeError: The object has no PMIx type; the message lists the supported types.
        OverflowError: An int is beyond 64 bits, or beyond INT64 with no explicit type.
    """
    cls = data.__class__
    if cls is bytes:
        # Most values are bytes, which need no further call.
        return _new_tuple(Value, (codes.BYTE_OBJECT, data))
    if isinstance(data, Value):
        return data
    make = Value.unchecked
    if cls is str:
        return make(codes.STRING, _string(codes.STRING, data))
    if cls is bool:
        return make(codes.BOOL, data)
    if cls is int:
        low, high = RANGES[codes.INT64]
        if not low <= data <= high:  # type: ignore[operator]
            hint = "; use uint64(...)" if 0 <= data < 2**64 else ""  # type: ignore[operator]
            raise OverflowError(f"{data} is out of range for INT64, the type of a plain int{hint}")
        return make(codes.INT64, data)
    if isinstance(data, bytes | bytearray | memoryview):
        return make(codes.BYTE_OBJECT, bytes(data))
    if cls is float:
        return make(codes.DOUBLE, data)
    number = BY_CLASS.get(cls)
    if number is not None:
        return make(number, data)
    if isinstance(data, DataArray | list | tuple | dict):
        return make(codes.DATA_ARRAY, checked_array(data, None, level))
    if isinstance(data, int):
        number = _BY_ENUM.get(cls.__name__) if cls.__module__ == "pypmix.standard.enums" else None
        if number is not None:
            return make(number, check(number, data))
        return from_python(True if isinstance(data, bool) else int(data))
    if isinstance(data, float):
        return make(codes.DOUBLE, float(data))
    if isinstance(data, str):
        return make(codes.STRING, _string(codes.STRING, data))
    return _of_numpy(data, level)


def _of_numpy(data: Any, level: int) -> Value:
    """Return the typed value of a scalar or an array of NumPy, or of a similar object."""
    if hasattr(data, "dtype"):
        if data.shape:
            return Value.unchecked(codes.DATA_ARRAY, checked_array(data, None, level))
        return Value.unchecked(_numeric(data), data.item())
    number = read_integer(data)
    if number is not None:
        return from_python(number)
    raise TypeError(
        f"{a(data)} has no PMIx type: put bool, int, float, str, bytes, a list or dict of these, a Proc or "
        f"another record of pypmix, or an explicit form such as uint32(7); other objects as bytes, such as "
        f"pickle.dumps(...) returns"
    )


_NUMERIC = {
    "bool": codes.BOOL,
    "int8": codes.INT8,
    "int16": codes.INT16,
    "int32": codes.INT32,
    "int64": codes.INT64,
    "uint8": codes.UINT8,
    "uint16": codes.UINT16,
    "uint32": codes.UINT32,
    "uint64": codes.UINT64,
    "float32": codes.FLOAT,
    "float64": codes.DOUBLE,
}


def _numeric(data: Any) -> int:
    """Return the type of a scalar, or of the elements of an array, with a `dtype`."""
    name = getattr(data.dtype, "name", str(data.dtype))
    code = _NUMERIC.get(name)
    if code is None:
        raise TypeError(f"{a(data)} of {name} has no PMIx type: put its bytes, as tobytes() returns them, or a list")
    return code


def _number(data: Any) -> object:
    """Return a scalar with a `dtype` as a plain Python object; any other object unchanged."""
    return data.item() if hasattr(data, "dtype") and not data.shape else data


class TypedKey:
    """A key string and the types of its value, as an attribute of the Standard defines them.

    It may be used for its key everywhere, and equals and hashes as its key string.
    """

    __slots__ = ("element", "key", "name", "types")

    def __init__(self, name: str, key: str, types: tuple[int, ...], element: int | None = None) -> None:
        self.name = name
        self.key = key
        self.types = types
        self.element = element

    def value(self, value: object, level: int = 0) -> Value:
        """Return `value` as a typed `Value`, of the first of the key's types that fits it.

        Example:
            >>> attrs.JOB_SIZE.value(4)
            uint32(4)
        """
        if isinstance(value, Value):
            if value.type in self.types:
                return value
            raise TypeError(f"{self.name} takes {self._expected()}, not {type_name(value.type)}")
        problem: Exception | None = None
        for type_ in self.types:
            try:
                return Value(type_, check(type_, value, self.element, level))
            except OverflowError as error:
                raise OverflowError(f"{self.name}: {error}") from None
            except (TypeError, ValueError) as error:
                problem = problem or error
        raise TypeError(f"{self.name} takes {self._expected()}: {problem}")

    def _expected(self) -> str:
        return " or ".join(type_name(type_) for type_ in self.types)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self.key == other
        return self is other or (isinstance(other, TypedKey) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.key


_known: dict[str, TypedKey] = {}


def known_key(key: str) -> TypedKey | None:
    """Return the Standard's definition of a key string; None if it has no such key."""
    found = _known.get(key)
    if found is None:
        from pypmix.standard import dictionary

        row = dictionary.by_key(key)
        if row is not None:
            found = _known[key] = TypedKey(*row)
    return found


def info(key: object, value: object, flags: int = 0) -> Info:
    """Return the info that carries `value` under `key`.

    The key determines the value's type if it is an attribute, or the key string of a known attribute. Other values have
    the types of `from_python`.

    Args:
        key: An attribute (`attrs.TIMEOUT`) or a string of at most 511 bytes.
        value: A Python object or an explicit `Value`.
        flags: A sum of `InfoFlags`.

    Example:
        >>> info(attrs.JOB_SIZE, 4)
        Info('pmix.job.size', uint32(4))
        >>> info("acme.load", 0.5).value
        double(0.5)
    """
    return _typed_info(key, value, flags, 0)


def _typed_info(key: object, value: object, flags: int, level: int) -> Info:
    """Return the info of a key and a value within `level` lists and dicts."""
    if not isinstance(key, TypedKey):
        if not isinstance(key, str):
            raise TypeError(f"{name_call()}a key must be an attribute or a str, not {type(key).__name__}")
        found = None if not key.startswith("pmix") or isinstance(value, Value) else known_key(key)
        if found is None:
            return Info(key, from_python(value, level), flags)
        key = found
    return Info(key.key, key.value(value, level), flags)


def _entry(key: object, value: object, level: int = 0) -> Info:
    """Return the info of a mapping's entry; errors name the key."""
    try:
        return _typed_info(key, value, 0, level)
    except (TypeError, ValueError, OverflowError) as error:
        raise at_place(error, f"[{str(key)!r:.80}]") from None


def infos(items: Infos) -> tuple[Info, ...]:
    """Return infos, or a mapping of keys to values, as a tuple of infos."""
    if not items:
        return ()
    if isinstance(items, Info):
        return (items,)
    if hasattr(items, "items"):
        return tuple([_entry(key, value) for key, value in items.items()])
    if not hasattr(items, "__iter__"):
        raise TypeError(f"infos are a mapping of keys to values, or several Info, not {a(items)}")
    found = tuple(items)
    for item in found:
        if not isinstance(item, Info):
            raise TypeError(f"infos must be made by an attribute or by info(), not {type(item).__name__}")
    return found
