/* What an image is that a program hands to the CUDA driver: PTX, machine code (ELF), or a fatbin of several.
 *
 * Layouts: ELF-64 for the first; for a fatbin, the wrapper of fatbinary_section.h in CUDA's toolkit, and the headers as
 * harness/tools/inspect/device_code/fatbin.py reads them. Nothing here needs a header of CUDA. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum form { FORM_UNKNOWN, FORM_PTX, FORM_MACHINE_CODE, FORM_FATBIN, FORM_INTERMEDIATE };
static const char *const FORMS[] = {"unknown", "ptx", "machine_code", "fatbin", "intermediate"};

#define MOST_TARGETS 16

struct image {
    enum form form;
    const uint8_t *data; /* of the image itself, behind a wrapper */
    size_t size;         /* 0: unknown */
    int machine_code[MOST_TARGETS], machine_codes; /* compute capabilities, such as 90 */
    int ptx[MOST_TARGETS], ptxs;
};

static inline uint64_t little(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    memcpy(&value, at, (size_t)bytes); /* x86-64 and aarch64 are little-endian */
    return value;
}

static inline void note_target(int *list, int *count, int sm) {
    for (int i = 0; i < *count; i++)
        if (list[i] == sm) return;
    if (*count < MOST_TARGETS) list[(*count)++] = sm;
}

/* The target of a cubin. In e_flags it is bits 0-7 up to ABI 7, and bits 8-15 from ABI 8 (CUDA 13) on: the same places as
 * in harness/tools/inspect/device_code/elf.py. */
static inline int elf_target(const uint8_t *elf) {
    uint32_t flags = (uint32_t)little(elf + 48, 4);
    return elf[8] >= 8 ? (int)(flags >> 8 & 0xff) : (int)(flags & 0xff);
}

static inline size_t elf_size(const uint8_t *elf) {
    uint64_t programs = little(elf + 32, 8) + little(elf + 54, 2) * little(elf + 56, 2);
    uint64_t sections = little(elf + 40, 8) + little(elf + 58, 2) * little(elf + 60, 2);
    return (size_t)(programs > sections ? programs : sections);
}

/* The number behind `.target sm_` in the first kilobytes of a PTX text; 0 if there is none. */
static inline int ptx_target(const char *text, size_t size) {
    const char *end = text + (size > 8192 ? 8192 : size);
    for (const char *at = text; at + 11 < end && *at; at++)
        if (memcmp(at, ".target sm_", 11) == 0) {
            int sm = 0;
            for (at += 11; at < end && *at >= '0' && *at <= '9'; at++) sm = sm * 10 + (*at - '0');
            return sm;
        }
    return 0;
}

/* PTX begins with a directive, `.version` first, after blanks and comments. */
static inline int looks_like_ptx(const char *text, size_t most) {
    size_t at = 0;
    for (;;) {
        while (at < most && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r')) at++;
        if (at + 2 < most && text[at] == '/' && text[at + 1] == '/') {
            while (at < most && text[at] && text[at] != '\n') at++;
        } else if (at + 2 < most && text[at] == '/' && text[at + 1] == '*') {
            for (at += 2; at + 1 < most && text[at] && !(text[at] == '*' && text[at + 1] == '/'); at++) {}
            at += 2;
        } else
            return at + 8 < most && strncmp(text + at, ".version", 8) == 0;
    }
}

#define MOST_TEXT ((size_t)64 << 20)

static inline void read_fatbin(struct image *found) {
    const uint8_t *data = found->data;
    uint64_t header = little(data + 6, 2), rest = little(data + 8, 8);
    found->form = FORM_FATBIN;
    found->size = (size_t)(header + rest);
    const uint8_t *at = data + header, *end = data + found->size;
    while (at + 64 <= end) {
        int kind = (int)little(at, 2), sm = (int)little(at + 28, 4);
        uint64_t own = little(at + 4, 4), payload = little(at + 8, 8);
        if (own < 64 || own + payload > (uint64_t)(end - at)) break;
        if (kind == 2) note_target(found->machine_code, &found->machine_codes, sm);
        else if (kind == 1) note_target(found->ptx, &found->ptxs, sm);
        at += own + payload;
    }
}

/* `size` is 0 if the caller does not know it, as for cuModuleLoadData. */
static inline struct image look_at(const void *given, size_t size) {
    struct image found = {FORM_UNKNOWN, given, size, {0}, 0, {0}, 0};
    const uint8_t *data = given;
    if (data == NULL || (size && size < 16)) return found;
    for (int depth = 0; depth < 2 && little(data, 4) == 0x466243b1; depth++) { /* magic, version, the fatbin's address */
        memcpy(&data, data + 8, sizeof data);
        if (data == NULL) return found;
    }
    found.data = data;
    if (memcmp(data, "\x7f" "ELF", 4) == 0) {
        found.form = FORM_MACHINE_CODE;
        found.size = elf_size(data);
        note_target(found.machine_code, &found.machine_codes, elf_target(data));
    } else if (little(data, 4) == 0xba55ed50) {
        read_fatbin(&found);
    } else if (little(data, 4) == 0x7f4e43ed || little(data, 4) == 0xdec04342) { /* LTO-IR, LLVM bitcode */
        found.form = FORM_INTERMEDIATE;
    } else if (looks_like_ptx((const char *)data, size ? size : MOST_TEXT)) {
        found.form = FORM_PTX;
        found.size = strnlen((const char *)data, size ? size : MOST_TEXT);
        note_target(found.ptx, &found.ptxs, ptx_target((const char *)data, found.size));
    }
    return found;
}

/* Whether a device runs one of the targets: the same major version, and no later minor one. */
static inline int runs_on(const int *targets, int count, int sm) {
    for (int i = 0; i < count; i++)
        if (targets[i] / 10 == sm / 10 && targets[i] <= sm) return 1;
    return 0;
}

/* Whether the driver has to compile this image for a device of compute capability `sm`. */
static inline int needs_jit(const struct image *image, int sm) {
    if (image->form == FORM_PTX || image->form == FORM_INTERMEDIATE) return 1;
    return image->form == FORM_FATBIN && image->ptxs && !runs_on(image->machine_code, image->machine_codes, sm);
}
