"""Write the generated modules of pypmix/standard from the tables beside this file.

Without arguments the modules are rewritten; with `--check` the exit code is 1 if they are not what the tables say.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
STANDARD = HERE.parent.parent / "pypmix" / "standard"
WIDTH = 110
MAX_MEANING = 120

# The last patch of each branch that the tables know; NEVER stands for "no release of this branch".
BRANCHES = {(4, 2): 9, (5, 0): 11, (6, 0): 0, (6, 1): 1, (7, 0): 0}
NEVER = 999

# The Python type of an attribute's value, by data type; all others are `object`.
PYTHON_TYPES = {
    "BOOL": "bool",
    "STRING": "str",
    "PROC_NSPACE": "str",
    "FLOAT": "float",
    "DOUBLE": "float",
    "BYTE_OBJECT": "bytes",
    "PROC": "Proc",
}

INT_TYPES = """
    BYTE SIZE PID INT INT8 INT16 INT32 INT64 UINT UINT8 UINT16 UINT32 UINT64 TIME STATUS PERSIST POINTER SCOPE
    DATA_RANGE INFO_DIRECTIVES DATA_TYPE PROC_STATE PROC_RANK ALLOC_DIRECTIVE IOF_CHANNEL JOB_STATE LINK_STATE
    DEVTYPE LOCTYPE STOR_MEDIUM STOR_ACCESS STOR_PERSIST STOR_ACCESS_TYPE RESBLOCK_DIRECTIVE ALLOC_INHERIT
"""
PYTHON_TYPES |= dict.fromkeys(INT_TYPES.split(), "int")


class BadTable(Exception):
    """A table says something that cannot be."""


class Enumeration(NamedTuple):
    """A row of enums.tsv."""

    name: str
    kind: str
    ctype: str
    meaning: str


class Constant(NamedTuple):
    """A row of constants.tsv."""

    enums: tuple[str, ...]
    members: tuple[str, ...]
    name: str
    value: str
    since: str
    until: str
    changed: str
    meaning: str


class Attribute(NamedTuple):
    """A row of attributes.tsv."""

    name: str
    key: str
    types: str
    since: str
    until: str
    changed: str
    meaning: str


def rows(name: str, columns: int) -> list[list[str]]:
    """Return the cells of a table, without its header line."""
    out = []
    for number, line in enumerate((HERE / name).read_text(encoding="utf-8").splitlines()[1:], 2):
        cells = line.split("\t")
        if len(cells) != columns:
            raise BadTable(f"{name}:{number}: {len(cells)} columns, not {columns}")
        if any(cell != cell.strip() for cell in cells):
            raise BadTable(f"{name}:{number}: blanks around a cell")
        out.append(cells)
    return out


def check_release(text: str, where: str) -> None:
    parts = text.split(".")
    if not all(part.isdigit() for part in parts) or len(parts) not in (2, 3):
        raise BadTable(f"{where}: {text!r} is not a release")
    branch = (int(parts[0]), int(parts[1]))
    if branch not in BRANCHES:
        raise BadTable(f"{where}: no branch {text!r}")
    if len(parts) == 3 and not (0 < int(parts[2]) <= BRANCHES[branch] or int(parts[2]) == NEVER):
        raise BadTable(f"{where}: no release {text!r}")


def check_versions(since: str, until: str, changed: str, where: str) -> list[tuple[str, str]]:
    """Check the three version columns and return the changes as (release, value)."""
    floors = since.split(",")
    for floor in floors:
        check_release(floor, where)
    order = [[int(part) for part in floor.split(".")] for floor in floors]
    if order != sorted(order) or len({tuple(floor[:2]) for floor in order}) != len(order):
        raise BadTable(f"{where}: since {since!r} must name rising branches, each once")
    if until:
        check_release(until, where)
    changes = []
    for change in changed.split(",") if changed else ():
        release, _, value = change.partition("=")
        check_release(release, where)
        if not value:
            raise BadTable(f"{where}: {change!r} is not release=value")
        changes.append((release, value))
    return changes


def check_meaning(meaning: str, where: str) -> None:
    if not meaning or len(meaning) > MAX_MEANING or not meaning.endswith(".") or '"""' in meaning or "\\" in meaning:
        raise BadTable(f"{where}: a meaning is one sentence of at most {MAX_MEANING} characters that ends in a period")


