"""The name server of a simulated Kubernetes: `dns.py ADDRESS FOLDER`, by dnslib.

It answers on port 53 of an address. `FOLDER/zone` has lines of a name and an IPv4 address, and may be replaced at any
time. Names that are not there do not exist; where the address of a name is `silent`, questions for it are not answered.
`FOLDER/asked` has a line for each question: who has asked, and for what.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dnslib import QTYPE, RCODE, RR, A, DNSError, DNSRecord
from dnslib.server import BaseResolver, DNSHandler, DNSServer


class Names(BaseResolver):
    """Answers by the zone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked = os.open(folder / "asked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def resolve(self, request: DNSRecord, handler: DNSHandler) -> DNSRecord:
        zone = dict(line.split() for line in (self._folder / "zone").read_text().splitlines())
        name = str(request.q.qname).rstrip(".").lower()
        os.write(self._asked, f"{handler.client_address[0]} {name}\n".encode())
        address = zone.get(name)
        if address == "silent":
            raise DNSError("not answered")
        answer = request.reply()
        if address is None:
            answer.header.rcode = RCODE.NXDOMAIN
        elif request.q.qtype == QTYPE.A:
            answer.add_answer(RR(request.q.qname, QTYPE.A, rdata=A(address), ttl=5))
        return answer


if __name__ == "__main__":
    DNSServer(Names(Path(sys.argv[2])), address=sys.argv[1]).start()
