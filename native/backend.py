"""pypmix's build backend (PEP 517 and 660): setuptools, with the native engine's extension where it can be compiled.

Where cffi or a working C compiler is missing the wheel is built all the same, without the extension, as
`py3-none-any`; it then has the Python engine only. `PYPMIX_BUILD_NATIVE=1` makes that an error, and
`PYPMIX_BUILD_NATIVE=0` leaves the extension out on purpose.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import setuptools
from setuptools import build_meta
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent.parent
CFFI = "cffi>=1.17"
ABI = "cp311"
SHIPPED = ("native", "tests", "docs", "changes", "deploy", ".github")
SHIPPED_FILES = (
    ".pre-commit-config.yaml",
    ".readthedocs.yaml",
    "CHANGELOG.md",
    "CITATION.cff",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "tox.ini",
)

# a free-threaded interpreter has no stable ABI to build against
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")


class NotBuilt(Exception):
    """The extension cannot be built here, and why."""


def _wanted() -> bool:
    # With an older Python pip only asks for the metadata, which say that it is too old.
    return os.environ.get("PYPMIX_BUILD_NATIVE") != "0" and sys.version_info >= (3, 11)


def _say(text: str) -> None:
    print(f"pypmix: {text}", file=sys.stderr, flush=True)


def _version() -> str:
    found: dict[str, str] = {}
    exec((ROOT / "pypmix" / "_version.py").read_text(), found)
    return found["__version__"]


def _readme() -> str:
    """Return the README as an index of packages shows it, where links to files of the repository lead nowhere."""
    # Not by tomllib: pip asks for the metadata to find out that a Python is too old, which has none.
    urls = dict(re.findall(r'(?m)^(Source|Documentation) = "(.+)"$', (ROOT / "pyproject.toml").read_text()))
    text = (ROOT / "README.md").read_text()
    text = re.sub(r"\]\((docs/[\w/-]+\.svg)\)", rf"]({urls['Source']}/raw/main/\1)", text)
    text = re.sub(r"\]\(docs/([\w/-]+)\.md", rf"]({urls['Documentation'].rstrip('/')}/\1.html", text)
    return re.sub(r"\]\((?!https?:|#)", f"]({urls['Source']}/blob/main/", text)


def _compiler() -> str:
    """Return the C compiler that setuptools would run, or raise `NotBuilt`."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    if not command or shutil.which(command[0]) is None:
        raise NotBuilt(f"there is no C compiler ({command[0] if command else 'CC is empty'})")
    return command[0]


def _extension(folder: Path) -> setuptools.Extension:
    try:
        import build_ffi
    except ImportError as error:
        raise NotBuilt(f"{error.name or 'cffi'} is not installed") from error
    source = folder / "_ffi.c"
    build_ffi.builder().emit_c_code(str(source))
    return setuptools.Extension(
        build_ffi.MODULE,
        sources=[str(source), *build_ffi.sources()],
        include_dirs=["native/shim"],
        depends=build_ffi.headers(),
        libraries=["dl", "pthread"] if sys.platform == "linux" else [],
        py_limited_api=LIMITED,
        define_macros=[] if LIMITED else [("_CFFI_NO_LIMITED_API", None)],
    )


def _compile(folder: Path) -> tuple[setuptools.Extension, Path]:
    """Compile the extension into `folder` before anything is packed, since it decides what kind of wheel there is."""
    _compiler()
    extension = _extension(folder)
    distribution = setuptools.Distribution({"name": "pypmix-hpc", "ext_modules": [extension]})
    command = build_ext(distribution)
    command.build_lib = str(folder / "lib")
    command.build_temp = str(folder / "temp")
    try:
        command.ensure_finalized()
        command.run()
    except Exception as error:
        raise NotBuilt(f"the C compiler failed: {error}") from error
    return extension, Path(command.get_ext_fullpath(extension.name))


def _try_compile(folder: Path) -> tuple[setuptools.Extension, Path] | None:
    if not _wanted():
        _say("building without the native engine, because PYPMIX_BUILD_NATIVE=0")
        return None
    try:
        built = _compile(folder)
    except NotBuilt as error:
        if os.environ.get("PYPMIX_BUILD_NATIVE") == "1":
            raise SystemExit(f"pypmix: the native engine cannot be built: {error}") from error
        _say(f"building WITHOUT the native engine: {error}")
        _say("the Python engine works all the same; `pypmix doctor` shows which engines an installation has")
        return None
    _say("building with the native engine")
    return built


def _prebuilt(path: Path) -> type[build_ext]:
    class Prebuilt(build_ext):
        """Puts the extension that was compiled already where setuptools expects it."""

        def build_extension(self, ext: Any) -> None:
            target = Path(self.get_ext_fullpath(ext.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(0o755)

    return Prebuilt


class _Sdist(sdist):
    """Ships all that the project is made of; what setuptools takes by itself is the package alone."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        more = [name for name in SHIPPED_FILES if Path(name).is_file()]
        for folder in SHIPPED:
            more += [str(path) for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        shipped = [
            name
            for name in dict.fromkeys([*files, *more])
            if "__pycache__" not in Path(name).parts and not name.endswith((".pyc", ".so"))
        ]
        super().make_release_tree(base_dir, shipped)


class _Backend(build_meta._BuildMetaBackend):  # type: ignore[misc]
    """setuptools' backend over what this file describes instead of a setup.py."""

    built: tuple[setuptools.Extension, Path] | None = None
    scratch: Path

    def run_setup(self, setup_script: str = "setup.py") -> None:
        arguments: dict[str, Any] = {
            "version": _version(),
            "long_description": _readme(),
            "long_description_content_type": "text/markdown",
            "packages": setuptools.find_packages(include=["pypmix", "pypmix.*"]),
            "package_data": {"pypmix": ["py.typed"], "": ["*.pyi", "*.html", "*.ini", "*.toml"]},
            "cmdclass": {"sdist": _Sdist},
            # nothing of a former build in the tree may get into this one
            "options": {"build": {"build_base": str(self.scratch)}, "egg_info": {"egg_base": str(self.scratch)}},
        }
        if self.built is not None:
            extension, path = self.built
            arguments["ext_modules"] = [extension]
            arguments["cmdclass"]["build_ext"] = _prebuilt(path)
            if LIMITED:
                arguments["options"]["bdist_wheel"] = {"py_limited_api": ABI}
        setuptools.setup(**arguments)


_backend = _Backend()


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Ask for cffi only where it can be of use."""
    if not _wanted():
        return []
    try:
        _compiler()
    except NotBuilt:
        return []
    return [CFFI]


get_requires_for_build_editable = get_requires_for_build_wheel


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    return []


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        _backend.scratch = Path(scratch)
        _backend.built = None
        return str(_backend.build_sdist(sdist_directory, config_settings))


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        _backend.scratch = Path(scratch)
        _backend.built = _try_compile(Path(scratch))
        return str(_backend.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Install the tree itself: by a path file, which costs an import nothing, and with the extension built in place."""
    with tempfile.TemporaryDirectory() as scratch:
        _backend.scratch = Path(scratch)
        _backend.built = _try_compile(Path(scratch))
        settings = {"editable_mode": "compat", **(config_settings or {})}
        return str(_backend.build_editable(wheel_directory, settings, metadata_directory))
