/* Which library called: the file of the first frame on the stack that belongs neither to us nor to CUDA's driver, runtime
 * and tools. A static runtime belongs to the library that holds it, as in cuBLAS. */
#pragma once
#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <string.h>

enum { MOST_FRAMES = 48 };

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Writes the library's name; none if the stack ends within CUDA. */
static void find_caller(char *name, size_t room) {
    static const char *const BETWEEN[] = {"libcuda.", "libcudart", "libcupti", "libharness", "librecorder"};
    void *frames[MOST_FRAMES];
    Dl_info own = {0}, there;
    dladdr((void *)find_caller, &own);
    *name = 0;
    for (int i = 1, count = backtrace(frames, MOST_FRAMES); i < count && *name == 0; i++) {
        if (dladdr(frames[i], &there) == 0 || there.dli_fname == NULL || there.dli_fbase == own.dli_fbase) continue;
        const char *file = base_name(there.dli_fname);
        int skipped = 0;
        for (size_t j = 0; j < sizeof BETWEEN / sizeof *BETWEEN; j++)
            skipped |= strncmp(file, BETWEEN[j], strlen(BETWEEN[j])) == 0;
        if (!skipped) snprintf(name, room, "%s", file);
    }
}
