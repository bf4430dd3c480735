"""`pypmix run` in pods of Kubernetes: processes on nodes of namespaces that have what the manifests give to a pod.

A pod here has the environment, the host name, the files and the name server of a pod, and the network of the node it is
on. A small name server answers as the cluster's does: the name of a pod exists below the headless service once the pod
has an address.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from lib import machine
from lib.cluster import Cluster
from lib.programs import TOTAL

DEPLOY = machine.ROOT / "deploy" / "kubernetes"
MANIFESTS = ("job.yaml", "jobset.yaml")
DOMAIN = "default.svc.cluster.local"
RESOLV = f"nameserver {{address}}\nsearch {DOMAIN} svc.cluster.local cluster.local\noptions ndots:5\n"
LIMIT = 80.0

POD = """\
hostname "$1"; files=$2; shift 2
for name in hosts resolv.conf nsswitch.conf; do
    [ ! -e /etc/$name ] || mount --bind "$files/$name" /etc/$name
done
mount --bind "$files/bin" /usr/local/bin
mount -t tmpfs none /run
mkdir -p /run/pypmix/..data
(umask 377; cat "$files/secret" >/run/pypmix/..data/secret)
ln -s ..data/secret /run/pypmix/secret
exec "$@"
"""
"""What makes a pod of a process in namespaces of its own. Its last arguments are the image's entry point and `args`."""


