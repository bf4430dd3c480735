"""`python -m pypmix`: the `pypmix` command."""

from __future__ import annotations

from pypmix.cli.main import main

if __name__ == "__main__":
    main()
