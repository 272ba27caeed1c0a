/* Records what a process asks of the CUDA driver. The driver loads this library itself, at cuInit, if
 * CUDA_INJECTION64_PATH names it, and calls InitializeInjection (CUPTI's documentation, "Injection"). So static runtimes
 * count too. CUPTI's callbacks are enabled one by one, because all of them together slow a step down by a quarter.
 *
 *   HARNESS_RECORDER_DIR    the folder of the records: one file for each process, one JSON object a line
 *   HARNESS_RECORDER_CUPTI  libraries of CUPTI to try, separated by colons, newest first
 *   HARNESS_RECORDER_LINES  most lines of each kind of event (default 1000), and then one a second; all are counted
 *   HARNESS_RECORDER_LAUNCHES  see sampling.h
 *
 * A line is one write to a file opened to append, so a crash loses no finished line. Types and numbers of CUPTI are
 * declared here, as in cupti_callbacks.h and cupti_activity.h of CUDA 12.0 to 13.0; callbacks are found by their names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "caller.h"
#include "image.h"
#include "sampling.h"
#include "sha256.h"

enum { DOMAIN_DRIVER = 1, DOMAIN_RESOURCE = 3 };              /* CUpti_CallbackDomain */
enum { RESOURCE_CONTEXT_CREATED = 1, RESOURCE_MODULE_LOADED = 6 }; /* CUpti_CallbackIdResource */
enum { ACTIVITY_JIT = 52 };                                   /* CUpti_ActivityKind */
enum { CC_MAJOR = 75, CC_MINOR = 76 };                        /* CUdevice_attribute */

typedef struct { /* CUpti_CallbackData */
    int site;    /* 0 at entry, 1 at exit */
    const char *function;
    const void *parameters;
    const int *result;
    const char *symbol;
    void *context;
    uint32_t context_id;
    uint64_t *correlation;
    uint32_t correlation_id;
} api_data;

typedef struct { /* CUpti_ModuleResourceData, behind context and stream in CUpti_ResourceData */
    uint32_t id;
    size_t size;
    const char *cubin;
} module_data;

typedef struct { void *context, *stream; const module_data *descriptor; } resource_data; /* CUpti_ResourceData */

typedef struct { /* the beginning of CUpti_ActivityJit, packed to 8 bytes in every version */
    uint32_t kind, entry, operation, device;
    uint64_t start, end;
    uint32_t correlation, padding;
    uint64_t jit_correlation, cache_size;
    const char *cache_path;
} jit_record;

/* What a call is: which words of its parameters hold the image or the size, and how it is counted. */
enum kind { NONE, MODULE, MODULE_FILE, LINK_DATA, LINK_FILE, ALLOCATION, COPY, LAUNCH, LAUNCH_EX, GRAPH, STREAM, MARK, KINDS };
static const char *const KIND_NAMES[] = {"", "module", "module", "link", "link", "allocation", "copy", "launch", "launch",
                                         "graph_launch", "stream", "mark"};

struct call { const char *name; enum kind kind; int word; };
static const struct call CALLS[] = {
    {"cuModuleLoadData", MODULE, 1}, {"cuModuleLoadDataEx", MODULE, 1}, {"cuModuleLoadFatBinary", MODULE, 1},
    {"cuLibraryLoadData", MODULE, 1}, {"cuModuleLoad", MODULE_FILE, 1}, {"cuLibraryLoadFromFile", MODULE_FILE, 1},
    {"cuLinkAddData_v2", LINK_DATA, 2}, {"cuLinkAddFile_v2", LINK_FILE, 2},
    {"cuMemAlloc_v2", ALLOCATION, 1}, {"cuMemAllocPitch_v2", ALLOCATION, 2}, {"cuMemAllocManaged", ALLOCATION, 1},
    {"cuMemAllocAsync", ALLOCATION, 1}, {"cuMemAllocFromPoolAsync", ALLOCATION, 1}, {"cuMemCreate", ALLOCATION, 1},
    {"cuMemAllocHost_v2", ALLOCATION, 1}, {"cuMemHostAlloc", ALLOCATION, 1},
    {"cuMemcpyHtoD_v2", COPY, 2}, {"cuMemcpyDtoH_v2", COPY, 2}, {"cuMemcpyDtoD_v2", COPY, 2},
    {"cuMemcpyHtoDAsync_v2", COPY, 2}, {"cuMemcpyDtoHAsync_v2", COPY, 2}, {"cuMemcpyDtoDAsync_v2", COPY, 2},
    {"cuMemcpy", COPY, 2}, {"cuMemcpyAsync", COPY, 2}, {"cuMemcpyPeer", COPY, 4}, {"cuMemcpyPeerAsync", COPY, 4},
    {"cuLaunchKernel", LAUNCH, 0}, {"cuLaunchKernelEx", LAUNCH_EX, 1}, {"cuLaunchCooperativeKernel", LAUNCH, 0},
    {"cuGraphLaunch", GRAPH, 0},
    {"cuStreamCreate", STREAM, 0}, {"cuStreamCreateWithPriority", STREAM, 0},
    {"cuProfilerStart", MARK, 0}, {"cuProfilerStop", MARK, 0},
};
#define CALLS_COUNT (sizeof CALLS / sizeof *CALLS)
#define MOST_IDS 2048
#define MOST_KERNELS 4096 /* a power of two */
#define LONGEST 4000
#define DIGESTED ((size_t)1 << 20) /* bytes of an image that its digest covers: libraries bring fatbins of a gigabyte */

