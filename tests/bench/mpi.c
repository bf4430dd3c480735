/* Starts MPI, meets all ranks once, and ends it: what the start of an MPI program costs. */

#include <mpi.h>

int main(int argc, char **argv)
{
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS || MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS) {
        return 1;
    }
    return MPI_Finalize() != MPI_SUCCESS;
}
