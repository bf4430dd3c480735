"""The console blocks of README and all pages run as they stand, with what they print.

The blocks of a part of a page share a shell and a folder. A block shows all that its commands print; `lib.blocks` says
what may vary. One that shows nothing has to succeed. A program that a page starts in the background makes the file
`ready`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import blocks, machine
from lib.blocks import Block
from lib.page_console import LIMIT, printed

MARK = "-- end of block "
READY = "&\nwhile [ ! -e ready ] && kill -0 $!; do sleep 0.1; done"


def of_a_part() -> Iterator[tuple[str, list[Block]]]:
    wanted = [block for block in blocks.to_run("console") if block.script]
    for part in dict.fromkeys(block.part for block in wanted):
        yield part, [block for block in wanted if block.part == part]


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize(("part", "wanted"), list(of_a_part()), ids=lambda each: each if isinstance(each, str) else "")
def test_blocks_run_as_they_stand(part: str, wanted: list[Block], folder: Path, environment: dict[str, str]) -> None:
    if any("prterun" in block.script for block in wanted) and not (folder / ".venv" / "bin" / "prterun").exists():
        machine.lacking("the launcher prterun")
    if any(re.search("engine.native|ENGINE=native", block.script) for block in wanted) and not machine.extension():
        machine.lacking("the native engine's extension")
    ends = [re.sub("&$", READY, block.script, flags=re.MULTILINE) + f'\necho "{MARK}$?"' for block in wanted]
    script = "\n".join([*ends, "kill $(jobs -p) 2>/dev/null", "wait"])
    text, _ = printed(["bash", "-c", script], folder, environment)
    parts = re.split(rf"^{MARK}(\d+)\n", text, flags=re.MULTILINE)
    assert len(parts) == 2 * len(wanted) + 1, text
    for block, said, status in zip(wanted, parts[::2], parts[1::2], strict=False):
        if block.printed:
            blocks.compare(block, said)
        else:
            assert status == "0", f"{block} ended with {status}:\n{said}"
