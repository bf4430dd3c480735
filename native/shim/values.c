/* Memory of PMIx's structures: its sizes and its end. All of it is malloc's, the library's and ours alike. */

#include "shim.h"
#include "types.h"

#include <stdlib.h>
#include <string.h>

/* the size of an element of an array of each type; 0 where there is no public structure */
static const uint16_t sizes[END] = {
    [BOOL] = sizeof(bool),
    [BYTE] = 1,
    [STRING] = sizeof(char *),
    [SIZE] = sizeof(size_t),
    [PID] = sizeof(pid_t),
    [INT] = sizeof(int),
    [INT8] = 1,
    [INT16] = 2,
    [INT32] = 4,
    [INT64] = 8,
    [UINT] = sizeof(unsigned int),
    [UINT8] = 1,
    [UINT16] = 2,
    [UINT32] = 4,
    [UINT64] = 8,
    [FLOAT] = sizeof(float),
    [DOUBLE] = sizeof(double),
    [TIMEVAL] = sizeof(struct timeval),
    [TIME] = sizeof(time_t),
    [STATUS] = sizeof(pmix_status_t),
    [VALUE] = sizeof(pmix_value_t),
    [PROC] = sizeof(pmix_proc_t),
    [APP] = sizeof(pmix_app_t),
    [INFO] = sizeof(pmix_info_t),
    [PDATA] = sizeof(pmix_pdata_t),
    [BYTE_OBJECT] = sizeof(pmix_byte_object_t),
    [PERSIST] = 1,
    [POINTER] = sizeof(void *),
    [SCOPE] = 1,
    [DATA_RANGE] = 1,
    [COMMAND] = 1,
    [INFO_DIRECTIVES] = 4,
    [DATA_TYPE] = 2,
    [PROC_STATE] = 1,
    [PROC_INFO] = sizeof(pmix_proc_info_t),
    [DATA_ARRAY] = sizeof(pmix_data_array_t),
    [PROC_RANK] = sizeof(pmix_rank_t),
    [QUERY] = sizeof(pmix_query_t),
    [COMPRESSED_STRING] = sizeof(pmix_byte_object_t),
    [ALLOC_DIRECTIVE] = 1,
    [IOF_CHANNEL] = 2,
    [ENVAR] = sizeof(pmix_envar_t),
    [COORD] = sizeof(pmix_coord_t),
    [REGATTR] = sizeof(pmix_regattr_t),
    [REGEX] = sizeof(pmix_byte_object_t),
    [JOB_STATE] = 1,
    [LINK_STATE] = 1,
    [PROC_CPUSET] = sizeof(pmix_cpuset_t),
    [GEOMETRY] = sizeof(pmix_geometry_t),
    [DEVICE_DIST] = sizeof(pmix_device_distance_t),
    [ENDPOINT] = sizeof(pmix_endpoint_t),
    [TOPO] = sizeof(pmix_topology_t),
    [DEVTYPE] = 8,
    [LOCTYPE] = 2,
    [COMPRESSED_BYTE_OBJECT] = sizeof(pmix_byte_object_t),
    [PROC_NSPACE] = sizeof(pmix_nspace_t),
    [PROC_STATS] = sizeof(pmix_proc_stats_t),
    [DISK_STATS] = sizeof(pmix_disk_stats_t),
    [NET_STATS] = sizeof(pmix_net_stats_t),
    [NODE_STATS] = sizeof(pmix_node_stats_t),
    [STOR_MEDIUM] = 8,
    [STOR_ACCESS] = 8,
    [STOR_PERSIST] = 8,
    [STOR_ACCESS_TYPE] = 2,
    [DEVICE] = sizeof(pmix_device_t),
    [RESBLOCK_DIRECTIVE] = 1,
    [RESOURCE_UNIT] = sizeof(pmix_resource_unit_t),
    [NODE_PID] = sizeof(pmix_node_pid_t),
    [REGEX2] = sizeof(pmix_regex2_t),
    [ALLOC_INHERIT] = 1,
};

size_t pypmix_size_of(pmix_data_type_t type)
{
    return type < END ? sizes[type] : 0;
}

void *pypmix_alloc(size_t count, size_t size)
{
    return calloc(0 == count ? 1 : count, size);
}

/* A copy of bytes with a NUL behind them, so that it is a C string as well. */
char *pypmix_copy(const char *bytes, size_t size)
{
    char *copy = malloc(size + 1);

    if (NULL != copy) {
        memcpy(copy, bytes, size);
        copy[size] = '\0';
    }
    return copy;
}

void pypmix_release(void *memory)
{
    free(memory);
}

void pypmix_strings_free(char **strings)
{
    if (NULL != strings) {
        for (size_t n = 0; NULL != strings[n]; n++) {
            free(strings[n]);
        }
        free(strings);
    }
}