def read_constants(enums: list[Enumeration]) -> list[Constant]:
    known = {enum.name for enum in enums} | {"-"}
    out: list[Constant] = []
    values: dict[str, str] = {}
    for enum_names, members, name, value, since, until, changed, meaning in rows("constants.tsv", 8):
        where = f"constants.tsv: {name}"
        row = Constant(tuple(enum_names.split()), tuple(members.split()), name, value, since, until, changed, meaning)
        if not row.enums or not known.issuperset(row.enums):
            raise BadTable(f"{where}: unknown enum in {enum_names!r}")
        if name in values:
            raise BadTable(f"{where}: stands twice")
        if value.startswith("=") and value[1:] not in values:
            raise BadTable(f"{where}: alias of {value[1:]!r}, which does not stand before it")
        if row.enums != ("-",) and not value.startswith("="):
            int(value, 0)
        for member in row.members:
            if not member.isidentifier():
                raise BadTable(f"{where}: {member!r} cannot be a member's name")
        check_versions(since, until, changed, where)
        check_meaning(meaning, where)
        values[name] = value
        out.append(row)
    return out


def split_types(types: str, numbers: dict[str, int], where: str) -> tuple[list[str], str | None]:
    """Return the type names of `PROC|DATA_ARRAY:PROC` and the element type of its array."""
    names: list[str] = []
    element: str | None = None
    for part in types.split("|"):
        name, _, of = part.partition(":")
        if name not in numbers or (of and of not in numbers):
            raise BadTable(f"{where}: unknown type {part!r}")
        if of and name != "DATA_ARRAY":
            raise BadTable(f"{where}: only an array has an element type, not {part!r}")
        if name in names:
            raise BadTable(f"{where}: {name} stands twice")
        names.append(name)
        element = of or element
    return names, element


def read_attributes(numbers: dict[str, int]) -> list[Attribute]:
    out: list[Attribute] = []
    by_name: dict[str, Attribute] = {}
    keys: dict[str, str] = {}
    for cells in rows("attributes.tsv", 7):
        row = Attribute(*cells)
        where = f"attributes.tsv: {row.name}"
        if row.name in by_name:
            raise BadTable(f"{where}: stands twice")
        if not row.name.isidentifier():
            raise BadTable(f"{where}: not a name")
        if row.key.startswith("="):
            if row.key[1:] not in by_name or row.types or row.changed:
                raise BadTable(f"{where}: an alias names an attribute that stands before it, and nothing else")
        else:
            changes = check_versions(row.since, row.until, row.changed, where)
            split_types(row.types, numbers, where)
            newest = changes[-1][1] if changes else row.key
            if newest in keys:
                raise BadTable(f"{where}: key {newest!r} belongs to {keys[newest]}")
            keys[newest] = row.name
        check_meaning(row.meaning, where)
        by_name[row.name] = row
        out.append(row)
    return out


def comment(text: str, indent: str) -> list[str]:
    """Return a docstring line, wrapped where it is too long."""
    quoted = f'{indent}"""{text}"""'
    if len(quoted) <= WIDTH:
        return [quoted]
    lines = textwrap.wrap(text, WIDTH - len(indent) - 3)
    return [f'{indent}"""{lines[0]}', *(indent + line for line in lines[1:]), f'{indent}"""']