static signed char call_of[MOST_IDS]; /* by callback id, the place in CALLS; -1 if none. Written before any callback. */
static _Atomic uint64_t calls[CALLS_COUNT], bytes[CALLS_COUNT], largest[CALLS_COUNT], launches, refusals, lines[KINDS + 5];
static struct { _Atomic uintptr_t function; _Atomic(const char *) name; _Atomic uint64_t count; } kernels[MOST_KERNELS];
static _Atomic uint64_t unnamed; /* launches of kernels that the table has no room for */
static _Atomic uint64_t modules_loaded, jits, ptxs, lates;
static _Atomic uint64_t marked; /* when cuProfilerStart was first called, as CUPTI counts nanoseconds */
static uint64_t most_lines = 1000;
static int out = -1, (*attribute)(int *, int, int), (*current_device)(int *);
static pid_t owner;
static void (*flush)(uint32_t);
static int (*cupti_time)(uint64_t *);

/* ---- lines ---- */

struct line { char text[LONGEST + 96]; size_t size; };

static void add(struct line *line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (line->size < LONGEST) {
        int more = vsnprintf(line->text + line->size, LONGEST - line->size, format, arguments);
        if (more > 0) line->size += (size_t)more < LONGEST - line->size ? (size_t)more : LONGEST - line->size - 1;
    }
    va_end(arguments);
}

static void add_text(struct line *line, const char *key, const char *text) {
    add(line, ",\"%s\":\"", key);
    size_t most = line->size + 1200;
    for (; text && *text && line->size < most; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\') add(line, "\\%c", byte);
        else if (byte < 0x20 || byte > 0x7e) add(line, "\\u%04x", byte);
        else line->text[line->size++] = (char)byte;
    }
    add(line, "\"");
}

static struct line begin(const char *event) {
    struct line line = {.size = 0};
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    add(&line, "{\"event\":\"%s\",\"at\":%lld.%09ld", event, (long long)now.tv_sec, now.tv_nsec);
    return line;
}

static void end(struct line *line) {
    memcpy(line->text + line->size, "}\n", 2);
    if (out >= 0 && write(out, line->text, line->size + 2) < 0) {} /* a full disk must not end the process */
}

static int is_room(int kind) {
    static _Atomic uint64_t latest[KINDS + 5]; /* who follows the file sees that they go on */
    if (atomic_fetch_add(&lines[kind], 1) < most_lines) return 1;
    uint64_t now = (uint64_t)time(NULL), before = latest[kind];
    return now > before && atomic_compare_exchange_strong(&latest[kind], &before, now);
}

/* ---- totals, whenever the number of launches has doubled, and at the end ---- */

static void totals(int final) {
    struct line line = begin("totals");
    add(&line, ",\"final\":%s,\"launches\":%llu,\"modules\":%llu,\"ptx\":%llu,\"jit\":%llu,\"refused\":%llu,\"late\":%llu",
        final ? "true" : "false", (unsigned long long)launches, (unsigned long long)modules_loaded,
        (unsigned long long)ptxs, (unsigned long long)jits, (unsigned long long)refusals, (unsigned long long)lates);
    add(&line, ",\"unnamed_launches\":%llu,\"sampled\":%s,\"calls\":{", (unsigned long long)unnamed,
        launches >= sampling.all ? "true" : "false");
    const char *between = "";
    for (size_t i = 0; i < CALLS_COUNT; i++)
        if (calls[i]) {
            add(&line, "%s\"%s\":[%llu,%llu,%llu]", between, CALLS[i].name, (unsigned long long)calls[i],
                (unsigned long long)bytes[i], (unsigned long long)largest[i]);
            between = ",";
        }
    add(&line, "}");
    end(&line);
}

