"""Messages between the servers of one job: a carrier, an exchange on top of it, a crossing on top of that."""

from __future__ import annotations

from pypmix.host.exchange.carrier import Carrier
from pypmix.host.exchange.crossing import Crossing, Forwarded
from pypmix.host.exchange.errors import ExchangeTimeout, ServerLost
from pypmix.host.exchange.exchange import Exchange, Gathering, Underway
from pypmix.host.exchange.inprocess import Hub, HubCarrier, VirtualTime
from pypmix.host.exchange.kinds import Gathered
from pypmix.host.exchange.tcp import TCPCarrier

__all__ = [
    "Carrier",
    "Crossing",
    "Exchange",
    "ExchangeTimeout",
    "Forwarded",
    "Gathered",
    "Gathering",
    "Hub",
    "HubCarrier",
    "ServerLost",
    "TCPCarrier",
    "Underway",
    "VirtualTime",
]