def version_note(since: str, until: str, changed: str) -> str:
    """Return what a docstring says about releases, nothing where the name is in all of them."""
    notes = []
    floors = [floor for floor in since.split(",") if not floor.endswith(f".{NEVER}")]
    if floors != ["4.2"]:
        notes.append("Since " + ", ".join(floors) + ".")
    if until:
        notes.append(f"Until {until}.")
    for change in changed.split(",") if changed else ():
        release, _, value = change.partition("=")
        notes.append(f"`{value}` from {release}.")
    return "".join(" " + note for note in notes)


ENUMS_HEAD = '''\
# Generated by native/vocabulary/generate.py from native/vocabulary/*.tsv: edit those.
"""The Standard's enumerations: statuses, event codes, data types, states, directives and flags.

Names are the Standard's without `PMIX_` and without the prefix that a class stands for. A number that no release
of PMIx has named is never an error: an `IntEnum` makes a member called `UNKNOWN_9999`, or `UNKNOWN_N9999` for a
negative number (`CUSTOM_N4242` for an event code of an application), which compares and pickles like any other;
an `IntFlag` keeps the unknown bits. All print as their name.

A class is made when it is first asked for: together they would cost a rank more than all else that it imports.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

_OF_INTS = {*"bcdeEfFgGnoxX%"}
'''

OPEN_ENUM = '''\
def _text(self: IntEnum | IntFlag) -> str:
    return self.name or str(int(self))


def _formatted(self: IntEnum | IntFlag, format_spec: str) -> str:
    return format(int(self) if format_spec[-1:] in _OF_INTS else str(self), format_spec)


class OpenEnum(IntEnum):
    """Base of the enumerations: any integer has a member, which prints as its name; `:d` prints the number."""

    __str__ = _text
    __format__ = _formatted

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, int):
            return None
        # Not kept: a peer could fill the memory with numbers that it makes up.
        member = int.__new__(cls, value)
        member._name_ = f"{cls._unnamed(value)}_{f'N{-value}' if value < 0 else value}"
        member._value_ = int(value)
        return member

    def __reduce_ex__(self, protocol: object) -> tuple[type[Self], tuple[int]]:
        # Some releases of Python 3.11 pickle members by name, which a number without one does not have.
        return type(self), (int(self),)

    @classmethod
    def _unnamed(cls, value: int) -> str:
        """Return the first part of the name of a number without a name."""
        return "UNKNOWN"
'''

EVENT_ENUM = '''\
class OpenEventEnum(OpenEnum):
    """Base of the event codes: an application may add its own."""

    @classmethod
    def custom(cls, code: int) -> Self:
        """Return the event code of an application's own event.

        Args:
            code: A number below `EXTERNAL_ERR_BASE` (-3000), so that it can never be one of the Standard's.

        Raises:
            TypeError: `code` is not an int.
            ValueError: `code` is -3000 or above, or does not fit 32 bits.
        """
        from pypmix.standard.types import check_integer

        code = check_integer(code, "an event code")
        if not -(2**31) <= code < EXTERNAL_ERR_BASE:
            bounds = f"{-(2**31)} and {EXTERNAL_ERR_BASE - 1}"
            raise ValueError(f"an application's event code lies between {bounds}, not {code}")
        return cls(code)

    @classmethod
    def _unnamed(cls, value: int) -> str:
        return "CUSTOM" if value < EXTERNAL_ERR_BASE else "UNKNOWN"
'''

OPEN_FLAG = '''\
class OpenFlag(IntFlag):
    """Base of the flags: unknown bits are kept. They print as their names; `:d` prints the number."""

    __str__ = _text
    __format__ = _formatted
'''

MAKE_ENUM = """\
    def __getattr__(name):
        try:
            base, doc, members = _MEMBERS[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        pairs = (member.split("=") for member in members.split())
        made = base(name, [(member, int(number)) for member, number in pairs], module=__name__)
        made.__doc__ = doc
        # Of two threads that are here at the same time, one makes the class that both get.
        return globals().setdefault(name, made)

    def __dir__():
        return sorted({*globals(), *_MEMBERS})
"""


