"""Rank 2 reads for ever, and the others compute for ever."""

import time
from pathlib import Path

import pypmix


def compute() -> None:
    time.sleep(60)


def read() -> None:
    time.sleep(60)


with pypmix.Client() as me:
    me.fence()
    Path(f"at.{me.rank}").touch()
    if me.rank == 0:
        while len(list(Path().glob("at.*"))) < me.job.size:
            time.sleep(0.1)
        Path("ready").touch()
    read() if me.rank == 2 else compute()
