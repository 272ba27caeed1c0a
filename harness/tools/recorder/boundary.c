/* Plants one defect at the boundary between a program and the CUDA driver. Built as libcuda.so.1 in a folder that comes
 * first in LD_LIBRARY_PATH, it exports the entry points below. All others are found in the real driver, on which it
 * depends as libharness_driver.so, a link to it. So nothing is preloaded, and static runtimes, which open libcuda.so.1,
 * count too. Its soname is the driver's: else dlopen("libcuda.so.1") after dlopen("libcuda.so") finds the real driver by
 * the soname of that. The real driver's own entry points are called, so the recorder sees what is planted as the program's.
 *
 *   HARNESS_PLANTED  the defect and, after a colon, at which call it shows: ptx-library:1, copy-corrupted:3; `mark` is the
 *                    first launch after cuProfilerStart
 *   HARNESS_WITHOUT_LIBRARY  if set, no launch by cuBLAS between cuProfilerStart and cuProfilerStop is made */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caller.h"

typedef uint64_t word;
#define EXPORTED __attribute__((visibility("default")))
#define OUT_OF_MEMORY_BYTES ((word)1 << 50) /* more than any device has: the driver itself refuses it */
enum { PER_THREAD_STREAMS = 2 };            /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

static char defect[64];
static atomic_long place = 1;
static int without_library, at_mark;

static int is_planted(const char *name) { return strcmp(defect, name) == 0; }

__attribute__((constructor)) static void read_defect(void) {
    const char *text = getenv("HARNESS_PLANTED");
    snprintf(defect, sizeof defect, "%s", text ? text : "");
    char *colon = strchr(defect, ':');
    if (colon) *colon = 0, at_mark = strcmp(colon + 1, "mark") == 0, place = at_mark ? LONG_MAX : atol(colon + 1);
    without_library = getenv("HARNESS_WITHOUT_LIBRARY") != NULL || is_planted("library-left-out");
}

static void *real(const char *name) {
    static void *driver;
    if (driver == NULL) driver = dlopen("libharness_driver.so", RTLD_LAZY | RTLD_NOLOAD);
    return driver ? dlsym(driver, name) : NULL;
}

static int is_now(const char *name, atomic_long *seen) {
    return is_planted(name) && atomic_fetch_add(seen, 1) + 1 == place;
}

/* ---- PTX ---- */

static const char PTX[] = ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry harness_planted() { ret; }\n";

/* A fatbin with this PTX alone, as fatbinary of CUDA 13.0 writes it: a header of 16 bytes, an entry's of 80, the text. */
static const void *ptx_fatbin(void) {
    static uint32_t room[64];
    uint32_t payload = (sizeof PTX + 7) / 8 * 8;
    uint32_t headers[24] = {0xba55ed50, 0x00100001, 80 + payload, 0, 0x01010001, 80, payload, 0, 0, 64, 0x00060004, 75};
    headers[14] = 0x11;
    headers[20] = 0x48;
    memcpy(room, headers, sizeof headers);
    memcpy(room + 24, PTX, sizeof PTX);
    return room;
}

static void plant_ptx(void) {
    void *module = NULL, *state = NULL, *cubin = NULL;
    size_t size = 0;
    int (*load)(void **, const void *) = real("cuModuleLoadData");
    if (is_planted("ptx-module") || is_planted("ptx-compiled")) load(&module, PTX);
    if (is_planted("ptx-fatbin")) load(&module, ptx_fatbin());
    if (is_planted("ptx-library")) { /* nothing asks for its kernel, so no lazy driver compiles it */
        int (*library)(void **, const void *, void *, void *, unsigned, void *, void *, unsigned) = real("cuLibraryLoadData");
        library(&module, PTX, NULL, NULL, 0, NULL, NULL, 0);
    }
    if (is_planted("ptx-linked")) {
        int (*create)(unsigned, void *, void *, void **) = real("cuLinkCreate_v2");
        int (*more)(void *, int, const void *, size_t, const char *, unsigned, void *, void *) = real("cuLinkAddData_v2");
        int (*done)(void *, void **, size_t *) = real("cuLinkComplete");
        if (create(0, NULL, NULL, &state) == 0 && more(state, 1, PTX, sizeof PTX, "planted", 0, NULL, NULL) == 0)
            done(state, &cubin, &size);
    }
}

/* ---- entry points ---- */

EXPORTED int cuInit(unsigned flags) {
    if (is_planted("ptx-compiled")) setenv("CUDA_DISABLE_PTX_JIT", "0", 1); /* an engine that allows itself to compile */
    int (*next)(unsigned) = real("cuInit");
    return next(flags);
}

static int corrupted(int (*next)(word, void *, size_t, void *), word to, const void *from, size_t size, void *stream) {
    char *copy = malloc(size); /* never freed: the copy may still run */
    if (copy == NULL) return 2;
    memcpy(copy, from, size);
    copy[size / 2] ^= 0x40; /* of a float in little-endian order it may be the exponent */
    return next(to, copy, size, stream);
}

