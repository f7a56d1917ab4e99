/* cc_tables.c - see cc_tables.h.
 *
 * libclc's tables are in constant memory. That serves the threads of a warp one by one where they read different places, as they do in
 * a table of logarithms. Global memory is read through the cache, all at once.
 *
 * An index may be out of range. For example sinh makes one of any argument, and leaves what it read unused where that is no number.
 * GPUs convert such a double to -2^31. Constant memory answers any address, and global memory does not.
 * So an index is held in its range; LLVM's passes take that away again where bits are masked.
 *
 * A table moves when each of its uses is the address of an element, and each use of that address is a read.
 * Threads: the program's first. Locks: none.
 */
#include "cli/cc_tables.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/process.h"

#define CONSTANT "addrspace(4)"
#define GLOBAL "addrspace(1)"
static const char name_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._$-";

/* A part of the text. */
typedef struct piece {
    const char *at;
    size_t length;
} piece;

static piece none(void)
{
    return (piece){NULL, 0};
}
static bool same(piece a, piece b)
{
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}
/* The first `what` in the piece and all behind it. */
static piece from(piece in, const char *what)
{
    const char *at = in.length > 0 ? memmem(in.at, in.length, what, strlen(what)) : NULL;
    return at != NULL ? (piece){at, in.length - (size_t)(at - in.at)} : none();
}
static piece behind(piece in, const char *what)
{
    piece found = from(in, what);
    size_t length = found.at != NULL ? strlen(what) : 0;
    return (piece){found.at != NULL ? found.at + length : NULL, found.length - length};
}
static bool begins(piece in, const char *what)
{
    return in.length >= strlen(what) && memcmp(in.at, what, strlen(what)) == 0;
}
/* The name of a variable or a value with its first letter, @ or %; empty where there is none. */
static piece name_at(piece in)
{
    size_t n = in.length > 0 && (*in.at == '@' || *in.at == '%') ? 1 : 0;
    while (n > 0 && n < in.length && strchr(name_letters, in.at[n]) != NULL && in.at[n] != 0) {
        n++;
    }
    return (piece){in.at, n > 1 ? n : 0};
}

/* A table: its name, how many elements it has, and whether all of its uses were understood. */
typedef struct table {
    piece name;
    unsigned long elements;
    bool moves;
} table;
/* The address of an element, in the function that is being read. */
typedef struct address {
    piece name;
    table *of;
} address;
typedef struct tables {
    table *all;
    address *addresses;
    size_t n, used, room;
} tables;

static table *find_table(const tables *t, piece name)
{
    for (size_t i = 0; i < t->n; i++) {
        if (same(t->all[i].name, name)) {
            return &t->all[i];
        }
    }
    return NULL;
}
static table *find_address(const tables *t, piece name)
{
    for (size_t i = 0; i < t->used; i++) {
        if (same(t->addresses[i].name, name)) {
            return t->addresses[i].of;
        }
    }
    return NULL;
}
static void *grow(void *old, size_t old_bytes, size_t bytes)
{
    void *wider = cli_allocate(bytes);
    if (old_bytes > 0) {
        memcpy(wider, old, old_bytes);
    }
    free(old);
    return wider;
}
static void add_address(tables *t, piece name, table *of)
{
    if (t->used == t->room) {
        size_t room = t->room == 0 ? 64 : t->room * 2;
        t->addresses = grow(t->addresses, t->used * sizeof *t->addresses, room * sizeof *t->addresses);
        t->room = room;
    }
    t->addresses[t->used++] = (address){name, of};
}

/* A table's definition: @NAME = internal ... addrspace(4) constant [N x ...].
 * What kernels have in constant memory is none: its names are those of C++, which begin with @_, or the host may write it.
 * Bytes that are read as other types stay, too: the bits of 2/pi. */
static void add_table(tables *t, piece line)
{
    piece name = name_at(line), array = behind(line, " " CONSTANT " constant [");
    if (name.length < 2 || name.at[1] == '_' || array.at == NULL || from(line, " = internal ").at == NULL ||
        from(line, "externally_initialized").at != NULL) {
        return;
    }
    char *type = NULL;
    unsigned long elements = strtoul(array.at, &type, 10);
    if (elements == 0 || elements > 1 << 20 || strncmp(type, " x ", 3) != 0 || strncmp(type, " x i8]", 6) == 0) {
        return;
    }
    t->all = grow(t->all, t->n * sizeof *t->all, (t->n + 1) * sizeof *t->all);
    t->all[t->n++] = (table){name, elements, true};
}

/* `%R = getelementptr inbounds [N x T], [N x T] addrspace(4)* @TABLE, i64 0, i64 %INDEX...`: *index is the name of the index.
 * Returns the table, NULL where the line is something else. */
static table *element_of(const tables *t, piece line, piece *index)
{
    piece start = behind(line, " = getelementptr inbounds ["), rest = behind(start, CONSTANT "* ");
    piece name = name_at(rest);
    table *of = name.length > 0 ? find_table(t, name) : NULL;
    if (of == NULL || line.length < 3 || name_at((piece){line.at + 2, line.length - 2}).length == 0) {
        return NULL;
    }
    rest = (piece){rest.at + name.length, rest.length - name.length};
    if (!begins(rest, ", i64 0, i64 ")) {
        return NULL;
    }
    *index = name_at(behind(rest, ", i64 0, i64 "));
    return index->length > 0 ? of : NULL;
}

