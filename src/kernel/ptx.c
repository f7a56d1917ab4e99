/* ptx.c - the PTX scanner (ptx.h).
 *
 * Threads: any; no state outside of the call.
 * Locks: none.
 * Blocking: none.
 * Always:
 * - The cursor never passes `end`, and every word lies inside the text.
 * - The time is proportional to the length of the text, for any content.
 */
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "kernel/ptx.h"

enum { PARAMS_MAX = 4096, NAME_MAX_BYTES = 4096, SHARED_MAX = 1 << 20 };

typedef struct word {
    const char *at;
    size_t n; /* 0: the end of the text */
} word;

/* A shared variable that is declared outside of functions, and the last body that names it. */
typedef struct variable {
    word name; /* n is 0 in a free place of the table */
    uint32_t bytes, align;
    /* the number of the last body that names it, counted from 1; 0: no body names it */
    uint32_t counted;
} variable;

typedef struct scanner {
    const char *at, *end;
    unsigned line;
    word now; /* the current word; `at` points behind it */
    hdi_ptx *out;
    size_t entries_room, variables_room;
    variable *shared;               /* a hash table by name; at most half of it is in use */
    size_t n_shared, shared_places; /* a power of two, or 0 */
    uint32_t bodies;
} scanner;

static bool ptx_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '%';
}

static void ptx_skip_blank(scanner *s)
{
    while (s->at < s->end) {
        if (*s->at == '\n') {
            s->line++;
            s->at++;
        } else if (*s->at == ' ' || *s->at == '\t' || *s->at == '\r') {
            s->at++;
        } else if (*s->at == '/' && s->end - s->at > 1 && s->at[1] == '/') {
            while (s->at < s->end && *s->at != '\n') {
                s->at++;
            }
        } else if (*s->at == '/' && s->end - s->at > 1 && s->at[1] == '*') {
            s->at += 2;
            while (s->at < s->end && !(*s->at == '*' && s->end - s->at > 1 && s->at[1] == '/')) {
                s->line += *s->at == '\n';
                s->at++;
            }
            s->at = s->end - s->at > 1 ? s->at + 2 : s->end;
        } else {
            return;
        }
    }
}

/* Takes the next word: a name, a number, a directive with its dot, a string, or one other
 * character. */
static void ptx_next_word(scanner *s)
{
    ptx_skip_blank(s);
    const char *from = s->at;
    if (s->at < s->end) {
        if (*s->at == '"') {
            s->at++;
            while (s->at < s->end && *s->at != '"' && *s->at != '\n') {
                s->at++;
            }
            s->at += s->at < s->end && *s->at == '"';
        } else if (ptx_is_word(*s->at) || *s->at == '.') {
            s->at++;
            while (s->at < s->end && ptx_is_word(*s->at)) {
                s->at++;
            }
        } else {
            s->at++;
        }
    }
    s->now = (word){from, (size_t)(s->at - from)};
}

static bool ptx_word_is(word w, const char *text)
{
    size_t n = strlen(text);
    return w.n == n && memcmp(w.at, text, n) == 0;
}

static bool ptx_now_is(const scanner *s, const char *text)
{
    return ptx_word_is(s->now, text);
}

static hd_status ptx_damaged(const scanner *s, const char *what)
{
    return hdi_fail(HD_ERROR_IMAGE, "PTX, line %u: expected %s, found '%.*s'", s->line, what,
                    (int)(s->now.n < 40 ? s->now.n : 40), s->now.at);
}

