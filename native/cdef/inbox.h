/* Messages that arrive unasked: events and output. Read by cffi and by the shim: declarations only. */

enum { PYPMIX_EVENT, PYPMIX_OUTPUT };

typedef struct pypmix_inbox pypmix_inbox;
typedef struct pypmix_message pypmix_message;

/*
 * One event or one piece of output, copied, so that libpmix need not wait until it is read. An event has a code
 * and results; output has the id that the library knows the pull by, a channel, and bytes.
 */
struct pypmix_message {
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
    pypmix_message *next;
    pypmix_message *previous;
};

/*
 * inbox.c: a session's messages, oldest first. The caller owns a message that it has taken, and has to drop it. That
 * answers an event, once, unless the inbox was closed before: this answers all events that are open or were not taken.
 * Infos of an answer come from pypmix_alloc and become the shim's. `lost` counts the messages that were dropped for
 * newer ones since too many waited.
 */
pypmix_inbox *pypmix_inbox_new(pypmix_queue *queue);
uint64_t pypmix_inbox_number(pypmix_inbox *inbox);
pypmix_message *pypmix_inbox_take(pypmix_inbox *inbox);
uint64_t pypmix_inbox_lost(pypmix_inbox *inbox);
void pypmix_inbox_close(pypmix_inbox *inbox);
void pypmix_inbox_free(pypmix_inbox *inbox);
void pypmix_message_drop(pypmix_message *message, pmix_status_t status, pmix_info_t *infos, size_t ninfos);

/* tool.c: as pypmix_init and pypmix_finalize */
pmix_status_t pypmix_tool_init(pmix_proc_t *proc, pmix_info_t *infos, size_t ninfos);
pmix_status_t pypmix_tool_finalize(void);

/* events.c: deregister a handler of an inbox's session; the library says nothing of it */
void pypmix_deregister_event_handler(pypmix_inbox *inbox, size_t id);
