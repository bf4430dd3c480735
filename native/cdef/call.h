/* What only cffi reads, since C declares it in full: "..." stands for what Python need not know. */
typedef struct pypmix_queue pypmix_queue;

/*
 * One operation under way. Python reads these fields once the operation has ended. A value that is a mere number has
 * its type in `kind` and its bits in `word`, so that no further call is needed to read it; `kind` is 0 for others. An
 * operation that has several things to tell leaves them in `results`.
 */
typedef struct pypmix_call {
    pmix_status_t status;
    pmix_data_type_t kind;
    uint64_t word;
    uint64_t token;
    pmix_value_t *value;
    pmix_data_array_t results;
    ...;
} pypmix_call;

/* a call's status while it is under way, also after a signal has ended the wait for it */
#define PYPMIX_PENDING ...
