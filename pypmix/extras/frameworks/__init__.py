"""Nodes of Dask and Ray as nodes of a session, and functions on them, for `pypmix.dask` and `pypmix.ray`."""
