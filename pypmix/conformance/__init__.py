"""Checks of the promises of PMIx servers: programs for the ranks of a job, run by `pypmix conform` and our suite."""
