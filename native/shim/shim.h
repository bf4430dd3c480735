#ifndef PYPMIX_SHIM_H
#define PYPMIX_SHIM_H

#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>

#include "../cdef/pmix.h"

/* far from every status that PMIx or a user can define as a small negative number */
#define PYPMIX_PENDING INT32_MIN

#define PMIX_SUCCESS 0
#define PMIX_ERROR -1
#define PMIX_ERR_TIMEOUT -24
#define PMIX_ERR_UNREACH -25
#define PMIX_ERR_BAD_PARAM -27
#define PMIX_ERR_NOMEM -32
#define PMIX_ERR_NOT_SUPPORTED -47
#define PMIX_OPERATION_SUCCEEDED -157

typedef void (*pmix_op_cbfunc_t)(pmix_status_t status, void *cbdata);
typedef void (*pmix_value_cbfunc_t)(pmix_status_t status, pmix_value_t *value, void *cbdata);
typedef void (*pmix_lookup_cbfunc_t)(pmix_status_t status, pmix_pdata_t data[], size_t ndata, void *cbdata);

/*
 * The functions of the library, bound when it is opened; one that the release lacks is NULL.
 * A row is: return type, name without PMIx_, arguments.
 */
#define PYPMIX_SYMBOLS(ROW)                                                                                        \
    ROW(const char *, Get_version, (void))                                                                         \
    ROW(pmix_status_t, Init, (pmix_proc_t * proc, pmix_info_t * info, size_t ninfo))                               \
    ROW(pmix_status_t, Finalize, (const pmix_info_t *info, size_t ninfo))                                          \
    ROW(pmix_status_t, Abort, (int status, const char *msg, pmix_proc_t *procs, size_t nprocs))                    \
    ROW(pmix_status_t, Put, (pmix_scope_t scope, const char *key, pmix_value_t *value))                            \
    ROW(pmix_status_t, Commit, (void))                                                                             \
    ROW(pmix_status_t, Fence_nb,                                                                                   \
        (const pmix_proc_t *procs, size_t nprocs, const pmix_info_t *info, size_t ninfo, pmix_op_cbfunc_t cbfunc,  \
         void *cbdata))                                                                                            \
    ROW(pmix_status_t, Get_nb,                                                                                     \
        (const pmix_proc_t *proc, const char *key, const pmix_info_t *info, size_t ninfo,                          \
         pmix_value_cbfunc_t cbfunc, void *cbdata))                                                                \
    ROW(pmix_status_t, Publish_nb,                                                                                 \
        (const pmix_info_t *info, size_t ninfo, pmix_op_cbfunc_t cbfunc, void *cbdata))                            \
    ROW(pmix_status_t, Lookup_nb,                                                                                  \
        (char **keys, const pmix_info_t *info, size_t ninfo, pmix_lookup_cbfunc_t cbfunc, void *cbdata))           \
    ROW(pmix_status_t, Unpublish_nb,                                                                               \
        (char **keys, const pmix_info_t *info, size_t ninfo, pmix_op_cbfunc_t cbfunc, void *cbdata))               \
    ROW(pmix_status_t, Parse_cpuset_string, (const char *text, pmix_cpuset_t *cpuset))                             \
    ROW(pmix_status_t, server_generate_cpuset_string, (const pmix_cpuset_t *cpuset, char **text))                  \
    ROW(void, Cpuset_destruct, (pmix_cpuset_t * cpuset))                                                           \
    ROW(void, Topology_destruct, (pmix_topology_t * topology))

struct pypmix_table {
#define PYPMIX_MEMBER(ret, name, args) ret(*name) args;
    PYPMIX_SYMBOLS(PYPMIX_MEMBER)
#undef PYPMIX_MEMBER
};

extern struct pypmix_table pypmix_lib;

typedef struct pypmix_queue pypmix_queue;
typedef struct pypmix_call pypmix_call;

/*
 * One operation under way, with all that the library may still read of its inputs.
 *
 * It belongs to two parties: to libpmix until its callback has come, and to Python until it has taken the outcome or
 * lost interest. Whoever is the last of the two frees it. `status` is what Python sees: it stays PYPMIX_PENDING until
 * the wait is over or the call was popped from its queue. `result` is what has happened; it and all that follows are
 * guarded by the lock of calls.c.
 */
struct pypmix_call {
    pmix_status_t status;
    pmix_data_type_t kind;
    uint64_t word;
    uint64_t token;
    pmix_value_t *value;
    pmix_pdata_t *data;
    size_t ndata;
    sem_t done;
    pmix_status_t result;
    bool waited;
    bool library_holds;
    bool caller_holds;
    pypmix_queue *queue;
    pypmix_call *next;
    pypmix_call *previous;
    pmix_proc_t *procs;
    size_t nprocs;
    pmix_info_t *infos;
    size_t ninfos;
    char **keys;
    pmix_proc_t proc;
    pmix_key_t key;
};

#include "../cdef/shim.h"

/*
 * calls.c, for the files of single operations: a call with its inputs (`procs` and `keys` may be NULL) begins, the
 * library has taken it with a status, its callback has come, its inputs are no longer needed.
 */
void pypmix_begin(
    pypmix_call *call, pypmix_queue *queue, bool waited, pmix_proc_t *procs, size_t nprocs, char **keys,
    pmix_info_t *infos, size_t ninfos);
void pypmix_begun(pypmix_call *call, pmix_status_t status);
void pypmix_op_done(pmix_status_t status, void *cbdata);
void pypmix_data_done(pmix_status_t status, pmix_pdata_t *data, size_t ndata, pypmix_call *call);
void pypmix_drop_inputs(pypmix_call *call);

/* Whether a type is a mere number, held in the value itself. */
bool pypmix_is_word(pmix_data_type_t type);

/* The number that a value of such a type holds, zero-extended. */
uint64_t pypmix_word(const pmix_value_t *value);

#endif