static int on_library(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    const char *name = base_name(info->dlpi_name);
    if (strncmp(name, "libcublas", 9)) return 0;
    struct line line = begin("library");
    add_text(&line, "file", name);
    end(&line);
    return 0;
}

static void finish(void) {
    if (getpid() != owner || out < 0) return;
    end_sampling();
    dl_iterate_phdr(on_library, NULL);
    if (flush) flush(1); /* CUPTI_ACTIVITY_FLAG_FLUSH_FORCED */
    for (size_t i = 0, told = 0; i < MOST_KERNELS && told < most_lines; i++) {
        const char *name = kernels[i].name;
        if (name == NULL) continue;
        struct line line = begin("launches");
        add_text(&line, "kernel", name);
        add(&line, ",\"count\":%llu", (unsigned long long)kernels[i].count);
        end(&line);
        told++;
    }
    totals(1);
}

static void in_child(void) { out = -1; } /* CUDA does not work in a fork; its own cuInit would load us anew */

/* ---- events ---- */

static int capability(void) {
    int device = 0, major = 0, minor = 0;
    if (current_device == NULL || current_device(&device) != 0) device = 0;
    if (attribute == NULL || attribute(&major, CC_MAJOR, device) || attribute(&minor, CC_MINOR, device)) return 0;
    return major * 10 + minor;
}

static void add_targets(struct line *line, const char *key, const int *targets, int count) {
    add(line, ",\"%s\":[", key);
    for (int i = 0; i < count; i++) add(line, "%s%d", i ? "," : "", targets[i]);
    add(line, "]");
}

/* Loads after the first mark have lines of their own, so that no flood of earlier ones hides them. */
static int is_late(void) {
    if (!marked) return 0;
    atomic_fetch_add(&lates, 1);
    return 1;
}

static void on_image(const char *event, const char *function, const void *data, size_t size, const char *file, int is_ptx) {
    struct image image = data ? look_at(data, size) : (struct image){FORM_UNKNOWN, NULL, 0, {0}, 0, {0}, 0};
    int sm = capability(), compiled = is_ptx || needs_jit(&image, sm);
    int late = is_late();
    int room = is_room(compiled ? KINDS : late ? KINDS + 3 : MODULE); /* lines of their own, so that no flood of modules hides PTX */
    if (compiled) atomic_fetch_add(&ptxs, 1);
    if (!room) return;
    struct line line = begin(event);
    add_text(&line, "call", function);
    add(&line, ",\"form\":\"%s\",\"needs_jit\":%s,\"late\":%s,\"device\":%d", FORMS[image.form], compiled ? "true" : "false",
        late ? "true" : "false", sm);
    if (file) add_text(&line, "file", file);
    add_targets(&line, "machine_code", image.machine_code, image.machine_codes);
    add_targets(&line, "ptx", image.ptx, image.ptxs);
    if (image.size) {
        char digest[65];
        size_t covered = image.size < DIGESTED ? image.size : DIGESTED;
        sha256_hex(image.data, covered, digest);
        add(&line, ",\"bytes\":%zu,\"digested\":%zu,\"sha256\":\"%s\"", image.size, covered, digest);
    }
    end(&line);
}

static void on_file(const char *event, const char *function, const char *path, int is_ptx) {
    size_t most = MOST_TEXT;
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    char *content = file < 0 ? NULL : malloc(most);
    ssize_t size = content ? read(file, content, most - 1) : -1;
    if (size > 0) content[size] = 0;
    on_image(event, function, size > 0 ? content : NULL, size > 0 ? (size_t)size : 0, path, is_ptx);
    free(content);
    if (file >= 0) close(file);
}

/* JIT inputs of cuLinkAddData that the driver compiles: CU_JIT_INPUT_PTX is 1, NVVM 5; a cubin (0) and others are linked. */
static int is_compiled(int input) { return input == 1 || input == 5; }

