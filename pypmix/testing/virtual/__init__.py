"""Tests on virtual time: a whole cluster, its servers and the clients of all ranks, in one process on one clock."""

from pypmix.testing.virtual.refusing import NotOnVirtualTime as NotOnVirtualTime
from pypmix.testing.virtual.simulation import RanksFailed as RanksFailed
from pypmix.testing.virtual.simulation import simulate as simulate
