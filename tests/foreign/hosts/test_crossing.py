"""Proves that what takes two servers crosses a host: by its exchange, or by what its handlers make up."""

from __future__ import annotations

import os
import subprocess

import pytest

from lib import machine


@pytest.mark.parametrize("program", ["data", "joining", "grouping"])
def test_two_hosts_and_an_exchange(host, program):
    host(f"crossing.{program}", mode="pair")


@pytest.mark.parametrize("program", ["fences", "modex", "groups", "connects"])
def test_one_host_makes_up_the_other_node(host, program):
    host(f"alone.{program}")


@pytest.mark.cells("python/python", "native-5.0.11/native-5.0.11")
def test_two_network_namespaces(host, namespaces):
    """The nodes share no network but a cable."""
    host("crossing.data", *namespaces, mode="pair")


@pytest.fixture
def namespaces():
    """Two network namespaces with a cable between them: for each, the command that enters it, and its address."""
    lacking = machine.namespaces_lacking()
    if lacking:
        machine.lacking(lacking)
    names = [f"pypmix-{os.getpid()}-{number}" for number in (0, 1)]
    addresses = ["10.231.7.1", "10.231.7.2"]

    def ip(*words):
        subprocess.run(["ip", *words], check=True, timeout=10, capture_output=True, stdin=subprocess.DEVNULL)

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "pmx0", "netns", names[0], "type", "veth", "peer", "name", "pmx0", "netns", names[1])
        for name, address in zip(names, addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "pmx0")
            for device in ("lo", "pmx0"):
                ip("-n", name, "link", "set", device, "up")
        yield [f"{name}={address}" for name, address in zip(names, addresses, strict=True)]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], timeout=10, capture_output=True, stdin=subprocess.DEVNULL)