static void on_kernel(const void *function, const char *name) {
    uint64_t all = atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed) + 1;
    uintptr_t key = (uintptr_t)function;
    size_t at = (key >> 4) * 0x9e3779b97f4a7c15u >> 52 & (MOST_KERNELS - 1);
    for (size_t tries = 0; tries < 64; tries++, at = (at + 1) & (MOST_KERNELS - 1)) {
        uintptr_t there = atomic_load_explicit(&kernels[at].function, memory_order_relaxed);
        if (there == 0 && atomic_compare_exchange_strong(&kernels[at].function, &there, key)) {
            kernels[at].name = strdup(name ? name : "");
            if (is_room(LAUNCH)) {
                struct line line = begin("kernel");
                char caller[256];
                find_caller(caller, sizeof caller);
                add_text(&line, "kernel", name);
                add_text(&line, "caller", caller);
                add(&line, ",\"late\":%s", marked ? "true" : "false");
                end(&line);
            }
            there = key;
        }
        if (there == key) {
            atomic_fetch_add_explicit(&kernels[at].count, 1, memory_order_relaxed);
            break;
        }
        if (tries == 63) atomic_fetch_add_explicit(&unnamed, 1, memory_order_relaxed);
    }
    if ((all & (all - 1)) == 0) totals(0);
    if (all == sampling.all) count(SAMPLED);
}

static void on_refusal(const char *function, int result, uint64_t size) {
    atomic_fetch_add(&refusals, 1);
    if (!is_room(KINDS + 1)) return;
    struct line line = begin("refused");
    add_text(&line, "call", function);
    add(&line, ",\"result\":%d,\"bytes\":%llu", result, (unsigned long long)size);
    end(&line);
}

static void on_mark(const char *function) {
    uint64_t now = 0, never = 0;
    if (cupti_time) cupti_time(&now);
    if (strcmp(function, "cuProfilerStart") == 0) atomic_compare_exchange_strong(&marked, &never, now ? now : 1);
    if (!is_room(MARK)) return;
    struct line line = begin("mark");
    add_text(&line, "call", function);
    add(&line, ",\"launches\":%llu", (unsigned long long)launches);
    end(&line);
}

static uint64_t word(const api_data *data, int which) { return ((const uint64_t *)data->parameters)[which]; }

static void on_call(int place, const api_data *data) {
    const struct call *call = &CALLS[place];
    int has_size = call->kind == ALLOCATION || call->kind == COPY;
    uint64_t size = has_size ? word(data, call->word) : 0;
    if (call->kind == ALLOCATION && call->word == 2) size *= word(data, 3); /* width and height of a pitched one */
    if (data->site == 1) {
        if (data->result && *data->result) {
            on_refusal(call->name, *data->result, size);
            return;
        }
        atomic_fetch_add_explicit(&calls[place], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&bytes[place], size, memory_order_relaxed);
        for (uint64_t most = largest[place]; size > most && !atomic_compare_exchange_weak(&largest[place], &most, size);) {}
        if (call->kind == ALLOCATION && is_room(ALLOCATION)) {
            struct line line = begin("allocation");
            add_text(&line, "call", call->name);
            add(&line, ",\"bytes\":%llu", (unsigned long long)size);
            end(&line);
        }
        return;
    }
    if (call->kind == MARK) { /* it has no parameters */
        on_mark(call->name);
        return;
    }
    const void *pointer = (const void *)word(data, call->word);
    const char *event = KIND_NAMES[call->kind];
    switch (call->kind) {
    case MODULE: on_image(event, call->name, pointer, 0, NULL, 0); break;
    case MODULE_FILE: on_file(event, call->name, pointer, 0); break;
    case LINK_DATA: on_image(event, call->name, pointer, word(data, 3), NULL, is_compiled((int)word(data, 1))); break;
    case LINK_FILE: on_file(event, call->name, pointer, is_compiled((int)word(data, 1))); break;
    case LAUNCH: case LAUNCH_EX: on_kernel(pointer, data->symbol); break;
    default: break;
    }
}

static void on_module(const module_data *module) {
    atomic_fetch_add(&modules_loaded, 1);
    int late = is_late();
    if (module == NULL || !is_room(late ? KINDS + 4 : MODULE_FILE)) return;
    struct line line = begin("loaded");
    add(&line, ",\"bytes\":%zu,\"late\":%s", module->size, late ? "true" : "false");
    if (module->cubin && module->size > 64 && memcmp(module->cubin, "\x7f" "ELF", 4) == 0) {
        char digest[65];
        size_t covered = module->size < DIGESTED ? module->size : DIGESTED;
        sha256_hex((const uint8_t *)module->cubin, covered, digest);
        add(&line, ",\"machine_code\":[%d],\"digested\":%zu,\"sha256\":\"%s\"",
            elf_target((const uint8_t *)module->cubin), covered, digest);
    }
    end(&line);
}