def manifest(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def job_of(name: str) -> dict[str, Any]:
    """Return the Job of a manifest, with the name and the subdomain that its pods get."""
    (found,) = [each for each in manifest(name) if each["kind"] in ("Job", "JobSet")]
    if found["kind"] == "Job":
        return found
    (jobs,) = found["spec"]["replicatedJobs"]
    assert jobs["replicas"] == 1 and found["spec"]["network"]["enableDNSHostnames"]
    spec = jobs["template"]["spec"]
    spec["template"]["spec"]["subdomain"] = found["spec"]["network"]["subdomain"]
    metadata = {"name": f"{found['metadata']['name']}-{jobs['name']}-0"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def entry_point() -> list[str]:
    """Return the command of the image."""
    (line,) = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line.startswith("ENTRYPOINT ")]
    found: list[str] = yaml.safe_load(line.removeprefix("ENTRYPOINT "))
    return found


class Pods:
    """The pods of a job, on the nodes of a cluster."""

    def __init__(self, cluster: Cluster, folder: Path, name: str = "job.yaml") -> None:
        self.cluster = cluster
        self._folder = folder
        self._job = job_of(name)
        self.name = self._job["metadata"]["name"]
        self._spec = self._job["spec"]["template"]["spec"]
        (self._container,) = self._spec["containers"]
        self.size = int(self._job["spec"]["completions"])
        self.started: list[subprocess.Popen[str]] = []
        self.zone: dict[str, str] = {}
        self.publish()
        first = cluster["n1"]
        self._first = first.address
        dns = str(machine.TESTS / "lib" / "dns.py")
        with (folder / "dns.log").open("wb") as log:
            self._dns = first.start(sys.executable, dns, first.address, folder, stdout=log, stderr=log)
        programs = folder / "bin"
        programs.mkdir()
        for word, command in (("python", ""), ("pypmix", " -m pypmix")):
            (programs / word).write_text(f'#!/bin/sh\nexec {sys.executable}{command} "$@"\n')
            (programs / word).chmod(0o755)
        (folder / "app").write_text("#!/bin/sh\nexec python -c 'import pypmix; print(pypmix.Client)'\n")
        (folder / "app").chmod(0o755)
        (folder / "nsswitch.conf").write_text("hosts: files dns\n")
        (folder / "resolv.conf").write_text(RESOLV.format(address=first.address))
        (folder / "secret").write_text("a secret that cannot be guessed")

    def host(self, index: int) -> str:
        return f"{self.name}-{index}"

    def publish(self, index: int | None = None, address: str = "") -> None:
        """Give the name of a pod an address; none takes the name away."""
        if index is not None:
            self.zone[f"{self.host(index)}.{self._spec['subdomain']}.{DOMAIN}"] = address
        draft = self._folder / "zone.new"
        draft.write_text("".join(f"{name} {address}\n" for name, address in self.zone.items() if address))
        draft.rename(self._folder / "zone")

    def start(
        self, index: int, node: str, args: Sequence[str] = (), size: int = 0, *, publish: bool = True
    ) -> subprocess.Popen[str]:
        """Start a pod on a node.

        Args:
            index: Its index.
            node: The node.
            args: What stands in the place of the manifest's `args`.
            size: The number of pods; the manifest's by default.
            publish: Whether its name resolves.
        """
        address = self.cluster[node].address
        host = self.host(index)
        files = self._folder / f"{host}.{len(self.started)}"
        files.mkdir()
        for name in ("nsswitch.conf", "resolv.conf", "secret", "bin"):
            (files / name).symlink_to(self._folder / name)
        full = f"{host}.{self._spec['subdomain']}.{DOMAIN}"
        (files / "hosts").write_text(f"127.0.0.1 localhost\n{address} {full} {host}\n")
        env = {each["name"]: each["value"] for each in self._container["env"]}
        env |= {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": host, "PATH": "/usr/local/bin:/usr/bin:/bin"}
        if size:
            env["PYPMIX_NODES"] = str(size)
        words = [*entry_point(), *(args or self._container["args"])]
        line = ["unshare", "--mount", "--uts", "sh", "-euc", POD, "pod", host, files, *words]
        pod: subprocess.Popen[str] = self.cluster[node].start(
            *line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self._folder
        )
        self.started.append(pod)
        if publish:
            self.publish(index, address)
        return pod

    def until_asked(self, index: int, node: str, seconds: float = LIMIT) -> None:
        """Wait until somebody on a node has asked for the name of a pod."""
        line = f"{self.cluster[node].address} {self.host(index)}.{self._spec['subdomain']}.{DOMAIN}"
        asked = self._folder / "asked"
        self.cluster.until(line, lambda: asked.exists() and line in asked.read_text().splitlines(), seconds)

    def until_met(self, a: str, b: str) -> None:
        """Wait until a pod on a node has a connection to port 7777 of one on another."""
        port = f":{7777:04X}"

        def there() -> bool:
            lines = Path(f"/proc/{self.cluster[a].pid}/net/tcp").read_text().splitlines()[1:]
            return any(line.split()[2].endswith(port) and line.split()[3] == "01" for line in lines)

        self.cluster.until(f"a connection from {a} to {b}", there, LIMIT)

    def end(self) -> None:
        for process in (*self.started, self._dns):
            if process.poll() is None:
                process.kill()
            process.communicate()


def ended(pods: Pods, pod: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    """Return the exit code of a pod, its lines in order, and what it has said."""
    try:
        out, err = pod.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"no end\n{pods.cluster.report()}") from None
    return pod.returncode, sorted(out.splitlines()), err


@pytest.fixture
def pods(cluster: Cluster, tmp_path: Path) -> Iterator[Pods]:
    found = Pods(cluster, tmp_path)
    yield found
    found.end()


PLACES = ("n1", "n2", "n3", "n2")


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_fit_their_schemas(name: str) -> None:
    for each in (*[found for found in manifest(name) if found["kind"] != "JobSet"], job_of(name)):
        for release in "1.25", kubernetes_validate.latest_version():
            kubernetes_validate.validate(each, release, strict=True)


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_runs_as_it_stands(cluster: Cluster, tmp_path: Path, name: str) -> None:
    pods = Pods(cluster, tmp_path, name)
    try:
        # The others are there first, and the name of the first pod does not exist yet.
        for index, node in list(enumerate(PLACES))[1:]:
            pods.start(index, node)
        for node in PLACES[1:]:
            pods.until_asked(0, node)
        code, lines, said = ended(pods, pods.start(0, PLACES[0]))
        assert code == 0, said
        assert lines == ["<class 'pypmix.client.Client'>"] * 8
        assert said.startswith("pypmix run: pod 0 of 4 of a Kubernetes Job\n")
        for other in pods.started[:3]:
            assert ended(pods, other) == (0, [], "")
    finally:
        pods.end()


ARGS = ("--node-timeout", "60", "--map-by", "node", "-n", "3", "python", "-c", TOTAL)
RESULT = ["0 3 solver-0 3", "1 3 solver-1 3", "2 3 solver-2 3"]


def test_a_pod_is_restarted_elsewhere_before_all_have_met(pods: Pods) -> None:
    first = pods.start(0, "n1", ARGS, 3)
    old = pods.start(1, "n2", ARGS, 3)
    pods.until_met("n2", "n1")
    old.kill()
    old.communicate()
    new = pods.start(1, "n3", ARGS, 3)
    pods.until_met("n3", "n1")
    pods.start(2, "n2", ARGS, 3)
    assert ended(pods, first)[:2] == (0, RESULT)
    assert ended(pods, new) == (0, [], "")


def test_the_launchers_pod_is_restarted_elsewhere_before_all_have_met(pods: Pods) -> None:
    old = pods.start(0, "n1", ARGS, 3)
    other = pods.start(1, "n2", ARGS, 3)
    pods.until_met("n2", "n1")
    pods.publish(0)
    old.kill()
    old.communicate()
    new = pods.start(0, "n3", ARGS, 3)
    pods.start(2, "n1", ARGS, 3)
    code, lines, said = ended(pods, new)
    assert (code, lines) == (0, RESULT), said
    assert ended(pods, other) == (0, [], "")


@pytest.mark.timing
@pytest.mark.parametrize("address", ["", "silent"])
def test_a_name_that_never_resolves(pods: Pods, address: str) -> None:
    pods.publish(0, address)
    began = time.monotonic()
    pod = pods.start(1, "n2", ("--node-timeout", "3", "true"), 3)
    code, _, said = ended(pods, pod)
    assert code == 1
    assert "the launcher is not reached: solver-0.solver port 7777: " in said
    assert "a headless Service" in said
    # The resolver alone would take 40 seconds for one that does not answer.
    assert time.monotonic() - began < 30


def test_a_launcher_names_the_pods_that_have_not_come(pods: Pods) -> None:
    pods.start(1, "n2", ("--node-timeout", "60", "true"), 3)
    pods.until_asked(0, "n2")
    code, _, said = ended(pods, pods.start(0, "n1", ("--node-timeout", "5", "true"), 3))
    assert code == 1
    assert "without solver-2 (port 7777)" in said
    code, _, said = ended(pods, pods.started[0])
    assert code == 1
    assert "the launcher has gone before the session began; it has said why" in said
