"""Private extensions, which no client and no launcher on one cluster needs; `pypmix/extensions.ini` registers them.

- `commands`: commands of `pypmix` beyond running and inspecting jobs.
- `forking`: warm start.
- `frameworks`: nodes of Dask and Ray as nodes of a session, for `pypmix.dask` and `pypmix.ray`.
- `schedulers`: rosters for Flux, PRRTE and other PMIx launchers, and further jobs of Slurm.
- `tracing`: the trace of a run.
"""
