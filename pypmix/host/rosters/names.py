"""Parsers for lists of nodes: `--host`, hostfiles, and Slurm's compressed lists."""

from __future__ import annotations

from pypmix.standard.record import Record
from pypmix.standard.types import decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SLOTS = 1 << 20
MAX_NAMES = 1 << 16
"""The maximum number of nodes in a list, since a short text can expand to very many."""

_SLOTS = ("slots", "slot", "count", "cpus", "cpu")
_MOST = ("max_slots", "max-slots", "slots_max", "slots-max", "max_count", "max-count")
_USER = ("user", "username", "user-name", "user_name")


class Host(Record):
    """A node in a list.

    Attributes:
        name: The node's name, or `user@name`.
        slots: The number of ranks to run on the node; 0 for the number of CPUs.
        most: The maximum number of ranks if the node is oversubscribed; 0 for any number.
    """

    name: str
    slots: int = 0
    most: int = 0

    def __validate__(self) -> None:
        check_host(self.name)
        if self.most and self.slots > self.most:
            raise ValueError(f"{self.name} has {self.slots} slots, and {self.most} at most")


def check_host(name: str) -> str:
    """Return `name` if it can be the name of a node.

    Raises:
        ValueError: It cannot be one.
    """
    # The name becomes a word of a command line: a leading dash would make it an option.
    if not name or name[0] in "-@" or not all(sign.isalnum() or sign in "._-@:%+" for sign in name):
        raise ValueError(f"{name!r:.80} cannot name a node")
    return name


def read_hosts(text: str) -> list[Host]:
    """Parse `--host n1,n2:4,n1`: the slots of repeated names are added; `n1:*` means all CPUs of the node.

    `n[1-3]:2` means three nodes with two slots each, as in Slurm's lists.

    Raises:
        ValueError: The text is malformed.
    """
    # A word that begins with a bracket is an IPv6 address.
    words = [word.strip() for word in _split(text)]
    return merged(_host(each) for word in words for each in ([word] if word[:1] == "[" else _product(word)))


def _host(word: str) -> Host:
    name, slots = with_slots(word, 1)
    return Host(name, slots)


def with_slots(word: str, default: int) -> tuple[str, int]:
    """Split `name:slots`; an IPv6 address must be in brackets if slots follow.

    Args:
        word: The text.
        default: The number of slots if none is given; `*` gives 0.

    Raises:
        ValueError: The text is malformed.
    """
    if word.startswith("["):
        name, bracket, rest = word[1:].partition("]")
        if not bracket or rest[:1] not in ("", ":"):
            raise ValueError(f"{word!r:.80} cannot name a node: an IPv6 address is written [address]:slots")
        colon, text = rest[:1], rest[1:]
    elif word.count(":") > 1:
        name, colon, text = word, "", ""
    else:
        name, colon, text = word.partition(":")
    if not colon:
        return name, default
    return name, 0 if text == "*" else _number(text, f"the slots of {name}")


def _number(text: str, what: str) -> int:
    number = decimal(text, MAX_SLOTS)
    if not number:
        raise ValueError(f"{what} are a whole number of at least 1, not {text!r:.40}")
    return number


def read_hostfile(lines: Iterable[str], file_name: str = "hostfile") -> list[Host]:
    """Parse a hostfile of Open MPI or PRRTE: `n1 slots=4 max_slots=8`, `n1:4`, `user@n1`, comments, `^n1` to exclude.

    Args:
        lines: The lines of the file.
        file_name: The file's name, for errors.

    Raises:
        ValueError: A line is malformed; the text names the line.
    """
    hosts: list[Host] = []
    left_out = set()
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].partition("//")[0].split()
        if not words:
            continue
        try:
            if words[0].startswith("^"):
                left_out.add(check_host(words[0][1:]))
            else:
                hosts.append(_line(words))
        except ValueError as error:
            raise ValueError(f"{file_name}, line {number}: {error}") from None
    return [host for host in merged(hosts) if host.name not in left_out]


def _line(words: list[str]) -> Host:
    name, slots = with_slots(words[0], 0)
    most = 0
    settings = " ".join(words[1:]).replace(" =", "=").replace("= ", "=").split()
    for setting in settings:
        key, equals, value = setting.partition("=")
        if equals and key in _SLOTS:
            slots = _number(value, key)
        elif equals and key in _MOST:
            most = _number(value, key)
        elif equals and key in _USER:
            name = f"{check_host(value)}@{name}"
        else:
            raise ValueError(f"{setting!r:.80} is not slots=N, max_slots=N or user=NAME")
    return Host(name, slots or most, most)


def merged(hosts: Iterable[Host]) -> list[Host]:
    """Return each host once, in the order of first mention: the slots of a repeated name are added.

    Raises:
        ValueError: There are too many nodes.
    """
    found: dict[str, Host] = {}
    for host in hosts:
        known = found.get(host.name)
        if known is None:
            found[host.name] = host
            continue
        # 0 means all CPUs, or no limit, to which nothing can be added.
        slots = known.slots + host.slots if known.slots and host.slots else 0
        most = known.most + host.most if known.most and host.most else 0
        found[host.name] = known.replace(slots=slots, most=most)
    if len(found) > MAX_NAMES:
        raise ValueError(f"{len(found)} nodes are more than {MAX_NAMES}")
    return list(found.values())


def expand(text: str) -> list[str]:
    """Expand a node list of Slurm: `n[01-03,7],login` is n01, n02, n03, n7 and login.

    Raises:
        ValueError: The list is malformed, or expands to too many names.
    """
    found = [name for part in _split(text) for name in _product(part)]
    if not found or not all(found):
        raise ValueError(f"{text!r:.80} is not a list of nodes")
    return found


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            break
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    if depth:
        raise ValueError(f"the brackets of {text!r:.80} do not match")
    return parts


def _product(part: str) -> list[str]:
    """Expand a name with brackets; each further pair of brackets multiplies the names."""
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, _, tail = rest.partition("]")
    tails = _product(tail)
    found: list[str] = []
    for item in inside.split(","):
        first, dash, last = item.partition("-")
        low, high = decimal(first), decimal(last if dash else first)
        if low is None or high is None or high < low:
            raise ValueError(f"{item!r:.40} in {part!r:.80} is not a range of numbers")
        if len(found) + (high - low + 1) * len(tails) > MAX_NAMES:
            raise ValueError(f"{part!r:.80} stands for more than {MAX_NAMES} nodes")
        found += [f"{head}{number:0{len(first)}}{end}" for number in range(low, high + 1) for end in tails]
    return found


def repeated(text: str) -> list[int]:
    """Expand a list of numbers of Slurm: `4(x2),3` is 4, 4 and 3.

    Raises:
        ValueError: The list is malformed, or expands to too many numbers.
    """
    found: list[int] = []
    for part in text.split(","):
        number, bracket, times = part.partition("(x")
        value = decimal(number, MAX_SLOTS)
        count = decimal(times[:-1], MAX_NAMES) if bracket and times.endswith(")") else None if bracket else 1
        if value is None or not count or len(found) + count > MAX_NAMES:
            raise ValueError(f"{text!r:.80} is not a list of numbers such as 4(x2),3")
        found += [value] * count
    return found
