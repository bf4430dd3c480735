"""The Standard's names have the numbers, keys, types and releases that the libraries' headers give them."""

from __future__ import annotations

import ast
import copy
import enum
import importlib.util
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pypmix
from pypmix.standard import attrs, codes, enums
from pypmix.standard.attr import Attr
from pypmix.standard.enums import DataType, EventCode, Status

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = ROOT / "native" / "vocabulary"
CLASSES: list[type[enum.IntEnum | enum.IntFlag]] = [
    member for member in (getattr(enums, name) for name in enums.__all__) if isinstance(member, type)
]
OPEN = [cls for cls in CLASSES if issubclass(cls, enum.IntEnum)]
FLAGS = [cls for cls in CLASSES if issubclass(cls, enum.IntFlag)]
ATTRIBUTES: list[Attr[Any]] = [getattr(attrs, name) for name in attrs.__all__ if name != "by_key"]


def load_generator() -> Any:
    spec = importlib.util.spec_from_file_location("vocabulary_generator", VOCABULARY / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_generator()


def test_the_modules_are_what_the_tables_say() -> None:
    done = subprocess.run(
        [sys.executable, str(VOCABULARY / "generate.py"), "--check"],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr


BAD_LINES = [
    ("attributes.tsv", "ODD\tpmix.odd\tSTRNG\t4.2\t\t\tA typing error.", "unknown type"),
    ("attributes.tsv", "ODD\tpmix.odd\tINT:PROC\t4.2\t\t\tNo array.", "only an array"),
    ("attributes.tsv", "ODD\tpmix.odd\tINT\t4.3\t\t\tNo such branch.", "no branch"),
    ("attributes.tsv", "ODD\tpmix.odd\tINT\t5.0.12\t\t\tNo such release.", "no release"),
    ("attributes.tsv", "ODD\tpmix.odd\tINT\t6.0,5.0.1\t\t\tFloors out of order.", "rising branches"),
    ("attributes.tsv", "ODD\tpmix.odd\tINT\t4.2\t\t\t", "a meaning is"),
    ("attributes.tsv", "ODD\tpmix.timeout\tINT\t4.2\t\t\tA key that is taken.", "belongs to TIMEOUT"),
    ("attributes.tsv", "TIMEOUT\tpmix.odd\tINT\t4.2\t\t\tA name that is taken.", "stands twice"),
    ("attributes.tsv", "ODD\t=NOBODY\t\t4.2\t\t\tAn alias of nothing.", "an alias names"),
    ("constants.tsv", "Status\tODD\tODD\t-24\t4.2\t\t\tA number that is taken.", "declare an alias"),
    ("constants.tsv", "Statuses\tODD\tODD\t-9\t4.2\t\t\tNo such enum.", "unknown enum"),
    ("constants.tsv", "Status\tODD\tODD\t-2999\t4.2\t\tA column is missing.", "7 columns"),
]


@pytest.mark.parametrize(("table", "line", "problem"), BAD_LINES)
def test_a_bad_line_is_refused(
    table: str, line: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in VOCABULARY.glob("*.tsv"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(generate, "HERE", tmp_path)
    generate.render()
    with (tmp_path / table).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(generate.BadTable, match=re.escape(problem)):
        generate.render()


def test_type_checkers_read_the_same_members() -> None:
    for node in ast.walk(ast.parse(Path(enums.__file__).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ClassDef) or node.name not in enums.__all__:
            continue
        cls = getattr(enums, node.name)
        body = [statement for statement in node.body if isinstance(statement, ast.Assign)]
        shown: dict[str, int] = {}
        for assignment in body:
            shown[ast.unparse(assignment.targets[0])] = eval(ast.unparse(assignment.value), {}, shown)
        assert shown == {name: int(member) for name, member in cls.__members__.items()}, node.name
        assert [ast.unparse(base) for base in node.bases] == [cls.__base__.__name__]
        assert cls.__doc__ == ast.get_docstring(node)
        assert (cls.__module__, cls.__qualname__) == (enums.__name__, node.name)


def test_threads_that_race_for_a_class_get_the_same_one() -> None:
    program = """
import sys, threading
from pypmix.standard import enums
sys.setswitchinterval(1e-6)
start, made = threading.Barrier(8), []
def get():
    start.wait()
    made.append(enums.Status)
threads = [threading.Thread(target=get) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(made) == 8 and len(set(map(id, made))) == 1 and made[0] is enums.Status
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr


def test_classes_that_are_not_made_yet_are_listed() -> None:
    program = "from pypmix.standard import enums; assert set(enums.__all__) <= set(dir(enums)), dir(enums)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, timeout=30)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Sttaus'"):
        getattr(enums, "Sttaus")  # noqa: B009


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_members_keep_their_numbers(cls: type[enum.IntEnum]) -> None:
    for name, member in cls.__members__.items():
        assert cls(int(member)) is member
        assert cls[name] is member
        assert pickle.loads(pickle.dumps(member)) is member


@pytest.mark.parametrize("cls", OPEN, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("number", [-9999, -(2**31), -2999, 499, 9999, 2**31, 2**63])
def test_an_unknown_number_has_a_member(cls: type[enum.IntEnum], number: int) -> None:
    known = len(cls)
    member = cls(number)
    assert isinstance(member, cls)
    assert member == number and hash(member) == hash(number) and member.value == number
    prefix = "CUSTOM" if cls is EventCode and number < -3000 else "UNKNOWN"
    assert member.name == f"{prefix}_N{-number}" if number < 0 else f"UNKNOWN_{number}"
    assert pickle.loads(pickle.dumps(member)) == member == copy.deepcopy(member)
    assert member.name in repr(member) and str(member) == f"{member}" == member.name
    assert f"{member:d}" == f"{member.value}" == str(number)
    assert len(cls) == known and number not in list(cls)


@pytest.mark.parametrize("cls", FLAGS, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("number", [0, 1 << 14, (1 << 15) | 1, 1 << 62, 2**64 - 1])
def test_unknown_bits_are_kept(cls: type[enum.IntFlag], number: int) -> None:
    member = cls(number)
    assert isinstance(member, cls) and member == number
    assert repr(member) and pickle.loads(pickle.dumps(member)) == number


@pytest.mark.parametrize("cls", OPEN, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("value", ["ERR_TIMEOUT", None, 1.5, object()])
def test_what_is_no_number_has_no_member(cls: type[enum.IntEnum], value: Any) -> None:
    with pytest.raises(ValueError):
        cls(value)


def test_an_applications_own_event_code() -> None:
    code = EventCode.custom(-4242)
    assert isinstance(code, EventCode) and code == -4242 == EventCode(-4242)
    assert code.name == "CUSTOM_N4242"
    assert EventCode.custom(-3001) == -3001
    assert EventCode.custom(-(2**31)) == -(2**31)


@pytest.mark.parametrize("code", [-3000, -2999, -24, 0, 1, 4242, -(2**31) - 1])
def test_a_code_that_is_not_an_applications_is_refused_with_the_bounds(code: int) -> None:
    with pytest.raises(ValueError, match=r"between -2147483648 and -3001"):
        EventCode.custom(code)


@pytest.mark.parametrize("code", [True, "x", -4242.0, None])
def test_a_code_that_is_no_int_is_refused(code: Any) -> None:
    with pytest.raises(TypeError, match="an event code is an int"):
        EventCode.custom(code)


def test_the_codes_of_the_wire_are_the_data_types() -> None:
    wire = {name: number for name, number in vars(codes).items() if name.isupper() and isinstance(number, int)}
    unknown = {name: number for name, number in wire.items() if DataType(number).name.startswith("UNKNOWN")}
    assert not unknown
    assert {number for number in DataType if number != DataType.DATA_TYPE_MAX} == set(wire.values())


def test_every_attribute_has_types_and_its_own_key() -> None:
    types = {int(type_) for type_ in DataType} - {int(DataType.DATA_TYPE_MAX)}
    for attr in ATTRIBUTES:
        assert attr.types and types.issuperset(attr.types), attr.name
        assert attr.element is None or (attr.element in types and DataType.DATA_ARRAY in attr.types), attr.name
        assert len(attr.key.encode()) <= enums.MAX_KEYLEN and attr.key.startswith("pmix."), attr.name
    newest = [attr.key_for((7, 0, 0)) for attr in unique(ATTRIBUTES)]
    assert len(newest) == len(set(newest))


def unique(found: list[Attr[Any]]) -> list[Attr[Any]]:
    """Return attributes without the second names of the same object; equality goes by key, so it cannot decide."""
    return list({id(attr): attr for attr in found}.values())


def test_every_name_has_a_meaning_of_its_own() -> None:
    for table, columns in (("attributes.tsv", 7), ("constants.tsv", 8), ("enums.tsv", 4)):
        for cells in generate.rows(table, columns):
            assert len(cells[-1]) > 4 and cells[-1].endswith("."), cells
            assert "TODO" not in cells[-1]


def test_a_key_leads_to_its_attribute() -> None:
    assert attrs.by_key("pmix.timeout") is attrs.TIMEOUT
    assert attrs.by_key("pmix.pdata") is attrs.PROC_INFO_ARRAY
    assert attrs.by_key("acme.load") is None
    assert attrs.by_key("") is None
    for attr in unique(ATTRIBUTES):
        assert attrs.by_key(attr.key_for((7, 0, 0))) is attr


def test_a_key_that_moved_belongs_to_its_newest_owner() -> None:
    assert attrs.by_key("pmix.fab.coord") is attrs.FABRIC_COORDINATES
    assert attrs.by_key("pmix.fabdev.coord") is attrs.FABRIC_DEVICE_COORDINATES
    assert attrs.by_key("pmix.jctrl.ckptsig") is attrs.JOB_CTRL_CHECKPOINT_SIGNAL
    assert attrs.by_key("pmix.qry.quals") is attrs.QUERY_QUALIFIERS
    assert attrs.by_key("pmix.evname") is attrs.EVENT_HDLR_NAME


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("PROC_DATA", "PROC_INFO_ARRAY"),
        ("ALLOC_NETWORK", "ALLOC_FABRIC"),
        ("ALLOC_NETWORK_ID", "ALLOC_FABRIC_ID"),
        ("ALLOC_NETWORK_QOS", "ALLOC_FABRIC_QOS"),
        ("ALLOC_NETWORK_TYPE", "ALLOC_FABRIC_TYPE"),
        ("ALLOC_NETWORK_PLANE", "ALLOC_FABRIC_PLANE"),
        ("ALLOC_NETWORK_ENDPTS", "ALLOC_FABRIC_ENDPTS"),
        ("ALLOC_NETWORK_ENDPTS_NODE", "ALLOC_FABRIC_ENDPTS_NODE"),
        ("ALLOC_NETWORK_SEC_KEY", "ALLOC_FABRIC_SEC_KEY"),
    ],
)
def test_a_deprecated_name_is_the_same_object(old: str, new: str) -> None:
    assert getattr(attrs, old) is getattr(attrs, new)


CONSTANTS = [
    (Status.SUCCESS, 0),
    (Status.ERROR, -1),
    (Status.ERR_EXISTS, -11),
    (Status.EXISTS, -11),
    (Status.ERR_INVALID_CRED, -12),
    (Status.ERR_WOULD_BLOCK, -15),
    (Status.ERR_UNPACK_FAILURE, -20),
    (Status.ERR_NO_PERMISSIONS, -23),
    (Status.ERR_TIMEOUT, -24),
    (Status.ERR_UNREACH, -25),
    (Status.ERR_BAD_PARAM, -27),
    (Status.ERR_INIT, -31),
    (Status.ERR_NOMEM, -32),
    (Status.ERR_NOT_FOUND, -46),
    (Status.ERR_NOT_SUPPORTED, -47),
    (Status.ERR_PARTIAL_SUCCESS, -52),
    (Status.ERR_LOST_CONNECTION, -61),
    (Status.OPERATION_SUCCEEDED, -157),
    (Status.ERR_LOST_PRECISION, -202),
    (Status.ERR_CHANGE_SIGN, -203),
    (Status.ERR_PROC_KILLED_BY_CMD, -400),
    (Status.ERR_IOF_XOFF, -405),
    (EventCode.ERR_LOST_CONNECTION, -61),
    (EventCode.DEBUGGER_RELEASE, -3),
    (EventCode.PROC_TERMINATED, -111),
    (EventCode.EVENT_PROC_TERMINATED, -201),
    (EventCode.EVENT_JOB_END, -145),
    (EventCode.GROUP_INVITED, -159),
    (EventCode.GROUP_LEFT, -160),
    (EventCode.GROUP_MEMBER_FAILED, -170),
    (EventCode.GROUP_LEADER_FAILED, -168),
    (EventCode.EVENT_NODE_DOWN, -231),
    (EventCode.ERR_NODE_DOWN, -231),
    (DataType.BOOL, 1),
    (DataType.STRING, 3),
    (DataType.UINT32, 14),
    (DataType.PROC, 22),
    (DataType.BYTE_OBJECT, 27),
    (DataType.DATA_ARRAY, 39),
    (DataType.PROC_RANK, 40),
    (DataType.DATA_BUFFER, 65),
    (DataType.NODE_PID, 73),
    (DataType.REGEX2, 74),
    (enums.Rank.UNDEF, 0xFFFFFFFF),
    (enums.Rank.WILDCARD, 0xFFFFFFFE),
    (enums.Rank.LOCAL_NODE, 0xFFFFFFFD),
    (enums.Rank.INVALID, 0xFFFFFFFC),
    (enums.Rank.LOCAL_PEERS, 0xFFFFFFFB),
    (enums.Rank.VALID, 0xFFFFFFCD),
    (enums.Scope.LOCAL, 1),
    (enums.Scope.REMOTE, 2),
    (enums.Scope.GLOBAL, 3),
    (enums.Scope.INTERNAL, 4),
    (enums.Range.NAMESPACE, 3),
    (enums.Range.SESSION, 4),
    (enums.Range.CUSTOM, 6),
    (enums.Range.PROC_LOCAL, 7),
    (enums.Range.INVALID, 255),
    (enums.Persist.INDEF, 0),
    (enums.Persist.SESSION, 4),
    (enums.ProcState.RUNNING, 5),
    (enums.ProcState.CALLED_ABORT, 58),
    (enums.JobState.TERMINATED, 20),
    (enums.LinkState.UP, 2),
    (enums.InfoFlags.REQUIRED, 1),
    (enums.InfoFlags.REQD, 1),
    (enums.InfoFlags.QUALIFIER, 8),
    (enums.AllocDirective.REQ_CANCEL, 5),
    (enums.AllocInheritance.DEFAULT, 3),
    (enums.ResBlockDirective.DELETE, 4),
    (enums.IOFChannel.STDOUT, 2),
    (enums.IOFChannel.ALL, 0xFF),
    (enums.DeviceType.GPU, 2),
    (enums.DeviceType.NODE, 0x400),
    (enums.Locality.SHARE_NODE, 0x4000),
    (enums.Locality.NONLOCAL, 0x8000),
    (enums.StorageMedium.NVME, 0x10),
    (enums.StorageAccess.CLUSTER, 0x10),
    (enums.StoragePersistence.ARCHIVE, 0x40),
    (enums.StorageAccessType.RDWR, 3),
    (enums.GroupOperation.CANCEL, 3),
    (enums.GroupOpt.ACCEPT, 1),
    (enums.CoordView.PHYSICAL, 2),
    (enums.ValueComparison.VALUE2_GREATER, 2),
    (enums.MAX_NSLEN, 255),
    (enums.MAX_KEYLEN, 511),
    (enums.EXTERNAL_ERR_BASE, -3000),
]


@pytest.mark.parametrize(("name", "number"), CONSTANTS, ids=repr)
def test_well_known_numbers(name: int, number: int) -> None:
    assert name == number


# Key, types, the first releases that know it, and the last before that do not.
FACTS: list[tuple[Attr[Any], str, list[DataType], list[tuple[int, int, int]], list[tuple[int, int, int]]]] = [
    (attrs.TIMEOUT, "pmix.timeout", [DataType.INT], [(4, 2, 0), (7, 0, 0)], []),
    (attrs.COLLECT_DATA, "pmix.collect", [DataType.BOOL], [(4, 2, 0), (5, 0, 7)], []),
    (attrs.IMMEDIATE, "pmix.immediate", [DataType.BOOL], [(4, 2, 0)], []),
    (attrs.OPTIONAL, "pmix.optional", [DataType.BOOL], [(4, 2, 0)], []),
    (attrs.JOB_SIZE, "pmix.job.size", [DataType.UINT32], [(4, 2, 0)], []),
    (attrs.UNIV_SIZE, "pmix.univ.size", [DataType.UINT32], [(4, 2, 0)], []),
    (attrs.LOCAL_PEERS, "pmix.lpeers", [DataType.STRING], [(4, 2, 0)], []),
    (attrs.LOCAL_RANK, "pmix.lrank", [DataType.UINT16], [(4, 2, 0)], []),
    (attrs.RANK, "pmix.rank", [DataType.PROC_RANK], [(4, 2, 0)], []),
    (attrs.NODEID, "pmix.nodeid", [DataType.UINT32], [(4, 2, 0)], []),
    (attrs.HOSTNAME, "pmix.hname", [DataType.STRING], [(4, 2, 0)], []),
    (attrs.PROCID, "pmix.procid", [DataType.PROC], [(4, 2, 0)], []),
    (attrs.PROC_PID, "pmix.ppid", [DataType.PID], [(4, 2, 0)], []),
    (attrs.GROUP_CONTEXT_ID, "pmix.grp.ctxid", [DataType.SIZE], [(4, 2, 0)], []),
    (attrs.PROC_STATE_STATUS, "pmix.proc.state", [DataType.PROC_STATE], [(4, 2, 0)], []),
    (attrs.EXIT_CODE, "pmix.exit.code", [DataType.INT], [(4, 2, 0)], []),
    (attrs.RANGE, "pmix.range", [DataType.DATA_RANGE], [(4, 2, 0)], []),
    (attrs.PERSISTENCE, "pmix.persist", [DataType.PERSIST], [(4, 2, 0)], []),
    (attrs.SET_ENVAR, "pmix.envar.set", [DataType.ENVAR], [(4, 2, 0)], []),
    (attrs.EVENT_TIMESTAMP, "pmix.evtstamp", [DataType.TIME], [(4, 2, 0)], []),
    (attrs.EVENT_CUSTOM_RANGE, "pmix.evrange", [DataType.PROC, DataType.DATA_ARRAY], [(4, 2, 0)], []),
    (attrs.CLIENT_AVG_MEMORY, "pmix.cl.mem.avg", [DataType.FLOAT], [(4, 2, 0)], []),
    (attrs.SORTED_PROC_ARRAY, "pmix.sorted.parr", [DataType.BOOL], [(4, 2, 1), (5, 0, 0)], [(4, 2, 0)]),
    (attrs.ALLOC_PREEMPTIBLE, "pmix.alloc.preempt", [DataType.BOOL], [(4, 2, 3), (5, 0, 0)], [(4, 2, 2)]),
    (
        attrs.JOB_CTRL_DEFINE_PSET,
        "pmix.jctrl.defpset",
        [DataType.STRING],
        [(4, 2, 6), (4, 2, 9), (5, 0, 1), (6, 0, 0), (7, 0, 0)],
        [(4, 2, 5), (5, 0, 0)],
    ),
    (
        attrs.VERSION_NUMERIC,
        "pmix.vers.num",
        [DataType.UINT32],
        [(4, 2, 8), (5, 0, 2), (6, 0, 0)],
        [(4, 2, 7), (5, 0, 1)],
    ),
    (
        attrs.QUERY_RESOLVE_PEERS,
        "pmix.qry.peers",
        [DataType.DATA_ARRAY],
        [(5, 0, 7), (6, 0, 0)],
        [(4, 2, 9), (5, 0, 6)],
    ),
    (
        attrs.REALUID,
        "pmix.ruid",
        [DataType.UINT32],
        [(5, 0, 9), (6, 1, 0)],
        [(4, 2, 9), (5, 0, 8), (6, 0, 0)],
    ),
    (attrs.GROUP_BOOTSTRAP, "pmix.grp.btstrp", [DataType.SIZE], [(6, 0, 0), (6, 1, 0)], [(5, 0, 11)]),
    (attrs.SPAWN_PTY, "pmix.spawn.pty", [DataType.BOOL], [(6, 1, 0), (7, 0, 0)], [(6, 0, 0)]),
    (attrs.IOF_INHERIT, "pmix.iof.inhrt", [DataType.BOOL], [(7, 0, 0)], [(6, 1, 0)]),
    (
        attrs.SESSION_PROVISION,
        "pmix.ssn.pvn",
        [DataType.DATA_ARRAY],
        [(5, 0, 0), (5, 0, 11)],
        [(4, 2, 9), (6, 0, 0), (7, 0, 0)],
    ),
]


@pytest.mark.parametrize(("attr", "key", "types", "known", "unknown"), FACTS, ids=lambda value: str(value)[:40])
def test_well_known_attributes(
    attr: Attr[Any],
    key: str,
    types: list[DataType],
    known: list[tuple[int, int, int]],
    unknown: list[tuple[int, int, int]],
) -> None:
    assert attr.key == key
    assert list(attr.types[: len(types)]) == types
    assert [release for release in known if not attr.known_to(release)] == []
    assert [release for release in unknown if attr.known_to(release)] == []


@pytest.mark.parametrize(
    ("attr", "release", "key"),
    [
        (attrs.FABRIC_DEVICE_COORDINATES, (4, 2, 0), "pmix.fab.coord"),
        (attrs.FABRIC_DEVICE_COORDINATES, (6, 1, 0), "pmix.fab.coord"),
        (attrs.FABRIC_DEVICE_COORDINATES, (7, 0, 0), "pmix.fabdev.coord"),
        (attrs.JOB_CTRL_CHECKPOINT_TIMEOUT, (5, 0, 11), "pmix.jctrl.ckptsig"),
        (attrs.JOB_CTRL_CHECKPOINT_TIMEOUT, (7, 0, 0), "pmix.jctrl.ckpttime"),
        (attrs.QUERY_SUPPORTED_QUALIFIERS, (6, 0, 0), "pmix.qry.quals"),
        (attrs.QUERY_SUPPORTED_QUALIFIERS, (7, 0, 0), "pmix.qry.supqual"),
        (attrs.PROGRESS_THREAD_NAME, (6, 1, 0), "pmix.evname"),
        (attrs.PROGRESS_THREAD_NAME, (7, 0, 0), "pmix.pthrdnm"),
        (attrs.TIMEOUT, (7, 0, 0), "pmix.timeout"),
    ],
)
def test_keys_that_changed(attr: Attr[Any], release: tuple[int, int, int], key: str) -> None:
    assert attr.key_for(release) == key


def installed_headers() -> Path | None:
    places = [Path("/usr/include"), *Path("/usr/lib").glob("*/pmix*/include")]
    try:
        asked = subprocess.run(
            ["pkg-config", "--variable=includedir", "pmix"],
            check=False,
            capture_output=True,
            text=True,
            timeout=10,
        )
        if asked.stdout.strip():
            places.insert(0, Path(asked.stdout.strip()))
    except OSError:
        pass
    return next((place for place in places if (place / "pmix_common.h").exists()), None)


def header_names(folder: Path) -> dict[str, int | str]:
    """Return what the headers define, by name without `PMIX_`: macros with a value, and the members of enums."""
    text = "".join((folder / f"pmix_{name}.h").read_text() for name in ("common", "deprecated", "server", "tool"))
    text = re.sub(r"/\*.*?\*/", " ", text.replace("\\\n", " "), flags=re.DOTALL)
    text = re.sub(r'("[^"\n]*")|//[^\n]*', lambda found: found[1] or "", text)
    raw: dict[str, str] = dict(
        re.findall(r"^[ \t]*#[ \t]*define[ \t]+(PMIX_\w+)[ \t]+(\S.*?)[ \t]*$", text, re.MULTILINE)
    )
    for body in re.findall(r"\benum\b[^{;]*\{([^}]*)\}", text):
        previous = "-1"
        for item in filter(None, map(str.strip, body.split(","))):
            name, _, value = map(str.strip, item.partition("="))
            raw[name] = previous = value or f"({previous} + 1)"

    def number(expression: str) -> int | None:
        expression = expression.replace("UINT32_MAX", "0xffffffff").replace("UINT8_MAX", "0xff")
        expression = re.sub(r"PMIX_\w+", lambda name: f"({number(raw.get(name[0], '?'))})", expression)
        return int(eval(expression, {"__builtins__": {}})) if re.fullmatch(r"[-+() 0-9a-fA-FxX]+", expression) else None

    found: dict[str, int | str] = {}
    for name, expression in raw.items():
        defined = expression[1:-1] if re.fullmatch(r'"[^"]*"', expression) else number(expression)
        if defined is not None:
            found[name.removeprefix("PMIX_")] = defined
    return found


def test_the_installed_headers_agree() -> None:
    folder = installed_headers()
    if folder is None:
        pytest.skip("needs the headers of PMIx (Debian package libpmix-dev)")
    version = dict(
        re.findall(r"#define PMIX_VERSION_(MAJOR|MINOR|RELEASE) (\d+)", (folder / "pmix_version.h").read_text())
    )
    release = (int(version["MAJOR"]), int(version["MINOR"]), int(version["RELEASE"]))
    if release[:2] not in generate.BRANCHES:
        pytest.skip(f"the installed headers are of {release}, which the tables do not know")
    theirs = header_names(folder)
    ours: dict[str, int | str] = {}
    for row in generate.rows("attributes.tsv", 7):
        attr = getattr(attrs, row[0])
        if attr.known_to(release):
            ours[row[0]] = attr.key_for(release)
    for enum_names, member, name, _value, since, until, changed, _meaning in generate.rows("constants.tsv", 8):
        if not Attr(name, "", (), since, None, until or None).known_to(release):
            continue
        for enum_name in enum_names.split():
            place = enums if enum_name == "-" else getattr(enums, enum_name)
            value = getattr(place, member.split()[0])
            for change in filter(None, changed.split(",")):
                floor, _, number = change.partition("=")
                if release >= tuple(map(int, floor.split("."))):
                    value = int(number)
            ours[name] = value
    # How the headers were configured, not a name of the interface.
    theirs.pop("HAVE_VISIBILITY", None)
    assert sorted(theirs.keys() - ours.keys()) == []
    assert len(theirs) > 850
    assert {name: (value, theirs.get(name)) for name, value in ours.items() if theirs.get(name) != value} == {}


def test_every_enum_is_on_the_page_of_constants() -> None:
    assert ".. vocabulary-enums::" in (ROOT / "docs" / "reference" / "attributes.md").read_text()
    page = {row.partition("\t")[0] for row in (ROOT / "native" / "vocabulary" / "enums.tsv").read_text().splitlines()}
    exported = [getattr(module, name) for module in (pypmix, pypmix.types) for name in dir(module)]
    enums = [
        each.__name__ for each in exported if isinstance(each, type) and issubclass(each, enum.IntEnum | enum.IntFlag)
    ]
    assert len(enums) > 20
    assert [name for name in enums if name not in page] == []
