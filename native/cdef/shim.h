/* What the shim offers to Python. Read by cffi and by the shim: declarations only. */

/* library.c: one library per process */
const char *pypmix_open(const char *path);
void pypmix_close(void);
bool pypmix_has(const char *symbol);
const char *pypmix_version(void);

/* calls that answer at once or wait inside the library; infos and procs stay the caller's */
pmix_status_t pypmix_init(pmix_proc_t *proc, pmix_info_t *infos, size_t ninfos);
pmix_status_t pypmix_finalize(void);
bool pypmix_connected(void);
pmix_status_t pypmix_put(pmix_scope_t scope, const char *key, pmix_value_t *value);
pmix_status_t pypmix_put_word(pmix_scope_t scope, const char *key, pmix_data_type_t type, uint64_t word);
pmix_status_t pypmix_put_double(pmix_scope_t scope, const char *key, pmix_data_type_t type, double number);
pmix_status_t pypmix_put_string(pmix_scope_t scope, const char *key, const char *text);
pmix_status_t pypmix_put_bytes(
    pmix_scope_t scope, const char *key, pmix_data_type_t type, const char *bytes, size_t size);
pmix_status_t pypmix_parse_cpuset(const char *text, pmix_cpuset_t *cpuset);
char *pypmix_cpuset_text(pmix_cpuset_t *cpuset);

/* calls.c: operations with a completion; infos and procs, which come from pypmix_alloc, become the call's */
pypmix_queue *pypmix_queue_new(bool served);
void pypmix_queue_serve(pypmix_queue *queue, bool served);
int pypmix_queue_fd(pypmix_queue *queue);
void pypmix_queue_free(pypmix_queue *queue);
void pypmix_queue_fail(pypmix_queue *queue, pmix_status_t status);
void pypmix_queue_expire(pypmix_queue *queue, uint64_t token);
void pypmix_queue_wake(pypmix_queue *queue);
/* make the descriptor readable, whatever serves the queue */
void pypmix_queue_signal(pypmix_queue *queue);
void pypmix_queue_drain(pypmix_queue *queue);
void pypmix_queue_wait(pypmix_queue *queue);
pypmix_call *pypmix_queue_pop(pypmix_queue *queue);

pypmix_call *pypmix_call_new(void);
void pypmix_get(
    pypmix_call *call, pypmix_queue *queue, const char *nspace, pmix_rank_t rank, const char *key, pmix_info_t *infos,
    size_t ninfos, double timeout);
void pypmix_get_optional(
    pypmix_call *call, pypmix_queue *queue, const char *nspace, pmix_rank_t rank, const char *key);
void pypmix_fence(
    pypmix_call *call, pypmix_queue *queue, pmix_proc_t *procs, size_t nprocs, pmix_info_t *infos, size_t ninfos,
    double timeout);
void pypmix_fence_all(pypmix_call *call, pypmix_queue *queue, bool collect);
void pypmix_wait(pypmix_call *call, double timeout);
pmix_status_t pypmix_get_submit(
    pypmix_queue *queue, uint64_t token, const char *nspace, pmix_rank_t rank, const char *key, pmix_info_t *infos,
    size_t ninfos);
pmix_status_t pypmix_fence_submit(
    pypmix_queue *queue, uint64_t token, pmix_proc_t *procs, size_t nprocs, pmix_info_t *infos, size_t ninfos);
bool pypmix_queue_has(pypmix_queue *queue, uint64_t token);
void pypmix_call_leave(pypmix_call *call, pypmix_queue *queue, uint64_t token);
void pypmix_call_free(pypmix_call *call);

/* apart.c: the same way; the message stays the caller's */
void pypmix_commit(pypmix_call *call, pypmix_queue *queue);
void pypmix_abort(
    pypmix_call *call, pypmix_queue *queue, int code, const char *message, pmix_proc_t *procs, size_t nprocs);

/* asks.c: the same way; `what` is one of the enumeration, and what is given becomes the call's */
void pypmix_ask(pypmix_call *call, pypmix_queue *queue, int what, const pypmix_given *given, double timeout);
pmix_status_t pypmix_ask_submit(pypmix_queue *queue, uint64_t token, int what, const pypmix_given *given);
void pypmix_given_free(pypmix_given *given);

/* topology.c */
pmix_status_t pypmix_topology_load(const char *xml, const char *support, size_t size, pmix_topology_t *topology);
pmix_status_t pypmix_topology_text(pmix_topology_t *topology, char **xml, pmix_byte_object_t *support);

/* values.c: memory that PMIx's structures are made of, and their end */
void *pypmix_alloc(size_t count, size_t size);
char *pypmix_copy(const char *bytes, size_t size);
void pypmix_release(void *memory);
size_t pypmix_size_of(pmix_data_type_t type);
void pypmix_value_clear(pmix_value_t *value);
void pypmix_infos_free(pmix_info_t *infos, size_t count);
void pypmix_strings_free(char **strings);
void pypmix_elements_free(pmix_data_type_t type, void *elements, size_t count);
