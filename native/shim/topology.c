/*
 * Topologies, which are objects of the library's hwloc. The library itself packs one as a string of XML with bytes
 * behind it that say what hwloc supports, so through its buffers they become both, and what they were again.
 */

#include "shim.h"
#include "types.h"

#include <stdlib.h>
#include <string.h>

static bool offered(void)
{
    return NULL != pypmix_lib.Data_pack && NULL != pypmix_lib.Data_unpack && NULL != pypmix_lib.Topology_destruct;
}

pmix_status_t pypmix_topology_load(const char *xml, const char *support, size_t size, pmix_topology_t *topology)
{
    pmix_data_buffer_t buffer = {0};
    int32_t count = 1;
    pmix_status_t status;
    char *bytes;

    if (!offered()) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    status = pypmix_lib.Data_pack(NULL, &buffer, &xml, 1, STRING);
    if (PMIX_SUCCESS == status) {
        bytes = realloc(buffer.base_ptr, buffer.bytes_used + size);
        if (NULL == bytes) {
            status = PMIX_ERR_NOMEM;
        } else {
            memcpy(bytes + buffer.bytes_used, support, size);
            buffer.base_ptr = buffer.unpack_ptr = bytes;
            buffer.bytes_used = buffer.bytes_allocated = buffer.bytes_used + size;
            buffer.pack_ptr = bytes + buffer.bytes_used;
            status = pypmix_lib.Data_unpack(NULL, &buffer, topology, &count, TOPO);
        }
    }
    free(buffer.base_ptr);
    return status;
}

/* What it returns in `xml` and `support` is malloc's. */
pmix_status_t pypmix_topology_text(pmix_topology_t *topology, char **xml, pmix_byte_object_t *support)
{
    pmix_data_buffer_t buffer = {0};
    int32_t count = 1;
    pmix_status_t status;

    if (!offered()) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    status = pypmix_lib.Data_pack(NULL, &buffer, topology, 1, TOPO);
    if (PMIX_SUCCESS == status) {
        status = pypmix_lib.Data_unpack(NULL, &buffer, xml, &count, STRING);
    }
    if (PMIX_SUCCESS == status) {
        support->size = (size_t) (buffer.base_ptr + buffer.bytes_used - buffer.unpack_ptr);
        support->bytes = pypmix_copy(buffer.unpack_ptr, support->size);
    }
    free(buffer.base_ptr);
    return status;
}
