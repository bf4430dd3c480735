"""The files in which the Linux kernel describes a machine."""

from __future__ import annotations

import os

from pypmix.topology.bitmaps import parse_list


class Files:
    """The kernel's files.

    Args:
        root: The folder that stands for `/`, for the files of another machine.
    """

    def __init__(self, root: str = "") -> None:
        self.root = root.rstrip("/")

    def read(self, path: str) -> str:
        """Return the text of a file without the end of its line; empty if it cannot be read."""
        try:
            fd = os.open(self.root + path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            # The kernel writes such a file as a whole.
            return os.read(fd, 1 << 16).decode(errors="replace").rstrip("\n\0")
        except OSError:
            return ""
        finally:
            os.close(fd)

    def set(self, path: str) -> int:
        """Return the set in a file; empty if it has none."""
        try:
            return parse_list(self.read(path).strip())
        except ValueError:
            return 0

    def number(self, path: str) -> int | None:
        """Return the number in a file; None if it has none."""
        text = self.read(path)
        try:
            return int(text, 16 if text[:2] == "0x" else 10)
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; empty if it does not exist."""
        try:
            return os.listdir(self.root + path)
        except OSError:
            return []

    def real(self, path: str) -> str:
        """Return the path of the file that a link names, or of a file that is not a link; empty if neither exists.

        The kernel's links are relative, and name files and not further links.
        """
        try:
            return os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(self.root + path)))
        except OSError:
            return path if os.path.exists(self.root + path) else ""
