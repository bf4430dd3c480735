"""Dask: the ranks of a job as a Dask cluster, and Dask workers as nodes and as MPI ranks.

It needs `pypmix-hpc[dask]`.
"""

from __future__ import annotations

from pypmix.lazy import names as _names

# Names are imported on demand: dask_jobqueue, which `PMIxRunner` uses, handles SIGINT as soon as it is imported.
_HOME = {
    ".runner": "PMIxRunner",
    ".workers": "Nodes nodes world",
}
__getattr__, __dir__ = _names(__name__, _HOME)