/* Frees what one element owns, not the element's own memory. */
static void clear(pmix_data_type_t type, void *element)
{
    switch (type) {
    case STRING:
        free(*(char **) element);
        break;
    case BYTE_OBJECT:
    case COMPRESSED_STRING:
    case COMPRESSED_BYTE_OBJECT:
    case REGEX:
        free(((pmix_byte_object_t *) element)->bytes);
        break;
    case VALUE:
        pypmix_value_clear(element);
        break;
    case INFO:
        pypmix_value_clear(&((pmix_info_t *) element)->value);
        break;
    case PDATA:
        pypmix_value_clear(&((pmix_pdata_t *) element)->value);
        break;
    case APP: {
        pmix_app_t *app = element;
        free(app->cmd);
        pypmix_strings_free(app->argv);
        pypmix_strings_free(app->env);
        free(app->cwd);
        pypmix_infos_free(app->info, app->ninfo);
        break;
    }
    case QUERY: {
        pmix_query_t *query = element;
        pypmix_strings_free(query->keys);
        pypmix_infos_free(query->qualifiers, query->nqual);
        break;
    }
    case PROC_INFO: {
        pmix_proc_info_t *info = element;
        free(info->hostname);
        free(info->executable_name);
        break;
    }
    case DATA_ARRAY: {
        pmix_data_array_t *array = element;
        pypmix_elements_free(array->type, array->array, array->size);
        break;
    }
    case ENVAR: {
        pmix_envar_t *envar = element;
        free(envar->envar);
        free(envar->value);
        break;
    }
    case COORD:
        free(((pmix_coord_t *) element)->coord);
        break;
    case REGATTR: {
        pmix_regattr_t *attribute = element;
        free(attribute->name);
        pypmix_strings_free(attribute->description);
        break;
    }
    case PROC_CPUSET:
        /* an object of the library's hwloc */
        if (NULL != ((pmix_cpuset_t *) element)->bitmap && NULL != pypmix_lib.Cpuset_destruct) {
            pypmix_lib.Cpuset_destruct(element);
        }
        break;
    case TOPO:
        if (NULL != ((pmix_topology_t *) element)->topology && NULL != pypmix_lib.Topology_destruct) {
            pypmix_lib.Topology_destruct(element);
        }
        break;
    case GEOMETRY: {
        pmix_geometry_t *geometry = element;
        free(geometry->uuid);
        free(geometry->osname);
        pypmix_elements_free(COORD, geometry->coordinates, geometry->ncoords);
        break;
    }
    case DEVICE:
    case DEVICE_DIST: {
        /* both begin with the two strings */
        pmix_device_t *device = element;
        free(device->uuid);
        free(device->osname);
        break;
    }
    case ENDPOINT: {
        pmix_endpoint_t *endpoint = element;
        free(endpoint->uuid);
        free(endpoint->osname);
        free(endpoint->endpt.bytes);
        break;
    }
    case NODE_PID:
        free(((pmix_node_pid_t *) element)->hostname);
        break;
    case REGEX2: {
        pmix_regex2_t *regex = element;
        free(regex->type);
        free(regex->bytes);
        break;
    }
    case PROC_STATS: {
        pmix_proc_stats_t *stats = element;
        free(stats->node);
        free(stats->cmd);
        break;
    }
    case DISK_STATS:
        free(((pmix_disk_stats_t *) element)->disk);
        break;
    case NET_STATS:
        free(((pmix_net_stats_t *) element)->net_interface);
        break;
    case NODE_STATS: {
        pmix_node_stats_t *stats = element;
        free(stats->node);
        pypmix_elements_free(DISK_STATS, stats->diskstats, stats->ndiskstats);
        pypmix_elements_free(NET_STATS, stats->netstats, stats->nnetstats);
        break;
    }
    default:
        break;
    }
}

/* Elements of an unknown type are leaked: what they own cannot be known. */
void pypmix_elements_free(pmix_data_type_t type, void *elements, size_t count)
{
    size_t size = pypmix_size_of(type);

    if (NULL == elements) {
        return;
    }
    for (size_t n = 0; n < count && 0 < size; n++) {
        clear(type, (char *) elements + n * size);
    }
    free(elements);
}

void pypmix_infos_free(pmix_info_t *infos, size_t count)
{
    pypmix_elements_free(INFO, infos, count);
}

/* Frees what a value owns; the types that it holds by pointer, with the memory that it points to. */
void pypmix_value_clear(pmix_value_t *value)
{
    switch (value->type) {
    case STRING:
    case BYTE_OBJECT:
    case COMPRESSED_STRING:
    case COMPRESSED_BYTE_OBJECT:
    case REGEX:
    case ENVAR:
        clear(value->type, &value->data);
        break;
    case PROC_NSPACE:
    case PROC:
    case PROC_INFO:
    case DATA_ARRAY:
    case COORD:
    case REGATTR:
    case PROC_CPUSET:
    case GEOMETRY:
    case DEVICE:
    case DEVICE_DIST:
    case ENDPOINT:
    case TOPO:
    case RESOURCE_UNIT:
    case NODE_PID:
    case REGEX2:
    case PROC_STATS:
    case DISK_STATS:
    case NET_STATS:
    case NODE_STATS:
        pypmix_elements_free(value->type, value->data.ptr, 1);
        break;
    default:
        break;
    }
    memset(value, 0, sizeof(*value));
}

bool pypmix_is_word(pmix_data_type_t type)
{
    switch (type) {
    case BOOL:
    case BYTE:
    case SIZE:
    case PID:
    case INT:
    case INT8:
    case INT16:
    case INT32:
    case INT64:
    case UINT:
    case UINT8:
    case UINT16:
    case UINT32:
    case UINT64:
    case TIME:
    case STATUS:
    case PROC_RANK:
        return true;
    default:
        return false;
    }
}

uint64_t pypmix_word(const pmix_value_t *value)
{
    switch (pypmix_size_of(value->type)) {
    case 1:
        return value->data.uint8;
    case 2:
        return value->data.uint16;
    case 4:
        return value->data.uint32;
    default:
        return value->data.uint64;
    }
}
