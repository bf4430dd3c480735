"""Dask: the ranks of a job as its cluster, and its workers as nodes and as the ranks of MPI.

It needs `pypmix-hpc[dask]`. A name is imported when it is used first: dask_jobqueue, on which `PMIxRunner` stands,
takes SIGINT for itself when it is imported.
"""

from __future__ import annotations

from pypmix.lazy import names as _names

_HOME = {
    ".runner": "PMIxRunner",
    ".workers": "Nodes nodes world",
}
__getattr__, __dir__ = _names(__name__, _HOME)
