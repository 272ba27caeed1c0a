/* A CUDA driver and CUPTI in one library, without a GPU: it loads the injected library at cuInit, drives the callbacks
 * that were enabled around each call, refuses PTX if CUDA_DISABLE_PTX_JIT=1, and else keeps a file in the compute cache.
 * Kernels add 1 to a sum, and those named gemm make a product; memory is the host's. FAKE_NO_CUPTI, FAKE_SUBSCRIBED make CUPTI missing or taken. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    int site; const char *function; const void *parameters; const void *result; const char *symbol;
    void *context; uint32_t id; uint64_t *data; uint32_t correlation;
} callback_data;
typedef void (*callback)(void *, int, uint32_t, const void *);
static callback subscriber;
static char enabled[1024], resources[64];
static void (*request)(uint8_t **, size_t *, size_t *), (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static uint8_t *buffer; static size_t used, room;
static atomic_long sum;

/* Numbers unlike those of any CUDA, so that whoever does not ask for names is caught. */
enum { FIRST = 901 };
static const char *const NAMES[] = {
    "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuLibraryLoadData", "cuLinkAddData_v2",
    "cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemAllocFromPoolAsync",
    "cuMemCreate", "cuMemcpyHtoD_v2", "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchCooperativeKernel",
    "cuGraphLaunch", "cuCtxSynchronize",
    "cuStreamCreate", "cuModuleLoad", "cuProfilerStart", "cuProfilerStop",
};
static int id_of(const char *name) {
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) if (!strcmp(NAMES[i], name)) return FIRST + (int)i;
    return 0;
}

/* ---- CUPTI ---- */
int cuptiSubscribe(void **handle, callback function, void *data) {
    (void)data;
    if (getenv("FAKE_SUBSCRIBED")) return 39;
    subscriber = function; *handle = &subscriber; return 0;
}
int cuptiEnableCallback(uint32_t on, void *handle, int domain, uint32_t id) {
    (void)handle;
    if (domain == 1 && id < sizeof enabled) enabled[id] = (char)on;
    if (domain == 3 && id < sizeof resources) resources[id] = (char)on;
    return 0;
}
int cuptiGetCallbackName(int domain, uint32_t id, const char **name) {
    if (domain != 1 || id < FIRST || id >= FIRST + sizeof NAMES / sizeof *NAMES) return 1;
    *name = NAMES[id - FIRST]; return 0;
}
int cuptiActivityRegisterCallbacks(void *one, void *two) { request = one; complete = two; return 0; }
static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
int cuptiGetTimestamp(uint64_t *time) { *time = now(); return 0; }
int cuptiActivityEnable(int kind) { return kind == 52 ? 0 : 1; }
int cuptiActivityFlushAll(uint32_t flag) {
    (void)flag;
    if (buffer) { uint8_t *full = buffer; buffer = NULL; complete(NULL, 0, full, room, used); }
    return 0;
}
int cuptiActivityGetNextRecord(uint8_t *data, size_t valid, void **record) {
    uint8_t *next = *record ? (uint8_t *)*record + 80 : data;
    if (next + 80 > data + valid) return 12;
    *record = next; return 0;
}

