"""Rank 0 of three dies when all know its address; then the others try again without it."""

import os
import signal
import sys
from datetime import timedelta

from torch.distributed import rendezvous

import pypmix.torch

me = pypmix.torch.client()
module = sys.modules["pypmix.torch.rendezvous"]
if me.rank == 0:
    module.open_store = lambda *_args: os.kill(os.getpid(), signal.SIGKILL)
for step in ("on the way", "before"):
    try:
        next(rendezvous("pmix://", timeout=timedelta(seconds=150)))
    except pypmix.PMIxError as error:
        print(f"{me.rank} {step}: {type(error).__name__} {error}", flush=True)