def in_order(names: list[str]) -> list[str]:
    """Return names as linters want `__all__`: constants first, numbers inside names by value."""

    def key(name: str) -> tuple[bool, list[tuple[int, str]]]:
        parts = re.split(r"(\d+)", name)
        return not name.isupper(), [(int(part), "") if part.isdigit() else (0, part) for part in parts]

    return sorted(names, key=key)


def literal(value: str) -> str:
    """Return a table's number as the source shows it."""
    return "0x" + value[2:].upper() if value.startswith("0x") else value


def base_of(enum: Enumeration) -> str:
    if enum.kind not in ("IntEnum", "IntFlag"):
        raise BadTable(f"enums.tsv: {enum.name} is neither an IntEnum nor an IntFlag")
    return "OpenFlag" if enum.kind == "IntFlag" else "OpenEventEnum" if enum.name == "EventCode" else "OpenEnum"


def enum_lines(enum: Enumeration, constants: list[Constant]) -> tuple[list[str], list[str]]:
    """Return the class as type checkers and people read it, and the row from which it is made at run time."""
    doc = f"`{enum.ctype}`: {enum.meaning}"
    lines = [f"    class {enum.name}({base_of(enum)}):", *comment(doc, "        ")]
    taken: dict[int, str] = {}
    first: dict[str, str] = {}
    members: dict[str, int] = {}
    values = {constant.name: constant.value for constant in constants}
    for constant in constants:
        if enum.name not in constant.enums:
            continue
        target = constant.value.removeprefix("=") if constant.value.startswith("=") else ""
        written = values[target] if target else constant.value
        number = int(written, 0)
        if target not in first and number in taken:
            raise BadTable(f"constants.tsv: {constant.name} and {taken[number]} are both {number}; declare an alias")
        taken.setdefault(number, constant.name)
        first[constant.name] = constant.members[0]
        for member in constant.members:
            if member in members:
                raise BadTable(f"constants.tsv: {enum.name}.{member} stands twice")
            same = first[target] if target in first else constant.members[0]
            value = literal(written) if member == same else same
            members[member] = number
            lines += ["", f"        {member} = {value}"]
            note = version_note(constant.since, constant.until, constant.changed)
            lines += comment(f"`PMIX_{constant.name}`. {constant.meaning}{note}", "        ")
    if not members:
        raise BadTable(f"enums.tsv: {enum.name} has no members")
    text = textwrap.wrap(" ".join(f"{member}={number}" for member, number in members.items()), WIDTH - 12)
    row = [f'        "{enum.name}": (', f"            {base_of(enum)},", f'            "{doc}",']
    return lines, [
        *row,
        '            """',
        *(" " * 12 + line for line in text),
        '            """,',
        "        ),",
    ]


def render_enums(enums: list[Enumeration], constants: list[Constant]) -> str:
    lines = ENUMS_HEAD.splitlines()
    plain = [constant for constant in constants if constant.enums == ("-",)]
    exported = in_order([enum.name for enum in enums] + [member for row in plain for member in row.members])
    lines += ["", "__all__ = [", *(f'    "{name}",' for name in exported), "]"]
    for constant in plain:
        value = f'"{constant.value}"' if constant.value.startswith("PMIX_") else literal(constant.value)
        lines += ["", f"{constant.members[0]} = {value}"]
        note = version_note(constant.since, constant.until, constant.changed)
        lines += comment(f"`PMIX_{constant.name}`. {constant.meaning}{note}", "")
    lines += [
        "",
        "",
        *OPEN_ENUM.splitlines(),
        "",
        "",
        *EVENT_ENUM.splitlines(),
        "",
        "",
        *OPEN_FLAG.splitlines(),
        "",
        "",
        "if TYPE_CHECKING:",
    ]
    table: list[str] = []
    for enum in enums:
        text, row = enum_lines(enum, constants)
        lines += ["", *text]
        table += row
    lines += ["", "else:", "    _MEMBERS = {", *table, "    }", "", *MAKE_ENUM.splitlines()]
    return "\n".join(lines) + "\n"