/* ---- driver ---- */
static void around(const char *name, int site, const void *parameters, const int *result, const char *symbol) {
    int id = id_of(name);
    if (subscriber == NULL || !id || !enabled[id]) return;
    callback_data data = {site, name, parameters, result, symbol, NULL, 1, NULL, 1};
    subscriber(NULL, 1, (uint32_t)id, &data);
}
int cuInit(unsigned flags) {
    (void)flags;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    int (*start)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (start) start();
    return 0;
}
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = c; return 0; }
int cuCtxSetCurrent(void *c) { (void)c; return 0; }
int cuCtxGetCurrent(void **c) { *c = c; return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuCtxSynchronize(void) { around("cuCtxSynchronize", 0, NULL, NULL, NULL); return 0; }
int cuDeviceGetAttribute(int *v, int which, int d) { /* 9.0; integrated if FAKE_INTEGRATED is set */
    (void)d;
    *v = which == 75 ? 9 : which == 18 && getenv("FAKE_INTEGRATED");
    return 0;
}
static int marked(const char *name) {
    int result = 0;
    around(name, 0, NULL, NULL, NULL);
    around(name, 1, NULL, &result, NULL);
    return 0;
}
int cuProfilerStart(void) { return marked("cuProfilerStart"); }
int cuProfilerStop(void) { return marked("cuProfilerStop"); }

static int is_ptx(const void *image) {
    const uint8_t *data = image;
    if (!memcmp(data, "\x50\xed\x55\xba", 4)) return data[16] == 1;
    return memcmp(data, "\x7f" "ELF", 4) && memcmp(data, "\xb1\x43\x62\x46", 4);
}
static int jit(void) {
    const char *off = getenv("CUDA_DISABLE_PTX_JIT"), *cache = getenv("CUDA_CACHE_PATH");
    if (cache) { /* as driver 580 does, also where it refuses */
        char path[4096]; snprintf(path, sizeof path, "%s/index", cache);
        FILE *file = fopen(path, "w"); if (file) fclose(file);
    }
    if (off && !strcmp(off, "1")) return 223;
    if (cache) {
        char path[4096]; snprintf(path, sizeof path, "%s/compiled", cache);
        FILE *file = fopen(path, "w"); if (file) fclose(file);
    }
    if (request) {
        size_t most = 0;
        if (buffer == NULL) { request(&buffer, &room, &most); used = 0; }
        uint32_t record[20] = {52, 1, 3, 0};
        uint64_t times[2] = {now(), now() + 2000000000};
        memcpy(record + 4, times, sizeof times);
        memcpy(buffer + used, record, sizeof record); used += sizeof record;
    }
    return 0;
}
static int loaded(const char *name, void **module, const void *image, int lazy) {
    const void *parameters[] = {module, image};
    around(name, 0, parameters, NULL, NULL);
    int result = is_ptx(image) && !lazy ? jit() : 0;
    if (result == 0) {
        struct { uint32_t id; size_t size; const void *cubin; } loaded_module = {1, 4, "abc"};
        struct { void *a, *b; void *descriptor; } data = {NULL, NULL, &loaded_module};
        if (subscriber && resources[6]) subscriber(NULL, 3, 6, &data);
        *module = module;
    }
    around(name, 1, parameters, &result, NULL);
    return result;
}
int cuModuleLoadData(void **m, const void *i) { return loaded("cuModuleLoadData", m, i, 0); }
int cuModuleLoadDataEx(void **m, const void *i, unsigned n, void *o, void *v) { (void)n, (void)o, (void)v; return loaded("cuModuleLoadDataEx", m, i, 0); }
int cuModuleLoadFatBinary(void **m, const void *i) { return loaded("cuModuleLoadFatBinary", m, i, 0); }
int cuLibraryLoadData(void **m, const void *i, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f; return loaded("cuLibraryLoadData", m, i, 1);
}
int cuLinkCreate_v2(unsigned n, void *o, void *v, void **state) { (void)n, (void)o, (void)v; *state = state; return 0; }
int cuLinkAddData_v2(void *state, int type, void *data, size_t size, const char *name, unsigned n, void *o, void *v) {
    (void)name, (void)n, (void)o, (void)v;
    struct { void *state; int type; void *data; size_t size; } parameters = {state, type, data, size};
    around("cuLinkAddData_v2", 0, &parameters, NULL, NULL);
    int result = type == 1 ? jit() : 0;
    around("cuLinkAddData_v2", 1, &parameters, &result, NULL);
    return result;
}
int cuLinkComplete(void *s, void **c, size_t *n) { (void)s; *c = s; *n = 0; return 0; }
static int allocated(const char *name, uint64_t *to, size_t size, const void *parameters) {
    around(name, 0, parameters, NULL, NULL);
    int result = size > (size_t)1 << 40 ? 2 : 0;
    if (!result) *to = (uint64_t)malloc(size);
    around(name, 1, parameters, &result, NULL);
    return result;
}
#define ALLOCATION(name)                                                                                               \
    int name(uint64_t *to, size_t size) { return allocated(#name, to, size, (const void *[]){to, (void *)size}); }
ALLOCATION(cuMemAlloc_v2)
ALLOCATION(cuMemAllocManaged)
ALLOCATION(cuMemAllocAsync)
ALLOCATION(cuMemAllocFromPoolAsync)
ALLOCATION(cuMemCreate)
int cuMemAllocPitch_v2(uint64_t *to, size_t *pitch, size_t width, size_t height) {
    *pitch = width;
    return allocated("cuMemAllocPitch_v2", to, width * height, (const void *[]){to, pitch, (void *)width, (void *)height});
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
    struct { uint64_t to; const void *from; size_t size; } parameters = {to, from, size};
    int result = 0;
    around("cuMemcpyHtoD_v2", 0, &parameters, NULL, NULL);
    memcpy((void *)to, from, size);
    around("cuMemcpyHtoD_v2", 1, &parameters, &result, NULL);
    return 0;
}
struct product { float *out; const float *a, *b; long m, n, k, a_row, a_column, b_row, b_column; };
static void multiply(const struct product *one) {
    for (long i = 0; i < one->m; i++)
        for (long j = 0; j < one->n; j++) {
            float total = 0;
            for (long p = 0; p < one->k; p++)
                total += one->a[i * one->a_row + p * one->a_column] * one->b[p * one->b_row + j * one->b_column];
            one->out[i * one->n + j] = total;
        }
}
static int launched(const char *name, const void *f, void **arguments) {
    const void *parameters[] = {f};
    int result = 0;
    around(name, 0, parameters, NULL, f);
    atomic_fetch_add(&sum, 1);
    if (arguments && strncmp(f, "gemm", 4) == 0) multiply(arguments[0]);
    around(name, 1, parameters, &result, f);
    return 0;
}
int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, void *s, void **p) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)g, (void)h, (void)s;
    return launched("cuLaunchKernel", f, p);
}
int cuLaunchCooperativeKernel(void *f) { return launched("cuLaunchCooperativeKernel", f, NULL); }
int cuGraphLaunch(void *graph) { return launched("cuGraphLaunch", graph, NULL); }
long fakeSum(void) { return sum; }
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    char name[128];
    (void)version, (void)flags;
    Dl_info own;
    dladdr((void *)cuInit, &own);
    void *handle = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD); /* the driver answers with its own, whatever is above it */
    *function = NULL;
    for (const char *const *suffix = (const char *const[]){"_v2", "", NULL}; *suffix && !*function; suffix++) {
        snprintf(name, sizeof name, "%s%s", symbol, *suffix);
        *function = dlsym(handle, name);
    }
    if (status) *status = 0;
    return *function ? 0 : 500;
}
