"""Sets of numbers as integers, and hwloc's text forms: lists such as `0-3,8`, masks such as `0x0000010f`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_NUMBER = 1 << 16
"""The largest number in a text that is read: sets are integers, and one number could fill the memory."""

_WORD = 32
_NUMBER = r"\s*\+?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)"


def bitmap(numbers: Iterable[int]) -> int:
    """Return the set of numbers.

    Example:
        >>> bitmap([0, 1, 8])
        259
    """
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


def numbers(bits: int) -> Iterator[int]:
    """Iterate over the numbers of a set that has an end, in order.

    Example:
        >>> list(numbers(0b100000011))
        [0, 1, 8]
    """
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def size(bits: int) -> int:
    """Return how many numbers a set that has an end holds.

    Example:
        >>> size(parse_list("0-3,8"))
        5
    """
    return bits.bit_count()


def ranges(first: int, last: int) -> int:
    """Return the set of all numbers from the first to the last.

    Example:
        >>> format_list(ranges(0, 3) | ranges(8, 9))
        '0-3,8-9'
    """
    return (1 << last + 1) - (1 << first)


def format_list(bits: int) -> str:
    """Return the list of a set, such as `0-3,8`; empty for none, and `4-` for all numbers from 4.

    Example:
        >>> format_list(0b100001111)
        '0-3,8'
    """
    parts = []
    position = 0
    while bits:
        if bits == -1:
            parts.append(f"{position}-")
            break
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        first = position + gap
        # The length of the run of ones at the low end.
        run = (~bits & (bits + 1)).bit_length() - 1
        if run < 0:
            parts.append(f"{first}-")
            break
        parts.append(f"{first}-{first + run - 1}" if run > 1 else str(first))
        bits >>= run
        position = first + run
    return ",".join(parts)


def parse_list(text: str) -> int:
    """Return the set of a list such as `0-3,8`; numbers are decimal, `0x10` or `010`, as hwloc reads them.

    Raises:
        ValueError: It is not a list.

    Example:
        >>> parse_list("0-3,8") == 0b100001111
        True
    """
    plain = _parse_plain_list(text)
    return _parse_any_list(text) if plain is None else plain


def _parse_plain_list(text: str) -> int | None:
    """Return the set of a list as the kernel writes it; None for another text."""
    found = 0
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        for word in (first, last) if dash else (first,):
            if not word.isdecimal() or not word.isascii() or len(word) > 1 and word[0] == "0" or len(word) > 5:
                return None
        low = int(first)
        high = int(last) if dash else low
        if not low <= high <= MAX_NUMBER:
            return None
        found |= ranges(low, high)
    return found


def _parse_any_list(text: str) -> int:
    # Few texts need it, and every launcher would pay for the import.
    import re

    number_at = re.compile(_NUMBER).match
    found = 0
    position, begin = 0, -1
    while position < len(text):
        while text[position : position + 1] in (",", " ") and position < len(text):
            position += 1
        matched = number_at(text, position)
        if matched is None:
            raise ValueError(f"a set of CPUs is written as 0-3,8, not as {text!r:.80}")
        word = matched.group(1)
        number = int(word, 16 if word[:2].lower() == "0x" else 8 if word[0] == "0" else 10)
        if number > MAX_NUMBER:
            raise ValueError(f"the number {number} in {text!r:.80} is greater than {MAX_NUMBER}")
        position = matched.end()
        after = text[position : position + 1]
        if begin >= 0:
            if number < begin:
                raise ValueError(f"the range {begin}-{number} in {text!r:.80} ends before it begins")
            found |= ranges(begin, number)
            begin = -1
        elif after == "-":
            if position + 1 == len(text):
                return found | -1 << number
            begin = number
        elif after in (",", " ", "", "\n"):
            found |= 1 << number
        position += 1
    return found


def format_mask(bits: int) -> str:
    """Return the mask of a set: words of 32 bits, the highest first.

    Example:
        >>> format_mask(parse_list("0-3,8"))
        '0x0000010f'
    """
    if not bits:
        return "0x0"
    parts = []
    if bits < 0:
        parts.append("0xf...f")
        # hwloc keeps whole words of 64 bits.
        words = 2 * ((~bits).bit_length() // 64 + bool((~bits).bit_length() % 64))
        values = [bits >> _WORD * place & 0xFFFFFFFF for place in range(words - 1, -1, -1)]
    else:
        words = (bits.bit_length() + _WORD - 1) // _WORD
        values = [bits >> _WORD * place & 0xFFFFFFFF for place in range(words - 1, -1, -1)]
    for place, value in enumerate(values):
        # A word without bits is left empty, unless it is the last one.
        parts.append(f"0x{value:08x}" if value else "0x0" if place == len(values) - 1 else "")
    return ",".join(parts)


def parse_mask(text: str) -> int:
    """Return the set of a mask.

    Raises:
        ValueError: It is not a mask.

    Example:
        >>> format_list(parse_mask("0x0000010f"))
        '0-3,8'
    """
    words = text.split(",")
    endless = words[0] == "0xf...f"
    if len(words) * _WORD > MAX_NUMBER:
        raise ValueError(f"a mask of {len(words)} words is too long")
    found = -1 if endless else 0
    try:
        for word in words[endless:]:
            value = int(word, 16) if word else 0
            if not 0 <= value < 1 << _WORD:
                if len(words) > 1:
                    raise ValueError(word)
                return value
            found = found << _WORD | value
    except ValueError:
        raise ValueError(f"a mask is written as 0x0000000f, not as {text!r:.80}") from None
    return found