/* Reads a number, decimal or hexadecimal, up to 2^31 - 1. */
static bool ptx_read_number(word w, uint32_t *out)
{
    uint64_t v = 0;
    size_t i = 0;
    unsigned base = 10;
    if (w.n > 2 && w.at[0] == '0' && (w.at[1] == 'x' || w.at[1] == 'X')) {
        base = 16, i = 2;
    }
    if (w.n == 0) {
        return false;
    }
    for (; i < w.n; i++) {
        char c = w.at[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                                : 99;
        if ((c == 'U' || c == 'u') && i + 1 == w.n && i > 0) {
            break;
        }
        if (digit >= base || (v = v * base + digit) > INT32_MAX) {
            return false;
        }
    }
    *out = (uint32_t)v;
    return true;
}

/* The size of a type such as ".u32"; 0: it is no type. *letter: as in hdi_ptx_param. */
static uint32_t ptx_type_size(word w, char *letter)
{
    static const struct {
        const char *name;
        uint32_t size;
        char letter;
    } types[] = {
        {".b8", 1, 'b'},     {".u8", 1, 'u'},         {".s8", 1, 's'},      {".b16", 2, 'b'},  {".u16", 2, 'u'},
        {".s16", 2, 's'},    {".f16", 2, 'f'},        {".bf16", 2, 'f'},    {".b32", 4, 'b'},  {".u32", 4, 'u'},
        {".s32", 4, 's'},    {".f32", 4, 'f'},        {".f16x2", 4, 'b'},   {".tf32", 4, 'f'}, {".bf16x2", 4, 'b'},
        {".b64", 8, 'b'},    {".u64", 8, 'u'},        {".s64", 8, 's'},     {".f64", 8, 'f'},  {".b128", 16, 'b'},
        {".texref", 8, 'b'}, {".samplerref", 8, 'b'}, {".surfref", 8, 'b'},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (ptx_word_is(w, types[i].name)) {
            *letter = types[i].letter;
            return types[i].size;
        }
    }
    return 0;
}

/* True if the type is that of a texture, surface or sampler reference. */
static bool ptx_is_reference(word w)
{
    return ptx_word_is(w, ".texref") || ptx_word_is(w, ".surfref") || ptx_word_is(w, ".samplerref");
}

/* Notes the first reference: the name that is the current word. */
static void ptx_note_reference(scanner *s)
{
    if (s->out->texture_bytes == 0 && s->now.n > 0 && ptx_is_word(s->now.at[0])) {
        s->out->texture = s->now.at;
        s->out->texture_bytes = s->now.n;
    }
}

/* Reads the part of a declaration that follows its state space, up to its name and bounds:
 *     [.align N] [.v2|.v4] .type [.ptr ...] name [N]... */
static hd_status ptx_read_declaration(scanner *s, word *name, uint32_t *size, uint32_t *align, char *type)
{
    uint64_t bytes = 0;
    uint32_t vector = 1, given = 0, of = 0;
    bool pointer = false, reference = false;
    while (s->now.n > 1 && s->now.at[0] == '.') {
        char letter = 0;
        uint32_t n = ptx_type_size(s->now, &letter);
        if (n != 0) {
            bytes = of = n;
            *type = letter;
            reference = ptx_is_reference(s->now);
        } else if (ptx_now_is(s, ".align")) {
            uint32_t value;
            ptx_next_word(s);
            if (!ptx_read_number(s->now, &value) || value == 0 || (value & (value - 1)) != 0) {
                return ptx_damaged(s, "an alignment");
            }
            /* behind .ptr, this number is the alignment of the memory that the pointer leads to */
            given = pointer ? given : value;
        } else if (ptx_now_is(s, ".v2") || ptx_now_is(s, ".v4")) {
            vector = ptx_now_is(s, ".v2") ? 2 : 4;
        } else if (ptx_now_is(s, ".ptr")) {
            pointer = true;
        }
        ptx_next_word(s);
    }
    if (of == 0) {
        return ptx_damaged(s, "a type");
    }
    if (s->now.n == 0 || !ptx_is_word(s->now.at[0])) {
        return ptx_damaged(s, "a name");
    }
    *name = s->now;
    if (reference) {
        ptx_note_reference(s);
    }
    bytes *= vector;
    *align = given > of * vector ? given : of * vector;
    ptx_next_word(s);
    while (ptx_now_is(s, "[")) {
        uint32_t count = 0;
        *type = 'a';
        *align = given > of ? given : of;
        ptx_next_word(s);
        if (!ptx_now_is(s, "]")) {
            if (!ptx_read_number(s->now, &count)) {
                return ptx_damaged(s, "a number of elements");
            }
            ptx_next_word(s);
        }
        if (!ptx_now_is(s, "]")) {
            return ptx_damaged(s, "]");
        }
        ptx_next_word(s);
        bytes *= count;
        if (bytes > INT32_MAX) {
            return ptx_damaged(s, "fewer elements");
        }
    }
    *size = (uint32_t)bytes;
    return HD_OK;
}

static bool ptx_add_to_shared(uint32_t *total, uint32_t size, uint32_t align)
{
    uint64_t end = ((uint64_t)*total + align - 1) / align * align + size;
    if (end > INT32_MAX) {
        return false;
    }
    *total = (uint32_t)end;
    return true;
}

/* Reads the parameter list, from behind "(" to behind ")". */
static hd_status ptx_read_params(scanner *s, hdi_ptx_entry *entry)
{
    while (!ptx_now_is(s, ")")) {
        if (!ptx_now_is(s, ".param")) {
            return ptx_damaged(s, ".param");
        }
        ptx_next_word(s);
        word name;
        uint32_t size = 0, align = 1;
        char type = 0;
        hd_status status = ptx_read_declaration(s, &name, &size, &align, &type);
        if (status != HD_OK) {
            return status;
        }
        uint32_t end = entry->argument_bytes;
        if (!ptx_add_to_shared(&end, size, align) || entry->n_params == PARAMS_MAX) {
            return ptx_damaged(s, "fewer parameters");
        }
        if ((entry->n_params & (entry->n_params - 1)) == 0) { /* the array grows at powers of two */
            size_t room = entry->n_params == 0 ? 4 : entry->n_params * (size_t)2;
            if (entry->n_params == 0 || room > 4) {
                hdi_ptx_param *more = realloc(entry->params, room * sizeof *more);
                if (more == NULL) {
                    return hdi_fail(HD_ERROR_HOST_MEMORY, "PTX: no memory for the parameters of %s", entry->name);
                }
                entry->params = more;
            }
        }
        entry->params[entry->n_params++] = (hdi_ptx_param){end - size, size, type};
        entry->argument_bytes = end;
        if (ptx_now_is(s, ",")) {
            ptx_next_word(s);
        } else if (!ptx_now_is(s, ")")) {
            return ptx_damaged(s, ", or )");
        }
    }
    ptx_next_word(s);
    return HD_OK;
}

/* Reads the directives between the parameters and the body. Keeps thread bounds and skips the
 * rest. */
static hd_status ptx_read_directives(scanner *s, hdi_ptx_entry *entry)
{
    while (!ptx_now_is(s, "{") && !ptx_now_is(s, ";")) {
        if (s->now.n == 0) {
            return ptx_damaged(s, "{");
        }
        bool bound = ptx_now_is(s, ".maxntid") || ptx_now_is(s, ".reqntid");
        ptx_next_word(s);
        if (!bound) {
            continue;
        }
        uint64_t threads = 1;
        uint32_t n;
        while (ptx_read_number(s->now, &n)) {
            threads = threads * n > UINT32_MAX ? UINT32_MAX : threads * n;
            ptx_next_word(s);
            if (!ptx_now_is(s, ",")) {
                break;
            }
            ptx_next_word(s);
        }
        entry->max_threads = (uint32_t)threads;
    }
    return HD_OK;
}

/* The place of the variable with that name, or the free place for it. Half of the table is always
 * free. */
static variable *ptx_place_of(const scanner *s, word name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < name.n; i++) {
        h = (h ^ (unsigned char)name.at[i]) * 0x100000001b3u;
    }
    size_t at = (size_t)(h ^ h >> 32);
    for (;; at++) {
        variable *v = &s->shared[at & (s->shared_places - 1)];
        if (v->name.n == 0 || (v->name.n == name.n && memcmp(v->name.at, name.at, name.n) == 0)) {
            return v;
        }
    }
}

