"""The part of CuPy's interface that chooses a device."""

from __future__ import annotations

current = -1


class Device:
    def __init__(self, number: int) -> None:
        self.number = number

    def use(self) -> None:
        global current
        current = self.number
