/* What can be asked by pypmix_ask. Read by cffi and by the shim: declarations only. */

enum {
    PYPMIX_PUBLISH,
    PYPMIX_LOOKUP,
    PYPMIX_UNPUBLISH,
    PYPMIX_QUERY_INFO,
    PYPMIX_RESOLVE_PEERS,
    PYPMIX_RESOLVE_NODES,
    PYPMIX_LOG,
    PYPMIX_JOB_CONTROL,
    PYPMIX_ALLOCATION_REQUEST,
    PYPMIX_PROCESS_MONITOR,
    PYPMIX_HEARTBEAT,
    PYPMIX_GET_CREDENTIAL,
    PYPMIX_VALIDATE_CREDENTIAL,
    PYPMIX_FABRIC_REGISTER,
    PYPMIX_FABRIC_UPDATE,
    PYPMIX_COMPUTE_DISTANCES,
    PYPMIX_SPAWN,
    PYPMIX_CONNECT,
    PYPMIX_DISCONNECT,
    PYPMIX_REGISTER_EVENT_HANDLER,
    PYPMIX_NOTIFY_EVENT,
    PYPMIX_IOF_PULL,
    PYPMIX_IOF_DEREGISTER,
    PYPMIX_IOF_PUSH,
    PYPMIX_TOOL_ATTACH,
    PYPMIX_TOOL_SET_SERVER,
    PYPMIX_TOOL_GET_SERVERS,
    PYPMIX_TOOL_DISCONNECT,
    PYPMIX_GROUP_CONSTRUCT,
    PYPMIX_GROUP_DESTRUCT,
    PYPMIX_REGISTER_NSPACE,
    PYPMIX_DEREGISTER_NSPACE,
    PYPMIX_REGISTER_CLIENT,
    PYPMIX_DEREGISTER_CLIENT,
    PYPMIX_DMODEX_REQUEST,
    PYPMIX_SETUP_APPLICATION,
    PYPMIX_SETUP_LOCAL_SUPPORT,
    PYPMIX_IOF_DELIVER,
    PYPMIX_COLLECT_INVENTORY,
    PYPMIX_DELIVER_INVENTORY,
    PYPMIX_REGISTER_RESOURCES,
    PYPMIX_DEREGISTER_RESOURCES,
    PYPMIX_DEFINE_PROCESS_SET,
    PYPMIX_DELETE_PROCESS_SET,
    PYPMIX_STORE_INTERNAL,
    PYPMIX_ASKS
};

/*
 * The arguments of what is asked, in memory from pypmix_alloc: arrays of elements of their types (the strings of one
 * have a NULL behind them), infos, and a number. What each of them means is said where the operation is, in
 * asks.c and serverasks.c.
 */
typedef struct {
    pmix_data_array_t items;
    pmix_data_array_t more;
    pmix_info_t *infos;
    size_t ninfos;
    int64_t number;
} pypmix_given;
