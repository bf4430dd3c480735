/* What the C headers of the system define; read by cffi alone, which asks the compiler for the rest. */
typedef int... pid_t;
typedef int... time_t;
struct timeval {
    time_t tv_sec;
    long tv_usec;
    ...;
};
