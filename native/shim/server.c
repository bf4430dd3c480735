/* The server of this process: the library's table of upcalls, built for its release, and the server's begin and end. */

#include "shim.h"

#include <string.h>

/* More members than the table of any release has. The library copies as much of it as its own release knows. */
#define PLACES 128

pmix_status_t pypmix_server_init(
    pypmix_queue *queue, const int *slots, size_t nslots, pmix_info_t *infos, size_t ninfos)
{
    static pypmix_function table[PLACES];
    pmix_status_t status;

    if (NULL == pypmix_lib.server_init || NULL == pypmix_lib.server_finalize
        || NULL == pypmix_lib.Register_event_handler) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    memset(table, 0, sizeof(table));
    for (size_t n = 0; n < nslots && n < PYPMIX_UPS; n++) {
        int place = slots[n] & ~(PYPMIX_UP_TOLD | PYPMIX_UP_UNREFUSED);

        if (0 <= slots[n] && PLACES <= place) {
            return PMIX_ERR_BAD_PARAM;
        }
        if (0 <= slots[n]) {
            table[place] = pypmix_trampoline((int) n);
        }
    }
    if (!pypmix_upcalls_open(queue, slots, nslots)) {
        return PMIX_ERR_BAD_PARAM;
    }
    status = pypmix_lib.server_init(table, infos, ninfos);
    if (PMIX_SUCCESS != status) {
        pypmix_upcalls_close();
    }
    return status;
}

pmix_status_t pypmix_server_finalize(void)
{
    if (NULL == pypmix_lib.server_finalize) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    pypmix_upcalls_close();
    return pypmix_end_raised(pypmix_lib.server_finalize);
}

pmix_status_t pypmix_server_setup_fork(const pmix_proc_t *proc, char ***env)
{
    return NULL == pypmix_lib.server_setup_fork ? PMIX_ERR_NOT_SUPPORTED : pypmix_lib.server_setup_fork(proc, env);
}
