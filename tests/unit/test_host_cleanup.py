"""Proves that clean-up removes what was asked for, and nothing of others, behind links, or that must stay."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pypmix.host import cleanup
from pypmix.standard import attrs
from pypmix.standard.enums import Status
from pypmix.standard.errors import PermissionDenied, PMIxError
from pypmix.standard.types import Info, Proc

UID = os.geteuid()


@pytest.fixture
def host(tmp_path: Path) -> Any:
    home = tmp_path / "home"
    work = tmp_path / "work"
    own = tmp_path / "tmp" / "host"
    for folder in (home, work, own):
        folder.mkdir(parents=True)
    return SimpleNamespace(
        machine=SimpleNamespace(env={"HOME": str(home)}, tmpdir=str(own), wdir=str(work)),
        jobs={},
        at_rank_end=[],
        at_job_end=[],
    )


def tree(top: Path) -> Path:
    """Make a folder with files, a folder in it, an empty one, and links to what is outside."""
    (top / "inner").mkdir(parents=True)
    (top / "hollow").mkdir()
    outside = top.parent / "outside"
    outside.mkdir()
    for path in (top / "a", top / "b", top / "inner" / "c", outside / "precious"):
        path.write_text("x")
    (top / "file-link").symlink_to(outside / "precious")
    (top / "folder-link").symlink_to(outside)
    return outside


def removed(host: Any, *infos: Info) -> None:
    wish = cleanup.read(host, infos, UID)
    assert wish is not None
    cleanup.carry_out(wish)


def left(top: Path) -> list[str]:
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def test_files(host: Any, tmp_path: Path) -> None:
    outside = tree(tmp_path / "top")
    top = tmp_path / "top"
    removed(host, attrs.REGISTER_CLEANUP(f"{top}/a,{top}/file-link,{top}/inner,{top}/gone"))
    assert left(top) == ["b", "folder-link", "hollow", "inner", "inner/c"]
    assert (outside / "precious").exists()


def test_a_folder_loses_its_own_files(host: Any, tmp_path: Path) -> None:
    outside = tree(tmp_path / "top")
    removed(host, attrs.REGISTER_CLEANUP_DIR(str(tmp_path / "top")))
    assert left(tmp_path / "top") == ["hollow", "inner", "inner/c"]
    assert (outside / "precious").exists()


def test_a_whole_tree(host: Any, tmp_path: Path) -> None:
    outside = tree(tmp_path / "top")
    removed(host, attrs.REGISTER_CLEANUP_DIR(str(tmp_path / "top")), attrs.CLEANUP_RECURSIVE(True))
    assert not (tmp_path / "top").exists()
    assert (outside / "precious").exists()


def test_the_top_stays_if_it_is_to(host: Any, tmp_path: Path) -> None:
    tree(tmp_path / "top")
    directives = attrs.CLEANUP_RECURSIVE(True), attrs.CLEANUP_LEAVE_TOPDIR(True)
    removed(host, attrs.REGISTER_CLEANUP_DIR(str(tmp_path / "top")), *directives)
    assert left(tmp_path / "top") == []


def test_only_empty_folders(host: Any, tmp_path: Path) -> None:
    tree(tmp_path / "top")
    removed(host, attrs.REGISTER_CLEANUP_DIR(str(tmp_path / "top")), attrs.CLEANUP_EMPTY(True))
    assert left(tmp_path / "top") == ["a", "b", "file-link", "folder-link", "inner", "inner/c"]


def test_what_is_to_be_ignored(host: Any, tmp_path: Path) -> None:
    top = tmp_path / "top"
    tree(top)
    ignored = attrs.CLEANUP_IGNORE(f"b,{top}/inner/c")
    removed(host, attrs.REGISTER_CLEANUP_DIR(str(top)), attrs.CLEANUP_RECURSIVE(True), ignored)
    assert left(top) == ["b", "inner", "inner/c"]


def test_a_link_that_comes_later_leads_nowhere(host: Any, tmp_path: Path) -> None:
    outside = tree(tmp_path / "top")
    victim = tmp_path / "top" / "inner"
    wish = cleanup.read(
        host,
        (
            attrs.REGISTER_CLEANUP(str(victim / "precious")),
            attrs.REGISTER_CLEANUP_DIR(str(victim)),
            attrs.CLEANUP_RECURSIVE(True),
        ),
        UID,
    )
    (victim / "c").unlink()
    victim.rmdir()
    victim.symlink_to(outside)
    assert wish is not None
    cleanup.carry_out(wish)
    assert (outside / "precious").exists()


def test_a_path_through_a_link_of_today(host: Any, tmp_path: Path) -> None:
    tree(tmp_path / "top")
    (tmp_path / "way").symlink_to(tmp_path / "top")
    removed(host, attrs.REGISTER_CLEANUP(str(tmp_path / "way" / "a")))
    assert not (tmp_path / "top" / "a").exists()


def test_what_is_never_removed(host: Any, tmp_path: Path) -> None:
    (tmp_path / "to-home").symlink_to(tmp_path)
    for path in (
        "/",
        "//",
        "/.",
        "/etc",
        "/etc/",
        tmp_path,
        tmp_path / "home",
        tmp_path / "to-home" / "home",
        f"{tmp_path}/home/",
        tmp_path / "work",
        tmp_path / "tmp",
        tmp_path / "tmp" / "host",
        os.path.expanduser("~"),
    ):
        with pytest.raises(PMIxError) as caught:
            cleanup.read(host, (attrs.REGISTER_CLEANUP_DIR(str(path)),), UID)
        assert caught.value.code == Status.ERR_NO_PERMISSIONS, path


@pytest.mark.parametrize("path", ["a", "./a", "/tmp/../etc/passwd", "/tmp/a/..", "/tmp/" + "x" * 5000])
def test_paths_that_are_none(host: Any, path: str) -> None:
    for attribute in (attrs.REGISTER_CLEANUP, attrs.REGISTER_CLEANUP_DIR):
        with pytest.raises(PMIxError) as caught:
            cleanup.read(host, (attribute(path),), UID)
        assert caught.value.code == Status.ERR_BAD_PARAM


def test_what_belongs_to_others(host: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(PMIxError) as caught:
        cleanup.read(host, (attrs.REGISTER_CLEANUP(str(tmp_path / "file")),), UID + 1)
    assert isinstance(caught.value, PermissionDenied) or caught.value.code == Status.ERR_NO_PERMISSIONS
    wish = cleanup.read(host, (attrs.REGISTER_CLEANUP(str(tmp_path / "later")),), UID + 1)
    assert wish is not None
    (tmp_path / "later").write_text("x")
    cleanup.carry_out(wish)
    assert (tmp_path / "later").exists()


def test_it_waits_for_all_whom_it_names(host: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    cleanups = cleanup.Cleanups(host)
    wish = cleanup.read(host, (attrs.REGISTER_CLEANUP(str(tmp_path / "file")),), UID)
    assert wish is not None
    cleanups.add(wish, [Proc("job", 0), "other"])
    host.at_rank_end[0](None, SimpleNamespace(proc=Proc("job", 1)))
    host.at_rank_end[0](None, SimpleNamespace(proc=Proc("job", 0)))
    assert (tmp_path / "file").exists()
    host.at_job_end[0](SimpleNamespace(nspace="other"))
    assert not (tmp_path / "file").exists()


def test_it_is_bounded(host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "MAX_WAITING", 3)
    cleanups = cleanup.Cleanups(host)
    wish = cleanup.read(host, (attrs.REGISTER_CLEANUP(f"{tmp_path}/a,{tmp_path}/b"),), UID)
    assert wish is not None
    cleanups.add(wish, ["job"])
    with pytest.raises(PMIxError) as caught:
        cleanups.add(wish, ["job"])
    assert caught.value.code == Status.ERR_OUT_OF_RESOURCE
    host.at_job_end[0](SimpleNamespace(nspace="job"))
    cleanups.add(wish, ["job"])
