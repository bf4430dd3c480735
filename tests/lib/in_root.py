"""Run pytest by the Python of a Debian root: `python tests/lib/in_root.py ROOT ARGUMENTS...`.

What the tests need is fetched from where pip is set up to find it, for that Python, and kept in the root's folder. The
root is entered as for jobs of the shared suite, so that it takes root.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib import machine, provision_roots

LIMIT = 3600.0


def requirements(python: str) -> list[str]:
    """Return what the project's tests need on a release of Python, with what the project itself needs."""
    project = tomllib.loads((machine.ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *optional["compression"], *optional["test"]]
    found = [Requirement(each) for each in wanted if not each.startswith(project["name"])]
    # pip would ask its own Python for the release
    release = {"python_version": ".".join(python.split(".")[:2])}
    fit = [each for each in found if each.marker is None or each.marker.evaluate(release)]
    return sorted(f"{each.name}{each.specifier}" for each in fit)


def main(name: str, arguments: list[str]) -> int:
    lacking = machine.root_lacking(name)
    found = provision_roots.root(name)
    if lacking or found is None:
        raise SystemExit(f"this machine lacks {lacking}")
    packages = provision_roots.provide_packages(name, requirements(found.python))
    with tempfile.TemporaryDirectory(prefix="pypmix-in-root-") as temporary:
        folder = Path(temporary)
        variables = {
            "PYTHONPATH": f"{packages}:{found.packages}",
            "TMPDIR": temporary,
            "HOME": temporary,
            "PATH": provision_roots.SYSTEM_PATH,
            "LC_ALL": "C.UTF-8",
            "PYTHONPYCACHEPREFIX": f"{temporary}/bytecode",
            # examples of Hypothesis, which are looked for at random in the long tier; the checkout is read-only there
            "HYPOTHESIS_STORAGE_DIRECTORY": f"{temporary}/hypothesis",
            # for the processes that run some tests alone as well; the root has pypmix without its entry points
            "PYTEST_ADDOPTS": "-p no:cacheprovider -p pypmix.testing.plugin",
        }
        settings = [f"{key}={value}" for key, value in variables.items()]
        inside = ["env", "-C", str(machine.ROOT), *settings, "python3", "-m", "pytest", *arguments]
        print(f"Python {found.python} of the Debian {name} root", flush=True)
        return subprocess.run(
            machine.enter(inside, folder, name), env=machine.clean_environment(), timeout=LIMIT
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