static void on_callback(void *unused, int domain, uint32_t id, const void *data) {
    (void)unused;
    if (out < 0) return;
    if (domain == DOMAIN_RESOURCE && id == RESOURCE_MODULE_LOADED) on_module(((const resource_data *)data)->descriptor);
    else if (domain == DOMAIN_DRIVER && id < MOST_IDS && call_of[id] >= 0) on_call(call_of[id], data);
}

/* ---- JIT compilations, as the driver tells CUPTI: the records come when `finish` flushes, or with a full buffer ---- */

static int (*next_record)(uint8_t *, size_t, void **);

static void buffer_wanted(uint8_t **buffer, size_t *size, size_t *most) {
    *size = 1 << 16;
    *most = 0;
    *buffer = aligned_alloc(8, *size);
}

static void buffer_full(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    static const char *const OPERATIONS[] = {"", "cache_load", "cache_store", "compile"};
    (void)context, (void)stream, (void)size;
    for (void *record = NULL; next_record(buffer, valid, &record) == 0;) {
        const jit_record *jit = record;
        if (jit->kind != ACTIVITY_JIT) continue;
        atomic_fetch_add(&jits, 1);
        if (!is_room(KINDS + 2)) continue;
        struct line line = begin("jit");
        add_text(&line, "operation", jit->operation <= 3 ? OPERATIONS[jit->operation] : "");
        add_text(&line, "from", jit->entry == 1 ? "ptx" : "nvvm");
        add(&line, ",\"seconds\":%.6f,\"late\":%s", (double)(jit->end - jit->start) * 1e-9,
            marked && jit->start > marked ? "true" : "false");
        end(&line);
    }
    free(buffer);
}

/* ---- start ---- */

static int (*enable)(uint32_t, void *, int, uint32_t);
static void *subscriber;
static int (*activity[2])(int); /* disables and enables a kind of CUPTI's records */

static int is_launch(enum kind kind) { return kind == LAUNCH || kind == LAUNCH_EX || kind == GRAPH; }

static void count_launches(int on) {
    for (uint32_t id = 1; id < MOST_IDS; id++)
        if (call_of[id] >= 0 && is_launch(CALLS[call_of[id]].kind)) enable((uint32_t)on, subscriber, DOMAIN_DRIVER, id);
}

/* For benchmarks/recorder_overhead.py: the same process with no callbacks and no records, with all, or with samples. */
__attribute__((visibility("default"))) void RecorderEnable(int mode) {
    if (subscriber == NULL) return;
    for (uint32_t id = 1; id < MOST_IDS; id++)
        if (call_of[id] >= 0 && !is_launch(CALLS[call_of[id]].kind)) enable(mode != 0, subscriber, DOMAIN_DRIVER, id);
    if (activity[mode != 0]) activity[mode != 0](ACTIVITY_JIT);
    count(mode);
}

static void fail(const char *what, const char *detail) {
    struct line line = begin("error");
    add_text(&line, "what", what);
    add_text(&line, "detail", detail);
    end(&line);
}

static void *find_cupti(int driver_major) {
    char list[4096], name[64], *rest = list;
    for (int major = driver_major; major >= 11; major--) { /* that of the process itself first: two would be in conflict */
        snprintf(name, sizeof name, "libcupti.so.%d", major);
        void *there = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
        if (there) return there;
    }
    snprintf(list, sizeof list, "%s:libcupti.so.%d:libcupti.so.12:libcupti.so",
             getenv("HARNESS_RECORDER_CUPTI") ? getenv("HARNESS_RECORDER_CUPTI") : "", driver_major);
    for (char *one; (one = strsep(&rest, ":"));) {
        const char *version = strstr(one, ".so.");
        if (*one == 0 || (version && atoi(version + 4) > driver_major && atoi(version + 4) < 100)) continue;
        void *there = dlopen(one, RTLD_LAZY | RTLD_LOCAL);
        if (there) return there;
    }
    return NULL;
}

static void program_name(struct line *line) {
    char text[512] = "";
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    for (ssize_t i = 0; i + 1 < size; i++)
        if (text[i] == 0) text[i] = ' ';
    add_text(line, "program", text);
}