ATTRS_STUB_HEAD = """\
# Generated by native/vocabulary/generate.py from native/vocabulary/attributes.tsv: edit that.
# The first words of each line are the data types that the value may have, the preferred one first.
from typing import Any

from pypmix.standard.attr import Attr
from pypmix.standard.types import Proc

__all__: list[str]

def by_key(key: str) -> Attr[Any] | None: ...
"""


DICTIONARY_HEAD = '''\
# Generated by native/vocabulary/generate.py from native/vocabulary/attributes.tsv: edit that.
"""The Standard's attributes as a table, which is read when the first of them is asked for."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_by_key: dict[str, list[str]] = {}
_by_name: dict[str, list[str]] = {}


def by_key(key: str) -> tuple[str, str, tuple[int, ...], int | None] | None:
    """Return the name, the key, the types and the type of array elements that a key string stands for.

    Some keys changed between releases: the attribute that has the key in the newest release wins. The key that is
    returned is the oldest one, as in `attrs`.
    """
    if not _by_key:
        _read()
    row = _by_key.get(key)
    return None if row is None else _described(row)


def by_name(name: str) -> tuple[Any, ...] | None:
    """Return the arguments of the `Attr` that has a name, without `PMIX_`; None if there is none."""
    if not _by_key:
        _read()
    row = _by_name.get(_ALIASES.get(name, name))
    if row is None:
        return None
    own, key, types, element = _described(row)
    since, until, changes = row[5:]
    other = () if changes == "-" else tuple([tuple(change.split("=")) for change in changes.split(";")])
    return own, key, types, since, element, None if until == "-" else until, other


def names() -> Iterable[str]:
    """Return the names of all attributes."""
    if not _by_key:
        _read()
    return [*_by_name, *_ALIASES]


def _read() -> None:
    rows = [line.split() for line in _TABLE.splitlines()]
    # At once, so that no other thread finds them half full; the one that is looked at comes last.
    _by_name.update({row[2]: row for row in rows})
    _by_key.update({row[0]: row for row in rows})


def _described(row: list[str]) -> tuple[str, str, tuple[int, ...], int | None]:
    _, oldest, name, types, element, *_ = row
    return name, oldest, tuple(map(int, types.split(","))), None if element == "-" else int(element)


'''


def render_dictionary(attributes: list[Attribute], numbers: dict[str, int]) -> str:
    """Return the module with one line for each key string.

    The columns are the key, the oldest key, the name, the types, the element, since, until and the later keys.
    """
    own = [row for row in attributes if not row.key.startswith("=")]
    table: dict[str, str] = {}
    changed = {row.name: check_versions(row.since, row.until, row.changed, row.name) for row in own}
    ranked = [(row, changed[row.name][-1][1] if changed[row.name] else row.key) for row in own]
    ranked += [(row, key) for row in own for key in (row.key, *(key for _, key in changed[row.name]))]
    for row, key in ranked:
        names, element = split_types(row.types, numbers, row.name)
        types = ",".join(str(numbers[name]) for name in names)
        later = ";".join(f"{release}={other}" for release, other in changed[row.name])
        cells = [key, row.key, row.name, types, str(numbers[element]) if element else "", row.since, row.until, later]
        table.setdefault(key, " ".join(cell or "-" for cell in cells))
    missing = {row.name for row in own} - {line.split()[2] for line in table.values()}
    if missing:
        raise BadTable(f"attributes.tsv: all keys of {min(missing)} are those of others")
    aliases = ["_ALIASES = {", *(f'    "{row.name}": "{row.key[1:]}",' for row in attributes if row not in own), "}"]
    return "\n".join([DICTIONARY_HEAD + "\n".join(aliases), '\n_TABLE = """\\', *table.values(), '"""', ""])