/* Adds the module-wide variable that a body names to *total, once for each body. False: the total
 * is too large. */
static bool ptx_count_use(scanner *s, uint32_t *total)
{
    variable *v = s->n_shared != 0 ? ptx_place_of(s, s->now) : NULL;
    if (v == NULL || v->name.n == 0 || v->counted == s->bodies) {
        return true;
    }
    v->counted = s->bodies;
    return ptx_add_to_shared(total, v->bytes, v->align);
}

/* Reads a body, from "{" to behind its "}". `entry` is NULL for a body that belongs to no
 * kernel. */
static hd_status ptx_read_body(scanner *s, hdi_ptx_entry *entry)
{
    hd_status status = HD_OK;
    unsigned depth = 0;
    s->bodies++;
    do {
        if (s->now.n == 0) {
            status = ptx_damaged(s, "}");
        } else if (ptx_now_is(s, "{")) {
            depth++;
            ptx_next_word(s);
        } else if (ptx_now_is(s, "}")) {
            depth--;
            ptx_next_word(s);
        } else if (entry != NULL && ptx_now_is(s, ".shared")) {
            /* A type follows .shared in a declaration, and also in an instruction (ld.shared.u32).
             * In an instruction, a name stands directly in front of .shared, without a blank. */
            bool declares = s->now.at[-1] == ' ' || s->now.at[-1] == '\t' || s->now.at[-1] == '\n' ||
                            s->now.at[-1] == '{' || s->now.at[-1] == ';';
            ptx_next_word(s);
            if (declares) {
                word name;
                uint32_t size = 0, align = 1;
                char type = 0;
                status = ptx_read_declaration(s, &name, &size, &align, &type);
                if (status == HD_OK && !ptx_add_to_shared(&entry->static_shared_bytes, size, align)) {
                    status = ptx_damaged(s, "less shared memory");
                }
            }
        } else {
            if (entry != NULL && !ptx_count_use(s, &entry->static_shared_bytes)) {
                status = ptx_damaged(s, "less shared memory");
            }
            ptx_next_word(s);
        }
    } while (status == HD_OK && depth != 0);
    return status;
}

