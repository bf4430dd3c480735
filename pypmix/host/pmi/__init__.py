"""PMI-1 for the ranks of a host: MPICH, Intel MPI and other programs that do not speak PMIx run unchanged."""