static int same_call(const char *name, const char *wanted) { /* also its variants of per-thread streams */
    size_t size = strlen(wanted);
    return strncmp(name, wanted, size) == 0 &&
           (name[size] == 0 || strcmp(name + size, "_ptsz") == 0 || strcmp(name + size, "_ptds") == 0);
}

__attribute__((visibility("default"))) int InitializeInjection(void) {
    static _Atomic int begun;
    const char *folder = getenv("HARNESS_RECORDER_DIR"), *limit = getenv("HARNESS_RECORDER_LINES");
    const char *all = getenv("HARNESS_RECORDER_LAUNCHES");
    if (folder == NULL || atomic_exchange(&begun, 1)) return 1;
    char path[4096];
    owner = getpid();
    snprintf(path, sizeof path, "%s/%d-%lld.jsonl", folder, (int)owner, (long long)time(NULL));
    out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (limit && atoll(limit) > 0) most_lines = (uint64_t)atoll(limit);
    if (all && atoll(all) > 0) sampling.all = (uint64_t)atoll(all);
    sampling.count_launches = count_launches;
    pthread_atfork(NULL, NULL, in_child);

    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == NULL) driver = RTLD_DEFAULT;
    int version = 0, (*driver_version)(int *) = dlsym(driver, "cuDriverGetVersion");
    attribute = dlsym(driver, "cuDeviceGetAttribute");
    current_device = dlsym(driver, "cuCtxGetDevice");
    if (driver_version) driver_version(&version);
    struct line line = begin("start");
    add(&line, ",\"pid\":%d,\"driver\":%d", (int)owner, version);
    program_name(&line);
    end(&line);
    if (!driver_version || !attribute) return fail("no CUDA driver", "cuDriverGetVersion is not in this process"), 1;

    void *cupti = find_cupti(version / 1000);
    if (cupti == NULL) return fail("no CUPTI", dlerror()), 1;
    int (*subscribe)(void **, void (*)(void *, int, uint32_t, const void *), void *) = dlsym(cupti, "cuptiSubscribe");
    enable = (int (*)(uint32_t, void *, int, uint32_t))dlsym(cupti, "cuptiEnableCallback");
    int (*name_of)(int, uint32_t, const char **) = dlsym(cupti, "cuptiGetCallbackName");
    activity[0] = (int (*)(int))dlsym(cupti, "cuptiActivityDisable");
    activity[1] = (int (*)(int))dlsym(cupti, "cuptiActivityEnable");
    int (*take)(void *, void *) = dlsym(cupti, "cuptiActivityRegisterCallbacks");
    next_record = (int (*)(uint8_t *, size_t, void **))dlsym(cupti, "cuptiActivityGetNextRecord");
    cupti_time = (int (*)(uint64_t *))dlsym(cupti, "cuptiGetTimestamp");
    flush = (void (*)(uint32_t))dlsym(cupti, "cuptiActivityFlushAll");
    if (!subscribe || !enable || !name_of) return fail("no CUPTI", "it lacks the functions for callbacks"), 1;
    int result = subscribe(&subscriber, on_callback, NULL), enabled = 0, sees_jit = 0;
    if (result) {
        char text[64];
        snprintf(text, sizeof text, "cuptiSubscribe answered %d; 39 means another profiler is there", result);
        return fail("CUPTI refused", text), 1;
    }
    memset(call_of, -1, sizeof call_of);
    for (uint32_t id = 1; id < MOST_IDS; id++) {
        const char *name = NULL;
        if (name_of(DOMAIN_DRIVER, id, &name) != 0 || name == NULL) continue;
        for (size_t i = 0; i < CALLS_COUNT; i++)
            if (same_call(name, CALLS[i].name)) call_of[id] = (signed char)i;
        if (call_of[id] >= 0 && enable(1, subscriber, DOMAIN_DRIVER, id) == 0) enabled++;
    }
    int modules = enable(1, subscriber, DOMAIN_RESOURCE, RESOURCE_MODULE_LOADED) == 0;
    if (activity[1] && take && next_record && take(buffer_wanted, buffer_full) == 0) sees_jit = activity[1](ACTIVITY_JIT) == 0;
    Dl_info where = {0};
    dladdr((void *)subscribe, &where);
    line = begin("ready");
    add(&line, ",\"callbacks\":%d,\"modules\":%s,\"jit\":%s", enabled, modules ? "true" : "false", sees_jit ? "true" : "false");
    add_text(&line, "cupti", where.dli_fname);
    end(&line);
    atexit(finish);
    return 1;
}