static hd_status ptx_read_entry(scanner *s)
{
    if (s->now.n == 0 || !ptx_is_word(s->now.at[0]) || s->now.n > NAME_MAX_BYTES) {
        return ptx_damaged(s, "the name of a kernel");
    }
    if (s->out->n_entries == s->entries_room) {
        size_t room = s->entries_room == 0 ? 8 : 2 * s->entries_room;
        hdi_ptx_entry *more = realloc(s->out->entries, room * sizeof *more);
        if (more == NULL) {
            return hdi_fail(HD_ERROR_HOST_MEMORY, "PTX: no memory for the list of kernels");
        }
        s->out->entries = more;
        s->entries_room = room;
    }
    hdi_ptx_entry *entry = &s->out->entries[s->out->n_entries];
    memset(entry, 0, sizeof *entry);
    entry->name = malloc(s->now.n + 1);
    if (entry->name == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "PTX: no memory for the name of a kernel");
    }
    memcpy(entry->name, s->now.at, s->now.n);
    entry->name[s->now.n] = 0;
    s->out->n_entries++;
    ptx_next_word(s);
    if (ptx_now_is(s, "(")) {
        ptx_next_word(s);
        hd_status status = ptx_read_params(s, entry);
        if (status != HD_OK) {
            return status;
        }
    }
    hd_status status = ptx_read_directives(s, entry);
    if (status == HD_OK && ptx_now_is(s, "{")) {
        return ptx_read_body(s, entry);
    }
    if (status == HD_OK) { /* the kernel is only declared here, and its definition follows */
        s->out->n_entries--;
        free(entry->name);
        free(entry->params);
        ptx_next_word(s);
    }
    return status;
}

/* Doubles the number of places. False: no memory. */
static bool ptx_grow_table(scanner *s)
{
    scanner grown = *s;
    grown.shared_places = s->shared_places == 0 ? 16 : 2 * s->shared_places;
    grown.shared = calloc(grown.shared_places, sizeof *grown.shared);
    for (size_t i = 0; grown.shared != NULL && i < s->shared_places; i++) {
        if (s->shared[i].name.n != 0) {
            *ptx_place_of(&grown, s->shared[i].name) = s->shared[i];
        }
    }
    if (grown.shared != NULL) {
        free(s->shared);
        s->shared = grown.shared;
        s->shared_places = grown.shared_places;
    }
    return grown.shared != NULL;
}

static hd_status ptx_read_module_variable(scanner *s)
{
    variable v = {.counted = 0};
    char type = 0;
    hd_status status = ptx_read_declaration(s, &v.name, &v.bytes, &v.align, &type);
    if (status != HD_OK) {
        return status;
    }
    if (s->n_shared == SHARED_MAX) {
        return ptx_damaged(s, "fewer shared variables");
    }
    if (2 * s->n_shared == s->shared_places && !ptx_grow_table(s)) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "PTX: no memory for the list of shared variables");
    }
    variable *place = ptx_place_of(s, v.name);
    s->n_shared += place->name.n == 0;
    *place = v;
    return HD_OK;
}

static hd_status ptx_add_variable(scanner *s, hdi_ptx_variable v)
{
    if (s->out->n_variables == s->variables_room) {
        size_t room = s->variables_room == 0 ? 8 : 2 * s->variables_room;
        hdi_ptx_variable *more = realloc(s->out->variables, room * sizeof *more);
        if (more == NULL) {
            return hdi_fail(HD_ERROR_HOST_MEMORY, "PTX: no memory for the list of variables");
        }
        s->out->variables = more;
        s->variables_room = room;
    }
    s->out->variables[s->out->n_variables++] = v;
    return HD_OK;
}

/* Reads the bounds of an array: [N][M]. An amount that is not a number becomes 0. */
static uint64_t ptx_read_bounds(scanner *s, uint64_t bytes)
{
    while (ptx_now_is(s, "[")) {
        uint32_t count = 0;
        ptx_next_word(s);
        bytes = ptx_read_number(s->now, &count) && bytes <= INT32_MAX ? bytes * count : 0;
        while (s->now.n != 0 && !ptx_now_is(s, "]")) {
            ptx_next_word(s);
        }
        ptx_next_word(s);
    }
    return bytes;
}

/* Reads a variable in global or constant memory, from behind the state space up to its initial
 * value. Skips unknown constructs: the driver decides about them. */
