"""Checks of what PMIx servers promise: programs for the ranks of a job, which `pypmix conform` and our suite run."""
