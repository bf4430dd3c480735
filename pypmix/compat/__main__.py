"""`python -m pypmix.compat script.py`: run a program that was written for the official binding."""

from __future__ import annotations

import sys

from pypmix.compat.loader import main

if __name__ == "__main__":
    main(sys.argv[1:])