/* `%V = load T, T addrspace(4)* %R, align...`: the name of the address. Empty where the line is something else. */
static piece address_read(piece line)
{
    piece rest = behind(behind(line, " = load "), CONSTANT "* ");
    return name_at(rest);
}

/* What the line refers to in a way that is none of the two stays. */
static void keep_mentioned(const tables *t, piece line)
{
    for (piece rest = line; rest.length > 0; rest = (piece){rest.at + 1, rest.length - 1}) {
        piece name = name_at(rest);
        if (name.length > 0) {
            table *of = *name.at == '@' ? find_table(t, name) : find_address(t, name);
            if (of != NULL) {
                of->moves = false;
            }
        }
    }
}

static piece next_line(piece *text)
{
    const char *newline = memchr(text->at, '\n', text->length);
    piece line = {text->at, newline != NULL ? (size_t)(newline + 1 - text->at) : text->length};
    *text = (piece){text->at + line.length, text->length - line.length};
    return line;
}

/* Finds which tables can move. */
static void find_uses(tables *t, piece text)
{
    for (piece all = text; all.length > 0;) {
        piece line = next_line(&all), index;
        if (begins(line, "define ")) {
            t->used = 0;
        }
        table *of = element_of(t, line, &index);
        if (*line.at == '@') { /* of any variable: what comes behind its own name */
            piece name = name_at(line);
            keep_mentioned(t, (piece){line.at + name.length, line.length - name.length});
        } else if (of != NULL) {
            add_address(t, name_at((piece){line.at + 2, line.length - 2}), of);
        } else if (address_read(line).length == 0 || find_address(t, address_read(line)) == NULL) {
            keep_mentioned(t, line);
        }
    }
}

/* Writes the line with its last addrspace(4) as addrspace(1). */
static void write_global(FILE *out, piece line)
{
    piece last = from(line, CONSTANT);
    for (piece next; (next = from((piece){last.at + 1, last.length - 1}, CONSTANT)).at != NULL;) {
        last = next;
    }
    fwrite(line.at, 1, (size_t)(last.at - line.at), out);
    fputs(GLOBAL, out);
    fwrite(last.at + strlen(CONSTANT), 1, last.length - strlen(CONSTANT), out);
}

/* Writes the address of an element. The index is held in its range as an unsigned number: a negative one is that of the last element. */
static void write_element(FILE *out, piece line, piece index, const table *of)
{
    piece result = name_at((piece){line.at + 2, line.length - 2});
    int n = (int)result.length - 1;
    const char *name = result.at + 1;
    fprintf(out, "  %%low.%.*s = trunc i64 %.*s to i32\n", n, name, (int)index.length, index.at);
    fprintf(out, "  %%within.%.*s = call i32 @llvm.umin.i32(i32 %%low.%.*s, i32 %lu)\n", n, name, n, name,
            of->elements - 1);
    fprintf(out, "  %%index.%.*s = zext i32 %%within.%.*s to i64\n", n, name, n, name);
    size_t before = (size_t)(index.at - line.at);
    write_global(out, (piece){line.at, before});
    fprintf(out, "%%index.%.*s", n, name);
    fwrite(index.at + index.length, 1, line.length - before - index.length, out);
}

static void write_line(FILE *out, tables *t, piece line)
{
    piece index;
    table *of = *line.at == '@' ? find_table(t, name_at(line)) : element_of(t, line, &index);
    if (*line.at != '@' && of != NULL) {
        add_address(t, name_at((piece){line.at + 2, line.length - 2}), of);
        if (of->moves) {
            write_element(out, line, index, of);
            return;
        }
    } else if (of == NULL && address_read(line).length > 0) {
        of = find_address(t, address_read(line));
    }
    if (of != NULL && of->moves) {
        write_global(out, line);
    } else {
        fwrite(line.at, 1, line.length, out);
    }
}

void cc_tables_move(void **text, size_t *bytes)
{
    static const char declaration[] = "declare i32 @llvm.umin.i32(i32, i32)";
    piece whole = {*text, *bytes};
    tables t = {NULL, NULL, 0, 0, 0};
    for (piece all = whole; all.length > 0;) {
        piece line = next_line(&all);
        if (*line.at == '@') {
            add_table(&t, line);
        }
    }
    find_uses(&t, whole);
    char *moved = NULL;
    size_t length = 0;
    FILE *out = t.n > 0 ? open_memstream(&moved, &length) : NULL;
    for (piece all = whole; out != NULL && all.length > 0;) {
        piece line = next_line(&all);
        t.used = begins(line, "define ") ? 0 : t.used;
        write_line(out, &t, line);
    }
    if (out != NULL && from(whole, declaration).at == NULL) {
        fprintf(out, "\n%s\n", declaration);
    }
    if (out != NULL && fclose(out) == 0) {
        free(*text);
        *text = moved;
        *bytes = length;
    }
    free(t.all);
    free(t.addresses);
}