static hd_status ptx_read_device_variable(scanner *s, bool constant)
{
    hdi_ptx_variable v = {.constant = constant};
    uint64_t of = 0, vector = 1;
    while (s->now.n != 0 && !ptx_now_is(s, ";") && !ptx_now_is(s, "=") && !ptx_now_is(s, "[") && !ptx_now_is(s, "{")) {
        char letter;
        uint32_t size = ptx_type_size(s->now, &letter);
        if (ptx_is_reference(s->now)) {
            ptx_next_word(s);
            ptx_note_reference(s);
            return HD_OK;
        }
        of = size != 0 ? size : of;
        if (ptx_now_is(s, ".v2") || ptx_now_is(s, ".v4")) {
            vector = ptx_now_is(s, ".v2") ? 2 : 4;
        } else if (ptx_now_is(s, ".align")) {
            ptx_next_word(s);
        } else if (ptx_now_is(s, "(")) { /* .attribute(.managed) */
            while (s->now.n != 0 && !ptx_now_is(s, ")")) {
                ptx_next_word(s);
            }
        } else if (ptx_is_word(s->now.at[0])) {
            v.name = s->now.at;
            v.name_bytes = s->now.n;
        }
        ptx_next_word(s);
    }
    v.bytes = ptx_read_bounds(s, of * vector);
    return v.name_bytes != 0 && v.name_bytes <= NAME_MAX_BYTES ? ptx_add_variable(s, v) : HD_OK;
}

static hd_status ptx_scan(scanner *s)
{
    ptx_next_word(s);
    bool external = false;
    while (s->now.n != 0) {
        hd_status status = HD_OK;
        if (ptx_now_is(s, ".entry")) {
            ptx_next_word(s);
            status = ptx_read_entry(s);
            external = false;
        } else if (ptx_now_is(s, ".extern")) {
            external = true;
            ptx_next_word(s);
        } else if (ptx_now_is(s, ".shared") && !external) {
            ptx_next_word(s);
            status = ptx_read_module_variable(s);
        } else if ((ptx_now_is(s, ".global") || ptx_now_is(s, ".const")) && !external) {
            bool constant = ptx_now_is(s, ".const");
            ptx_next_word(s);
            status = ptx_read_device_variable(s, constant);
        } else if (ptx_is_reference(s->now)) {
            ptx_next_word(s);
            ptx_note_reference(s);
        } else if (ptx_now_is(s, "{")) {
            /* the body of a function, or the initial value of a variable */
            status = ptx_read_body(s, NULL);
        } else {
            external = external && !ptx_now_is(s, ";");
            ptx_next_word(s);
        }
        if (status != HD_OK) {
            return status;
        }
    }
    return HD_OK;
}

bool hdi_ptx_detect(const void *image, size_t bytes)
{
    scanner s = {.at = image, .end = (const char *)image + bytes, .line = 1};
    ptx_next_word(&s);
    return ptx_now_is(&s, ".version");
}

hd_status hdi_ptx_scan(const char *text, size_t bytes, hdi_ptx *out)
{
    hdi_ptx ptx = {.n_entries = 0};
    const char *zero = memchr(text, 0, bytes);
    scanner s = {.at = text, .end = zero != NULL ? zero : text + bytes, .line = 1, .out = &ptx};
    hd_status status = ptx_scan(&s);
    free(s.shared);
    if (status != HD_OK) {
        hdi_ptx_release(&ptx);
        return status;
    }
    *out = ptx;
    return HD_OK;
}

void hdi_ptx_release(hdi_ptx *ptx)
{
    for (uint32_t i = 0; i < ptx->n_entries; i++) {
        free(ptx->entries[i].name);
        free(ptx->entries[i].params);
    }
    free(ptx->entries);
    free(ptx->variables);
    *ptx = (hdi_ptx){.n_entries = 0};
}

const hdi_ptx_entry *hdi_ptx_find(const hdi_ptx *ptx, const char *name)
{
    for (uint32_t i = 0; i < ptx->n_entries; i++) {
        if (strcmp(ptx->entries[i].name, name) == 0) {
            return &ptx->entries[i];
        }
    }
    return NULL;
}

const hdi_ptx_variable *hdi_ptx_find_variable(const hdi_ptx *ptx, const char *name)
{
    size_t n = strlen(name);
    for (uint32_t i = 0; i < ptx->n_variables; i++) {
        if (ptx->variables[i].name_bytes == n && memcmp(ptx->variables[i].name, name, n) == 0) {
            return &ptx->variables[i];
        }
    }
    return NULL;
}
