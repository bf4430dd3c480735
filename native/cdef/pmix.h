/*
 * The data of the PMIx ABI, as all releases of libpmix.so.2 from 4.2 to 7 lay it out.
 * Read by cffi and by the shim, so it holds declarations only: no directives, no macros.
 */

typedef char pmix_nspace_t[256];
typedef char pmix_key_t[512];
typedef int pmix_status_t;
typedef uint32_t pmix_rank_t;
typedef uint16_t pmix_data_type_t;
typedef uint8_t pmix_scope_t;

typedef struct {
    pmix_nspace_t nspace;
    pmix_rank_t rank;
} pmix_proc_t;

typedef struct {
    char *bytes;
    size_t size;
} pmix_byte_object_t;

typedef struct {
    pmix_data_type_t type;
    size_t size;
    void *array;
} pmix_data_array_t;

typedef struct {
    char *envar;
    char *value;
    char separator;
} pmix_envar_t;

typedef struct {
    uint8_t view;
    uint32_t *coord;
    size_t dims;
} pmix_coord_t;

typedef struct {
    char *source;
    void *bitmap;
} pmix_cpuset_t;

typedef struct {
    char *source;
    void *topology;
} pmix_topology_t;

typedef struct {
    size_t fabric;
    char *uuid;
    char *osname;
    pmix_coord_t *coordinates;
    size_t ncoords;
} pmix_geometry_t;

typedef struct {
    char *uuid;
    char *osname;
    uint64_t type;
} pmix_device_t;

typedef struct {
    char *uuid;
    char *osname;
    uint64_t type;
    uint16_t mindist;
    uint16_t maxdist;
} pmix_device_distance_t;

typedef struct {
    uint64_t type;
    size_t count;
} pmix_resource_unit_t;

typedef struct {
    char *hostname;
    uint32_t nodeid;
    pid_t pid;
} pmix_node_pid_t;

typedef struct {
    char *type;
    uint8_t *bytes;
    size_t len;
} pmix_regex2_t;

typedef struct {
    char *uuid;
    char *osname;
    pmix_byte_object_t endpt;
} pmix_endpoint_t;

typedef struct {
    pmix_proc_t proc;
    char *hostname;
    char *executable_name;
    pid_t pid;
    int exit_code;
    uint8_t state;
} pmix_proc_info_t;

typedef struct {
    char *node;
    pmix_proc_t proc;
    pid_t pid;
    char *cmd;
    uint8_t state;
    struct timeval time;
    float percent_cpu;
    int32_t priority;
    uint16_t num_threads;
    float pss;
    float vsize;
    float rss;
    float peak_vsize;
    uint16_t processor;
    struct timeval sample_time;
} pmix_proc_stats_t;

typedef struct {
    char *disk;
    uint64_t num_reads_completed;
    uint64_t num_reads_merged;
    uint64_t num_sectors_read;
    uint64_t milliseconds_reading;
    uint64_t num_writes_completed;
    uint64_t num_writes_merged;
    uint64_t num_sectors_written;
    uint64_t milliseconds_writing;
    uint64_t num_ios_in_progress;
    uint64_t milliseconds_io;
    uint64_t weighted_milliseconds_io;
} pmix_disk_stats_t;

typedef struct {
    char *net_interface;
    uint64_t num_bytes_recvd;
    uint64_t num_packets_recvd;
    uint64_t num_recv_errs;
    uint64_t num_bytes_sent;
    uint64_t num_packets_sent;
    uint64_t num_send_errs;
} pmix_net_stats_t;

typedef struct {
    char *node;
    float la;
    float la5;
    float la15;
    float total_mem;
    float free_mem;
    float buffers;
    float cached;
    float swap_cached;
    float swap_total;
    float swap_free;
    float mapped;
    struct timeval sample_time;
    pmix_disk_stats_t *diskstats;
    size_t ndiskstats;
    pmix_net_stats_t *netstats;
    size_t nnetstats;
} pmix_node_stats_t;

typedef union {
    bool flag;
    char *string;
    size_t size;
    pid_t pid;
    int integer;
    int8_t int8;
    int16_t int16;
    int32_t int32;
    int64_t int64;
    unsigned int uint;
    uint8_t uint8;
    uint16_t uint16;
    uint32_t uint32;
    uint64_t uint64;
    float fval;
    double dval;
    struct timeval tv;
    time_t time;
    pmix_status_t status;
    pmix_nspace_t *nspace;
    pmix_proc_t *proc;
    pmix_byte_object_t bo;
    pmix_proc_info_t *pinfo;
    pmix_data_array_t *darray;
    void *ptr;
    pmix_envar_t envar;
    pmix_cpuset_t *cpuset;
} pmix_value_data_t;

typedef struct {
    pmix_data_type_t type;
    pmix_value_data_t data;
} pmix_value_t;

typedef struct {
    pmix_key_t key;
    uint32_t flags;
    pmix_value_t value;
} pmix_info_t;

typedef struct {
    pmix_proc_t proc;
    pmix_key_t key;
    pmix_value_t value;
} pmix_pdata_t;

typedef struct {
    char *cmd;
    char **argv;
    char **env;
    char *cwd;
    int maxprocs;
    pmix_info_t *info;
    size_t ninfo;
} pmix_app_t;

typedef struct {
    char **keys;
    pmix_info_t *qualifiers;
    size_t nqual;
} pmix_query_t;

typedef struct {
    char *name;
    pmix_key_t string;
    pmix_data_type_t type;
    char **description;
} pmix_regattr_t;

typedef struct {
    char *name;
    size_t index;
    pmix_info_t *info;
    size_t ninfo;
    void *module;
} pmix_fabric_t;

typedef struct {
    char *base_ptr;
    char *pack_ptr;
    char *unpack_ptr;
    size_t bytes_allocated;
    size_t bytes_used;
} pmix_data_buffer_t;
