/* A process that nobody has launched: connects to the system server of its node if there is one, and publishes. */
#include <pmix.h>
#include <stdio.h>

int main(void)
{
    pmix_proc_t me;
    pmix_info_t info;
    int status = PMIx_Init(&me, NULL, 0);

    printf("init %d\n", status);
    PMIX_INFO_LOAD(&info, "singleton.key", "text", PMIX_STRING);
    printf("publish %d\n", PMIx_Publish(&info, 1));
    printf("finalize %d\n", PMIx_Finalize(NULL, 0));
    return 0;
}
