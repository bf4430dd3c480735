/* Connects, exchanges and finalizes several times in one process. */
#include "common.h"

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 3;

    for (int i = 0; i < rounds; i++) {
        pmix_proc_t peer;
        char name[32], text[32];

        begin();
        snprintf(text, sizeof text, "round %d", i);
        put_string(PMIX_GLOBAL, "round", text);
        must("commit", PMIx_Commit());
        must("fence", meet(true));
        name_proc(&peer, me.nspace, (me.rank + 1) % job_size);
        snprintf(name, sizeof name, "round-%d", i);
        note_get(name, &peer, "round", NULL, 0);
        must("last fence", meet(false));
        finish();
    }
    return 0;
}
