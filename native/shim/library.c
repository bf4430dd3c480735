/* The library of this process: opened at run time, its functions looked up by name. */

#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pypmix_table pypmix_lib;

static void *handle;

/* Returns NULL, or what is wrong with the library. */
const char *pypmix_open(const char *path)
{
    static char trouble[512];
    void *opened;

    if (NULL != handle) {
        return "a library is open already";
    }
    /* local: the library's plugins name it as a dependency and find it by its soname, so nothing of it need be global,
     * where it would mingle with another libpmix that an MPI brings along */
    opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (NULL == opened) {
        const char *text = dlerror();
        snprintf(trouble, sizeof(trouble), "%s", NULL == text ? "dlopen failed" : text);
        return trouble;
    }
#define PYPMIX_BIND(ret, name, args) pypmix_lib.name = (ret(*) args) dlsym(opened, "PMIx_" #name);
    PYPMIX_SYMBOLS(PYPMIX_BIND)
#undef PYPMIX_BIND
    handle = opened;
    return NULL;
}

/* Only for a library that was not initialised: its threads would run on unmapped code. */
void pypmix_close(void)
{
    if (NULL != handle) {
        memset(&pypmix_lib, 0, sizeof(pypmix_lib));
        dlclose(handle);
        handle = NULL;
    }
}

bool pypmix_has(const char *symbol)
{
    return NULL != handle && NULL != dlsym(handle, symbol);
}

const char *pypmix_version(void)
{
    return NULL == pypmix_lib.Get_version ? "" : pypmix_lib.Get_version();
}

pmix_status_t pypmix_init(pmix_proc_t *proc, pmix_info_t *infos, size_t ninfos)
{
    return NULL == pypmix_lib.Init ? PMIX_ERR_NOT_SUPPORTED : pypmix_lib.Init(proc, infos, ninfos);
}

static pmix_status_t finalize(void)
{
    return pypmix_lib.Finalize(NULL, 0);
}

pmix_status_t pypmix_finalize(void)
{
    return NULL == pypmix_lib.Finalize ? PMIX_ERR_NOT_SUPPORTED : pypmix_end_raised(finalize);
}

void pypmix_ignore(pmix_status_t status, void *cbdata)
{
    (void) status;
    (void) cbdata;
}

/* Every release looks at its connection before it looks at the arguments of a fence, and sends nothing for bad ones. */
bool pypmix_connected(void)
{
    return NULL != pypmix_lib.Fence_nb
        && PMIX_ERR_BAD_PARAM == pypmix_lib.Fence_nb(NULL, 1, NULL, 0, pypmix_ignore, NULL);
}

pmix_status_t pypmix_put(pmix_scope_t scope, const char *key, pmix_value_t *value)
{
    return NULL == pypmix_lib.Put ? PMIX_ERR_NOT_SUPPORTED : pypmix_lib.Put(scope, key, value);
}

pmix_status_t pypmix_put_word(pmix_scope_t scope, const char *key, pmix_data_type_t type, uint64_t word)
{
    pmix_value_t value;

    memset(&value, 0, sizeof(value));
    value.type = type;
    switch (pypmix_size_of(type)) {
    case 1:
        value.data.uint8 = (uint8_t) word;
        break;
    case 2:
        value.data.uint16 = (uint16_t) word;
        break;
    case 4:
        value.data.uint32 = (uint32_t) word;
        break;
    default:
        value.data.uint64 = word;
        break;
    }
    return pypmix_put(scope, key, &value);
}

/* `type` is FLOAT or DOUBLE, told apart by their sizes */
pmix_status_t pypmix_put_double(pmix_scope_t scope, const char *key, pmix_data_type_t type, double number)
{
    pmix_value_t value;

    memset(&value, 0, sizeof(value));
    value.type = type;
    if (sizeof(float) == pypmix_size_of(type)) {
        value.data.fval = (float) number;
    } else {
        value.data.dval = number;
    }
    return pypmix_put(scope, key, &value);
}

/* PMIx_Put copies, so the value may lend the caller's memory. */
pmix_status_t pypmix_put_bytes(
    pmix_scope_t scope, const char *key, pmix_data_type_t type, const char *bytes, size_t size)
{
    pmix_value_t value;

    memset(&value, 0, sizeof(value));
    value.type = type;
    value.data.bo.bytes = (char *) bytes;
    value.data.bo.size = size;
    return pypmix_put(scope, key, &value);
}

pmix_status_t pypmix_put_string(pmix_scope_t scope, const char *key, const char *text)
{
    pmix_value_t value;

    memset(&value, 0, sizeof(value));
    value.type = 3;
    value.data.string = (char *) text;
    return pypmix_put(scope, key, &value);
}

/* Releases before 7 write into the text while they parse it. */
pmix_status_t pypmix_parse_cpuset(const char *text, pmix_cpuset_t *cpuset)
{
    pmix_status_t status = PMIX_ERR_NOMEM;
    char *copy;

    if (NULL == pypmix_lib.Parse_cpuset_string) {
        return PMIX_ERR_NOT_SUPPORTED;
    }
    copy = strdup(text);
    if (NULL != copy) {
        status = pypmix_lib.Parse_cpuset_string(copy, cpuset);
        free(copy);
    }
    return status;
}

char *pypmix_cpuset_text(pmix_cpuset_t *cpuset)
{
    char *text = NULL;

    if (NULL == pypmix_lib.server_generate_cpuset_string || NULL == cpuset->source) {
        return NULL;
    }
    if (PMIX_SUCCESS != pypmix_lib.server_generate_cpuset_string(cpuset, &text)) {
        return NULL;
    }
    return text;
}