def attr_lines(row: Attribute, numbers: dict[str, int], python_types: dict[str, str]) -> list[str]:
    if row.key.startswith("="):
        python_types[row.name] = python_types[row.key[1:]]
        return [f"{row.name}: Attr[{python_types[row.name]}]", *comment(row.meaning, "")]
    names, _ = split_types(row.types, numbers, row.name)
    python: list[str] = []
    for name in names:
        type_ = PYTHON_TYPES.get(name, "object")
        if type_ not in python:
            python.append(type_)
    python_types[row.name] = "object" if "object" in python else " | ".join(python)
    note = version_note(row.since, row.until, row.changed)
    meaning = comment(f"({row.types.replace('|', ' or ')}) {row.meaning}{note}", "")
    return [f"{row.name}: Attr[{python_types[row.name]}]", *meaning]


def render_attrs_stub(attributes: list[Attribute], numbers: dict[str, int]) -> str:
    lines = ATTRS_STUB_HEAD.splitlines()
    python_types: dict[str, str] = {}
    for row in attributes:
        lines += ["", *attr_lines(row, numbers, python_types)]
    return "\n".join(lines) + "\n"


NAMES_HEAD = '''\
# Generated by native/vocabulary/generate.py from native/vocabulary/constants.tsv: edit that.
"""The Standard's constants by their C names, for programs that were written with those (`pypmix.compat`)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def constants() -> Iterator[tuple[str, int | str]]:
    """Yield each name, without its `PMIX_`, and its value; a string where it names an environment variable."""
    for pair in _TABLE.split():
        name, _, value = pair.partition("=")
        yield name, value if value.startswith("PMIX_") else int(value)

'''


def render_names(constants: list[Constant]) -> str:
    values = {constant.name: constant.value for constant in constants}
    pairs = []
    for constant in constants:
        value = constant.value
        while value.startswith("="):
            value = values[value[1:]]
        pairs.append(f"{constant.name}={value if value.startswith('PMIX_') else int(value, 0)}")
    return "\n".join([NAMES_HEAD, '_TABLE = """', *textwrap.wrap(" ".join(pairs), WIDTH), '"""', ""])


KEYS_HEAD = '''\
# Generated by native/vocabulary/generate.py from native/vocabulary/attributes.tsv and own.tsv: edit those.
"""The keys of the Standard's attributes as plain strings: a client imports neither the typed ones nor their table.

A key that changed between releases is the oldest one, as in `attrs`; the newer one has the release in its name.
Those that a client of the Python engine reads are constants; the others are read from a table when the first of them is
used. Type checkers find all of them in `keys.pyi`.
"""

'''

KEYS_TABLE = '''\


def __getattr__(name: str) -> str:
    words = [] if name.startswith("_") else _TABLE.split()
    found = dict(zip(words[::2], words[1::2], strict=True))
    if name not in found:
        raise AttributeError(f"there is no key {name}")
    globals().update(found)
    return found[name]


_TABLE = """\\
'''

KEYS_STUB_HEAD = """\
# Generated by native/vocabulary/generate.py from native/vocabulary/attributes.tsv and own.tsv: edit those.
from typing import Final

"""

