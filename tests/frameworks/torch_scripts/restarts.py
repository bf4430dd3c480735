"""A worker of torchrun: one fails once, while the other is in no collective operation that would tell it so."""

import os
import sys
import time
from pathlib import Path

first, failed = Path(sys.argv[1], "first"), Path(sys.argv[1], "failed")
rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
if failed.exists():
    print(f"worker {rank} of {size} again", flush=True)
elif rank == "0":
    first.touch()
    print(f"worker {rank} of {size}", flush=True)
    time.sleep(120)
else:
    while not first.exists():
        time.sleep(0.05)
    print(f"worker {rank} of {size}", flush=True)
    failed.touch()
    sys.exit(1)
