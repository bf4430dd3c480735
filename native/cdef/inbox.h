/* What comes unasked: events and output. Read by cffi and by the shim: declarations only. */

enum { PYPMIX_EVENT, PYPMIX_OUTPUT };

typedef struct pypmix_inbox pypmix_inbox;
typedef struct pypmix_letter pypmix_letter;

/*
 * One event or one piece of output, copied, so that libpmix need not wait until somebody reads it. An event has a code
 * and results; output has the id that the library knows the pull by, a channel, and bytes.
 */
struct pypmix_letter {
    int what;
    pmix_status_t code;
    size_t id;
    uint16_t channel;
    pmix_proc_t source;
    char *bytes;
    size_t size;
    pmix_data_array_t infos;
    pmix_data_array_t results;
    /* of the shim */
    uint64_t serial;
    void *answer;
    void *cbdata;
    pypmix_inbox *inbox;
    pypmix_letter *next;
    pypmix_letter *previous;
};

/*
 * inbox.c: a session's letters, oldest first. One that was taken is its taker's, who has to drop it; an event is
 * answered by that, once, unless the inbox was closed before: then it was answered so at once, as are those that
 * nobody has taken. Infos of an answer come from pypmix_alloc and become the shim's. `lost` counts those that came
 * while too many waited, and made room for newer ones.
 */
pypmix_inbox *pypmix_inbox_new(pypmix_queue *queue);
uint64_t pypmix_inbox_number(pypmix_inbox *inbox);
pypmix_letter *pypmix_inbox_take(pypmix_inbox *inbox);
uint64_t pypmix_inbox_lost(pypmix_inbox *inbox);
void pypmix_inbox_close(pypmix_inbox *inbox);
void pypmix_inbox_free(pypmix_inbox *inbox);
void pypmix_letter_drop(pypmix_letter *letter, pmix_status_t status, pmix_info_t *infos, size_t ninfos);

/* tool.c: as pypmix_init and pypmix_finalize */
pmix_status_t pypmix_tool_init(pmix_proc_t *proc, pmix_info_t *infos, size_t ninfos);
pmix_status_t pypmix_tool_finalize(void);

/* events.c: deregister a handler; the library says nothing of it */
void pypmix_deregister_event_handler(size_t id);