_CLIENTS_KEYS = """
    APPLDR APPNUM APP_ARGV APP_INFO APP_INFO_ARRAY APP_MAP_REGEX APP_MAP_TYPE APP_RANK APP_SIZE
    AVAIL_PHYS_MEMORY CLUSTER_ID COLLECT_DATA DATA_SCOPE DEBUG_STOP_IN_INIT EMBED_BARRIER FABRIC_COORDINATES
    FABRIC_DEVICE FABRIC_DEVICES FABRIC_DEVICE_ADDRESS FABRIC_DEVICE_BUS_TYPE FABRIC_DEVICE_COORDINATES_7_0
    FABRIC_DEVICE_DRIVER FABRIC_DEVICE_FIRMWARE FABRIC_DEVICE_INDEX FABRIC_DEVICE_MTU FABRIC_DEVICE_NAME
    FABRIC_DEVICE_PCI_DEVID FABRIC_DEVICE_SPEED FABRIC_DEVICE_STATE FABRIC_DEVICE_TYPE FABRIC_DEVICE_VENDOR
    FABRIC_DEVICE_VENDORID GET_REFRESH_CACHE GLOBAL_RANK GROUP_NAMES HOSTNAME HOSTNAME_ALIASES
    HOSTNAME_KEEP_FQDN IMMEDIATE JOBID JOB_INFO JOB_NUM_APPS JOB_SIZE LOCALLDR LOCAL_CPUSETS LOCAL_PEERS
    LOCAL_PROCS LOCAL_RANK LOCAL_SIZE MAP_BLOB MAX_PROCS NODEID NODE_INFO NODE_INFO_ARRAY NODE_LIST
    NODE_OVERSUBSCRIBED NODE_RANK NODE_SIZE NUM_NODES OPTIONAL PROC_BLOB PROC_INFO_ARRAY PSET_MEMBERS
    PSET_NAME PSET_NAMES QUALIFIED_VALUE RANK RM_NAME RM_VERSION SERVER_NSPACE SERVER_RANK SERVER_URI
    SESSION_ID SESSION_INFO SESSION_INFO_ARRAY TDIR_RMCLEAN TIMEOUT TMPDIR UNIV_SIZE VERSION_NUMERIC WDIR
"""

CLIENTS_KEYS = frozenset(_CLIENTS_KEYS.split())
"""The keys that a client of the Python engine reads, most of them when it starts; the others would cost it more."""

STATUSES_HEAD = '''\
# Generated by native/vocabulary/generate.py from native/vocabulary/constants.tsv and own.tsv: edit those.
"""Statuses and event codes as plain ints: cheap to import, unlike the enums `Status` and `EventCode`."""

'''

CODES_HEAD = '''\
# Generated by native/vocabulary/generate.py from native/vocabulary/constants.tsv: edit that.
"""The numbers of the wire's data types as plain ints: cheap to import, unlike the enum `DataType`."""

'''


def read_own(*kinds: str) -> list[tuple[str, str, str]]:
    """Return name, value and meaning of the names of some kinds that the Standard does not have."""
    found = []
    for row_kind, name, value, meaning in rows("own.tsv", 4):
        if row_kind not in ("key", "name", "status"):
            raise BadTable(f"own.tsv: {name} is not a key, a name or a status")
        check_meaning(meaning, f"own.tsv: {name}")
        if row_kind in kinds:
            found.append((name, value, meaning))
    return found


def all_keys(attributes: list[Attribute]) -> dict[str, str]:
    """Return every key by its name, with those of the other releases and our own."""
    found: dict[str, str] = {}
    for row in attributes:
        found[row.name] = found[row.key[1:]] if row.key.startswith("=") else row.key
    for row in attributes:
        for release, key in check_versions(row.since, row.until, row.changed, row.name) if row.changed else ():
            found[f"{row.name}_{release.replace('.', '_')}"] = key
    return found | {name: key for name, key, _ in read_own("key", "name")}


def render_keys(attributes: list[Attribute]) -> str:
    found = all_keys(attributes)
    if CLIENTS_KEYS - found.keys():
        raise BadTable(f"CLIENTS_KEYS: {min(CLIENTS_KEYS - found.keys())} is not a key")
    lines = [f'{name} = "{key}"' for name, key in found.items() if name in CLIENTS_KEYS]
    table = [f"{name} {key}" for name, key in found.items() if name not in CLIENTS_KEYS]
    return KEYS_HEAD + "\n".join(lines) + "\n" + KEYS_TABLE + "\n".join(table) + '\n"""\n'


