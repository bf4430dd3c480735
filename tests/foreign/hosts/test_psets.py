"""Proves that process sets of hosts come and go for all of their clients, and do not change, on every engine."""

from __future__ import annotations


def test_one_host(host):
    host("psets.one")


def test_two_hosts(host):
    host("psets.two", mode="pair")
