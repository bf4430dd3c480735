"""`pypmix doctor` says which engines and libraries there are, what a client would take and why, and what to change."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from lib import machine
from lib.command import ROOT, Command

FAKE = b"\x7fELF\x02" + bytes(11) + b"text OpenPMIx 5.0.8, repo rev\0more"

SHAPE: dict[str, Any] = {
    "usable": bool,
    "pypmix": str,
    "python": {"version": str, "executable": str},
    "engines": [{"name": str, "usable": bool, "reason": str}],
    "libraries": [{"path": str, "origin": str, "version": str, "release": str, "generation": str}],
    "refused": [{"path": str, "origin": str, "reason": str}],
    "kernel": {"tells_owners": bool, "reason": str},
    "settings": dict,
    "launcher": object,
    "verdict": {"engine": object, "reason": str, "library": object, "note": str},
    "metadata": [{"name": str, "version": str, "path": str, "own": bool}],
    "warnings": [str],
    "fixes": [str],
    "next": str,
}


def check(shape: Any, data: Any, where: str = "") -> None:
    """Fail unless the data has the shape: its keys and no others, and the types."""
    if isinstance(shape, dict):
        assert set(shape) == set(data), where
        for key in shape:
            check(shape[key], data[key], f"{where}.{key}")
    elif isinstance(shape, list):
        assert isinstance(data, list), where
        for item in data:
            check(shape[0], item, f"{where}[]")
    else:
        assert isinstance(data, shape), where


def diagnose(command: Command, code: int = 0, **env: str) -> dict[str, Any]:
    ended = command("doctor", "--json", env=env)
    assert ended.code == code, ended.err
    assert ended.err == b""
    found: dict[str, Any] = json.loads(ended.out)
    check(SHAPE, found)
    return found


def server(release: str) -> dict[str, str]:
    return {
        "PMIX_NAMESPACE": "job@1",
        "PMIX_RANK": "3",
        "PMIX_SERVER_URI41": "srv.0;tcp4://127.0.0.1:9",
        "PMIX_SERVER_URI4": "srv.0;tcp4://127.0.0.1:9",
        "PMIX_VERSION": release,
        "PMIX_GDS_MODULE": "shmem2,hash",
        "PMIX_SECURITY_MODE": "munge,native",
    }


@pytest.fixture
def without_extension(command: Command) -> Command:
    """pypmix as it is installed where there was no C compiler."""
    shutil.copytree(
        ROOT / "pypmix", command.folder / "site" / "pypmix", ignore=shutil.ignore_patterns("_ffi*", "__pycache__")
    )
    command.environment["PYTHONPATH"] = str(command.folder / "site")
    return command


def test_a_lone_process(command: Command) -> None:
    found = diagnose(command)
    assert found["usable"] is True
    assert found["launcher"] is None
    assert found["verdict"]["engine"] == "python"
    assert found["engines"][0] == {
        "name": "python",
        "usable": True,
        "reason": "needs no library; speaks OpenPMIx's own protocol, releases 4.2 to 7",
    }
    assert found["python"]["executable"] == sys.executable


def test_a_rank_of_a_pypmix_job(command: Command) -> None:
    ended = command("run", sys.executable, "-m", "pypmix", "doctor", "--json")
    found = json.loads(ended.out)
    check(SHAPE, found)
    assert found["launcher"]["pypmix"] == found["pypmix"]
    assert found["launcher"]["rank"] == "0"
    assert found["launcher"]["uris"]
    assert found["verdict"]["engine"] == "python"


def test_a_library_that_is_asked_for(command: Command) -> None:
    library = command.folder / "libpmix.so.2"
    library.write_bytes(FAKE)
    found = diagnose(command, PYPMIX_LIBPMIX=str(library))
    assert found["settings"] == {"PYPMIX_LIBPMIX": str(library)}
    assert found["libraries"] == [
        {
            "path": str(library),
            "origin": "PYPMIX_LIBPMIX",
            "version": "OpenPMIx 5.0.8",
            "release": "5.0.8",
            "generation": "5.0",
        }
    ]


def test_the_launcher_and_a_library_of_its_generation(command: Command) -> None:
    library = command.folder / "libpmix.so.2"
    library.write_bytes(FAKE)
    found = diagnose(command, PYPMIX_LIBPMIX=str(library), **server("5.0.11rc1"))
    assert found["launcher"] == {
        "nspace": "job@1",
        "rank": "3",
        "server": "srv.0",
        "release": "5.0.11rc1",
        "pypmix": None,
        "generation": "5.0",
        "gds": "shmem2,hash",
        "psec": "munge,native",
        "buffer_type": "",
        "uris": {"PMIX_SERVER_URI4": "srv.0;tcp4://127.0.0.1:9", "PMIX_SERVER_URI41": "srv.0;tcp4://127.0.0.1:9"},
        "lacks": [],
    }
    native = found["engines"][1]["usable"]
    assert found["verdict"]["engine"] == ("native" if native else "python")
    assert found["verdict"]["library"] == (str(library) if native else None)


def test_what_slurm_lacks_is_listed(command: Command) -> None:
    found = diagnose(command, **{**server("4.2.2"), "PMIX_NAMESPACE": "slurm.pmix.3.0"})
    assert "Slurm's PMIx plugin answers no queries" in found["launcher"]["lacks"]


def test_a_launcher_of_another_generation(command: Command) -> None:
    library = command.folder / "libpmix.so.2"
    library.write_bytes(FAKE)
    found = diagnose(command, PYPMIX_LIBPMIX=str(library), **server("6.1.0"))
    assert found["verdict"]["engine"] == "python"
    assert "generation" in found["verdict"]["note"]
    if found["engines"][1]["usable"]:
        assert "generation 6+" in found["verdict"]["reason"]
        assert any("PYPMIX_LIBPMIX" in fix and "6+" in fix for fix in found["fixes"])


def test_a_library_that_is_refused(command: Command) -> None:
    text = command.folder / "libpmix.so.2"
    text.write_text("INPUT(-lpmix)")
    found = diagnose(command, PYPMIX_LIBPMIX=str(text))
    assert found["libraries"] == []
    assert found["refused"] == [{"path": str(text), "origin": "PYPMIX_LIBPMIX", "reason": "it is not a shared library"}]
    assert found["engines"][1]["usable"] is False


def test_a_requested_engine_that_cannot_be_used_is_a_failure(command: Command) -> None:
    found = diagnose(command, 1, PYPMIX_ENGINE="native", PYPMIX_LIBPMIX="/no/such/libpmix.so.2")
    assert found["usable"] is False
    assert found["verdict"]["engine"] is None
    assert found["fixes"]


def test_limits_that_cannot_be_read_are_told_with_the_rest(command: Command) -> None:
    ended = command("doctor", env={"PYPMIX_LIMITS": "commited=64M"})
    assert ended.code == 2
    assert "PYPMIX_LIMITS: 'commited' is not a limit" in ended.err.decode()
    assert "verdict " in ended.out.decode()
    assert ended.lines[-1].startswith("to do") and "'commited' is not a limit" in ended.lines[-1]


@pytest.mark.parametrize(
    ("env", "code", "line"),
    [
        ({}, 0, "ready          jobs and clients run here"),
        ({"PYPMIX_ENGINE": "fast"}, 1, "to do          unset PYPMIX_ENGINE, or set it to python, native or auto"),
        ({"PMIX_NAMESPACE": "left@1", "PMIX_RANK": "0"}, 0, "to do          unset PMIX_NAMESPACE: it names a job,"),
    ],
)
def test_the_last_line_is_the_conclusion(command: Command, env: dict[str, str], code: int, line: str) -> None:
    ended = command("doctor", env=env)
    assert ended.code == code and ended.lines[-1].startswith(line), ended
    assert sum(each.startswith(("ready ", "to do ")) for each in ended.lines) == 1
    assert diagnose(command, code, **env)["next"] == ended.lines[-1].removeprefix("to do").strip() * (line[0] == "t")


def test_an_engine_that_does_not_exist(command: Command) -> None:
    found = diagnose(command, 1, PYPMIX_ENGINE="fast")
    assert "'fast'" in found["verdict"]["reason"]
    assert found["fixes"][0] == "unset PYPMIX_ENGINE, or set it to python, native or auto"


def test_a_job_without_a_server(command: Command) -> None:
    found = diagnose(command, PMIX_NAMESPACE="left@1", PMIX_RANK="0")
    assert any("PMIX_NAMESPACE" in fix for fix in found["fixes"])


def test_without_the_extension(without_extension: Command) -> None:
    ended = without_extension("doctor")
    assert ended.code == 0
    text = ended.out.decode()
    assert "native engine not built" in text
    assert "install a C compiler and reinstall" in text
    found = diagnose(without_extension)
    assert found["usable"] is True
    assert found["engines"][1]["usable"] is False
    assert found["verdict"]["engine"] == "python"
    assert any("C compiler" in fix for fix in found["fixes"])


def test_without_the_extension_the_native_engine_cannot_be_asked_for(without_extension: Command) -> None:
    found = diagnose(without_extension, 1, PYPMIX_ENGINE="native")
    assert "C compiler" in found["verdict"]["reason"]
    assert found["fixes"][0] == "unset PYPMIX_ENGINE, or set it to python"


@pytest.mark.parametrize("kind", ["egg-info", "dist-info"])
def test_the_official_binding_is_warned_of(command: Command, kind: str) -> None:
    packages = command.folder / "packages"
    if kind == "egg-info":
        packages.mkdir()
        (packages / "pypmix-4.2.2.egg-info").write_text("Metadata-Version: 1.0\nName: pypmix\nVersion: 4.2.2\n")
    else:
        (packages / "pypmix-4.2.2.dist-info").mkdir(parents=True)
        (packages / "pypmix-4.2.2.dist-info" / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: pypmix\nVersion: 4.2.2\n"
        )
    path = f"{command.environment['PYTHONPATH']}:{packages}"
    found = diagnose(command, PYTHONPATH=path)
    assert {"name": "pypmix", "version": "4.2.2", "path": str(packages), "own": False} in found["metadata"]
    (warning,) = found["warnings"]
    assert f"the official binding (`import pmix`, distribution pypmix 4.2.2) is in {packages}: neither" in warning
    assert "WARNING" in command("doctor", env={"PYTHONPATH": path}).out.decode()


@pytest.mark.parametrize("name", ["pypmix", "pypmix-hpc"])
def test_own_metadata_is_no_reason_for_a_warning(command: Command, name: str) -> None:
    folder = command.folder / "packages" / f"{name.replace('-', '_')}-2027.1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2027.1.0\n")
    found = diagnose(command, PYTHONPATH=f"{command.environment['PYTHONPATH']}:{folder.parent}")
    assert found["warnings"] == []


def test_text_into_a_pipe_is_not_wrapped(command: Command) -> None:
    library = command.folder / ("x" * 120) / "libpmix.so.2"
    library.parent.mkdir()
    library.write_bytes(FAKE)
    ended = command("doctor", env={"PYPMIX_LIBPMIX": str(library), "COLUMNS": "80", **server("5.0.1")})
    lines = ended.lines
    assert [line.split("  ")[0] for line in lines[:3]] == ["pypmix", "python engine", "native engine"]
    assert any(str(library) in line for line in lines)
    assert any("srv.0;tcp4://127.0.0.1:9" in line for line in lines)
    assert not any("\x1b" in line or line != line.rstrip() for line in lines)


def test_whether_the_kernel_tells_whose_a_connection_is(command: Command) -> None:
    assert diagnose(command)["kernel"] == {"tells_owners": True, "reason": ""}
    assert any(line.startswith("kernel") and "tells whose" in line for line in command("doctor").lines)


def test_a_kernel_that_does_not_tell_whose_a_connection_is(command: Command) -> None:
    if not machine.answer("unshare", "--user", "echo", "inside"):
        machine.lacking("user namespaces")
    process = command.start_shell(f"exec unshare --user {sys.executable} -m pypmix doctor")
    lines = command.end(process).lines
    assert any("does not tell whose" in line and "user namespace" in line for line in lines), lines
    assert any("PYPMIX_SECURITY=munge" in line for line in lines)


def test_the_text_says_what_the_json_says(command: Command) -> None:
    found = diagnose(command)
    text = command("doctor").out.decode()
    for part in (found["pypmix"], found["verdict"]["reason"], *[each["path"] for each in found["libraries"]]):
        assert part in text


def test_a_terminal_is_filled_and_not_overrun(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "typescript"
    line = f"stty cols 60; {sys.executable} -m pypmix doctor"
    script = shutil.which("script")
    if script is None:
        pytest.skip("the program script(1) is missing")
    process = command.start_shell(f"{script} -qec '{line}' {out} > /dev/null")
    assert command.end(process).code == 0
    text = out.read_text(errors="replace")
    import re

    lines = [re.sub(r"\x1b\[[0-9;]*m", "", each).rstrip() for each in text.splitlines()[1:-1]]
    assert any("python engine" in each for each in lines)
    assert max(map(len, lines)) <= 60