def render_keys_stub(attributes: list[Attribute]) -> str:
    lines = [f'{name}: Final = "{key}"' for name, key in all_keys(attributes).items()]
    for name, key, meaning in read_own("key", "name"):
        at = lines.index(f'{name}: Final = "{key}"')
        lines[at + 1 : at + 1] = [f"# {line}" for line in textwrap.wrap(meaning, WIDTH - 2)]
    return KEYS_STUB_HEAD + "\n".join(lines) + "\n"


def render_numbers(head: str, enums: set[str], constants: list[Constant], own: list[tuple[str, str, str]]) -> str:
    """Return a module with the members of enumerations as plain ints."""
    lines = []
    for constant in constants:
        if enums.isdisjoint(constant.enums) or constant.name == "DATA_TYPE_MAX":  # a bound, not a type
            continue
        value = constant.value[1:] if constant.value.startswith("=") else literal(constant.value)
        lines.append(f"{constant.members[0]} = {value}")
    for name, value, meaning in own:
        lines += [f"{name} = {int(value)}", *comment(meaning, "")]
    return head + "\n".join(lines) + "\n"


FEATURES_HEAD = '''\
# Generated by native/vocabulary/generate.py from native/vocabulary/features.tsv: edit that.
"""The features that `supports` tells of, and their meanings. Which engine has which is the engines' affair."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

'''

CHECK_FEATURE = '''\
def check(feature: str) -> None:
    """Refuse a name that no feature has.

    Raises:
        ValueError: There is no such feature; the text says which name is nearest.
    """
    if feature not in FEATURES:
        from difflib import get_close_matches

        near = get_close_matches(str(feature), FEATURES, 1)
        hint = f"did you mean {near[0]!r}?" if near else "pypmix.standard.features.FEATURES lists them"
        raise ValueError(f"there is no feature {feature!r}; {hint}")
'''


def render_features() -> str:
    found = rows("features.tsv", 2)
    for name, meaning in found:
        check_meaning(meaning, f"features.tsv: {name}")
    if len(dict(found)) != len(found):
        raise BadTable("features.tsv: a name stands twice")
    lines = ["    Feature = Literal[", *(f'        "{name}",' for name, _ in found), "    ]", "", "FEATURES = {"]
    lines += [*(f'    "{name}": "{meaning}",' for name, meaning in found), "}", "", ""]
    return FEATURES_HEAD + "\n".join(lines) + "\n" + CHECK_FEATURE


def render() -> dict[Path, str]:
    """Return the text of each generated module."""
    enums = [Enumeration(*cells) for cells in rows("enums.tsv", 4)]
    constants = read_constants(enums)
    numbers = {row.members[0]: int(row.value) for row in constants if "DataType" in row.enums and row.value[0] != "="}
    attributes = read_attributes(numbers)
    return {
        STANDARD / "enums.py": render_enums(enums, constants),
        STANDARD / "attrs.pyi": render_attrs_stub(attributes, numbers),
        STANDARD / "dictionary.py": render_dictionary(attributes, numbers),
        STANDARD / "names.py": render_names(constants),
        STANDARD / "features.py": render_features(),
        STANDARD / "keys.py": render_keys(attributes),
        STANDARD / "keys.pyi": render_keys_stub(attributes),
        STANDARD / "statuses.py": render_numbers(STATUSES_HEAD, {"Status", "EventCode"}, constants, read_own("status")),
        STANDARD / "codes.py": render_numbers(CODES_HEAD, {"DataType"}, constants, []),
    }


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        modules = render()
    except BadTable as error:
        print(error, file=sys.stderr)
        return 1
    stale = [path for path, text in modules.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if arguments:
            print(f"{path.name} is not what the tables say; run native/vocabulary/generate.py", file=sys.stderr)
        else:
            path.write_text(modules[path], encoding="utf-8")
    return 1 if arguments and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