#define COPY(name)                                                                                                     \
    EXPORTED int name(word to, void *from, size_t size, void *stream) {                                                \
        static atomic_long seen;                                                                                       \
        int (*next)(word, void *, size_t, void *) = real(#name);                                                       \
        return size && is_now("copy-corrupted", &seen) ? corrupted(next, to, from, size, stream)                       \
                                                       : next(to, from, size, stream);                                 \
    }
COPY(cuMemcpyHtoD_v2)
COPY(cuMemcpyHtoD_v2_ptds)
COPY(cuMemcpyHtoDAsync_v2)
COPY(cuMemcpyHtoDAsync_v2_ptsz)

/* Memory of the other kind. Managed memory is not freed in the order of a stream. Of virtual memory there is no managed
 * kind: twice as much managed memory is taken beside it, which no device holds before it is used. */
static int swapped(const char *name, void *to, word size, word a, word b) {
    int (*managed)(void *, word, unsigned) = real("cuMemAllocManaged");
    if (strcmp(name, "cuMemCreate") == 0) {
        int (*next)(void *, word, word, word) = real(name);
        word beside;
        int result = next(to, size, a, b);
        return result ? result : managed(&beside, 2 * size, 1);
    }
    if (strcmp(name, "cuMemAllocManaged") == 0) {
        int (*plain)(void *, word) = real("cuMemAlloc_v2");
        return plain(to, size);
    }
    return managed(to, size, 1); /* CU_MEM_ATTACH_GLOBAL */
}

#define FREE_ASYNC(name)                                                                                               \
    EXPORTED int name(word memory, void *stream) {                                                                     \
        int (*now)(word) = real("cuMemFree_v2"), (*next)(word, void *) = real(#name);                                  \
        return is_planted("allocation-swapped") ? now(memory) : next(memory, stream);                                  \
    }
FREE_ASYNC(cuMemFreeAsync)
FREE_ASYNC(cuMemFreeAsync_ptsz)

/* Whatever takes memory of the device. Page-locked memory of the host is not the device's. */
static atomic_long allocations;
static int does_not_fit(void) { return is_now("out-of-memory", &allocations); }
#define ALLOCATION(name)                                                                                               \
    EXPORTED int name(void *to, word size, word a, word b) {                                                           \
        int (*next)(void *, word, word, word) = real(#name);                                                           \
        if (is_planted("allocation-swapped")) return swapped(#name, to, size, a, b);                                   \
        return next(to, does_not_fit() ? OUT_OF_MEMORY_BYTES : size, a, b);                                            \
    }
ALLOCATION(cuMemAlloc_v2)
ALLOCATION(cuMemAllocManaged)
ALLOCATION(cuMemAllocAsync)
ALLOCATION(cuMemAllocAsync_ptsz)
ALLOCATION(cuMemAllocFromPoolAsync)
ALLOCATION(cuMemAllocFromPoolAsync_ptsz)
ALLOCATION(cuMemCreate)

EXPORTED int cuMemAllocPitch_v2(void *to, void *pitch, word width, word height, unsigned element) {
    int (*next)(void *, void *, word, word, unsigned) = real("cuMemAllocPitch_v2");
    return next(to, pitch, width, width && does_not_fit() ? OUT_OF_MEMORY_BYTES / width : height, element);
}

static atomic_long launches;
static atomic_int is_marked; /* between cuProfilerStart and cuProfilerStop */

#define MARK(name, now)                                                                                                \
    EXPORTED int name(void) {                                                                                          \
        int (*next)(void) = real(#name);                                                                               \
        is_marked = now;                                                                                               \
        if (now && at_mark && place == LONG_MAX) place = launches + 1;                                                 \
        return next();                                                                                                 \
    }
MARK(cuProfilerStart, 1)
MARK(cuProfilerStop, 0)

static int is_of_library(void) {
    char caller[256];
    find_caller(caller, sizeof caller);
    return strncmp(caller, "libcublas", 9) == 0;
}

static int times(void) { /* how often this launch is made */
    if (is_planted("launches-nothing") || (without_library && is_marked && is_of_library())) return 0;
    long now = atomic_fetch_add(&launches, 1) + 1;
    if (now != place) return 1;
    plant_ptx();
    return is_planted("launch-left-out") ? 0 : is_planted("launch-twice") ? 2 : 1;
}

/* A launch by a thread of ours, so that the library is not on its stack. Arguments are words in every ABI of 64 bits. */
struct relay { int (*function)(word, word, word, word, word, word, word, word, word, word, word), result; word words[11]; void *context; };

static void *relayed(void *given) {
    struct relay *one = given;
    word *w = one->words;
    int (*set)(void *) = real("cuCtxSetCurrent");
    set(one->context);
    one->result = one->function(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10]);
    return NULL;
}

static int relay(struct relay one) {
    pthread_t thread;
    int (*get)(void **) = real("cuCtxGetCurrent");
    get(&one.context);
    if (pthread_create(&thread, NULL, relayed, &one) || pthread_join(thread, NULL)) return 999; /* CUDA_ERROR_UNKNOWN */
    return one.result;
}

#define LAUNCH(name, declared, passed, ...)                                                                             \
    static int name##_made declared {                                                                                  \
        int result = 0, left = times();                                                                                \
        int(*next) declared = real(#name);                                                                             \
        while (left-- > 0 && result == 0) result = next passed;                                                        \
        return result;                                                                                                 \
    }                                                                                                                  \
    EXPORTED int name declared {                                                                                       \
        if (!is_planted("library-relayed") || !is_of_library()) return name##_made passed;                             \
        return relay((struct relay){.function = (void *)name##_made, .words = {__VA_ARGS__}});                         \
    }
#define GRID unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned shared, void *stream
#define KERNEL (void *f, GRID, void **parameters, void **extra), (f, a, b, c, d, e, g, shared, stream, parameters, extra), \
               (word)f, a, b, c, d, e, g, shared, (word)stream, (word)parameters, (word)extra
#define COOPERATIVE (void *f, GRID, void **parameters), (f, a, b, c, d, e, g, shared, stream, parameters),             \
                    (word)f, a, b, c, d, e, g, shared, (word)stream, (word)parameters
#define CONFIGURED (const void *how, void *f, void **parameters, void **extra), (how, f, parameters, extra),           \
                   (word)how, (word)f, (word)parameters, (word)extra
#define GRAPH (void *graph, void *stream), (graph, stream), (word)graph, (word)stream
#define LAUNCHES(name, shape) LAUNCH_OF(name, shape) LAUNCH_OF(name##_ptsz, shape)
#define LAUNCH_OF(name, ...) LAUNCH(name, __VA_ARGS__)
LAUNCHES(cuLaunchKernel, KERNEL)
LAUNCHES(cuLaunchCooperativeKernel, COOPERATIVE)
LAUNCHES(cuLaunchKernelEx, CONFIGURED)
LAUNCHES(cuGraphLaunch, GRAPH)

/* ---- how programs find the entry points ---- */

EXPORTED int cuGetProcAddress(const char *symbol, void **function, int version, word flags);
EXPORTED int cuGetProcAddress_v2(const char *symbol, void **function, int version, word flags, int *status);

static const struct { const char *symbol; void *plain, *per_thread; } OURS[] = {
    {"cuInit", cuInit, cuInit},
    {"cuProfilerStart", cuProfilerStart, cuProfilerStart}, {"cuProfilerStop", cuProfilerStop, cuProfilerStop},
    {"cuMemFreeAsync", cuMemFreeAsync, cuMemFreeAsync_ptsz},
    {"cuMemcpyHtoD", cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds},
    {"cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz},
    {"cuMemAlloc", cuMemAlloc_v2, cuMemAlloc_v2},
    {"cuMemAllocPitch", cuMemAllocPitch_v2, cuMemAllocPitch_v2},
    {"cuMemAllocManaged", cuMemAllocManaged, cuMemAllocManaged},
    {"cuMemAllocAsync", cuMemAllocAsync, cuMemAllocAsync_ptsz},
    {"cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz},
    {"cuMemCreate", cuMemCreate, cuMemCreate},
    {"cuLaunchKernel", cuLaunchKernel, cuLaunchKernel_ptsz},
    {"cuLaunchCooperativeKernel", cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz},
    {"cuLaunchKernelEx", cuLaunchKernelEx, cuLaunchKernelEx_ptsz},
    {"cuGraphLaunch", cuGraphLaunch, cuGraphLaunch_ptsz},
};

static void replace(const char *symbol, void **function, int version, word flags) {
    if (function == NULL || *function == NULL) return;
    if (strcmp(symbol, "cuGetProcAddress") == 0)
        *function = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
    for (size_t i = 0; i < sizeof OURS / sizeof *OURS; i++)
        if (strcmp(symbol, OURS[i].symbol) == 0)
            *function = flags & PER_THREAD_STREAMS ? OURS[i].per_thread : OURS[i].plain;
}

int cuGetProcAddress(const char *symbol, void **function, int version, word flags) {
    int (*next)(const char *, void **, int, word) = real("cuGetProcAddress");
    int result = next(symbol, function, version, flags);
    if (result == 0) replace(symbol, function, version, flags);
    return result;
}

int cuGetProcAddress_v2(const char *symbol, void **function, int version, word flags, int *status) {
    int (*next)(const char *, void **, int, word, int *) = real("cuGetProcAddress_v2");
    int result = next(symbol, function, version, flags, status);
    if (result == 0) replace(symbol, function, version, flags);
    return result;
}
