/* cc_tables.c - see cc_tables.h.
 *
 * libclc keeps its tables in constant memory. If the threads of a warp read different places, as in
 * a table of logarithms, constant memory serves them one by one. Global memory serves all threads
 * at once, through the cache.
 *
 * An index may be out of range. For example, sinh computes an index from any argument, and ignores
 * the value that it reads if the argument is not a number. GPUs convert such a double to -2^31.
 * Constant memory accepts any address, but global memory does not. So the new code clamps the
 * index. LLVM's passes remove the clamp if the index is masked anyway.
 *
 * A table moves if each of its uses is the address of an element, and each use of that address is a
 * read.
 */
#include "cli/cc_tables.h"

#include <assert.h>
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

static piece tables_piece_none(void)
{
    return (piece){NULL, 0};
}
static bool tables_piece_same(piece a, piece b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.at, b.at, a.length) == 0);
}
/* The piece from the first `what` on. */
static piece tables_piece_from(piece in, const char *what)
{
    const char *at = in.length > 0 ? memmem(in.at, in.length, what, strlen(what)) : NULL;
    return at != NULL ? (piece){at, in.length - (size_t)(at - in.at)} : tables_piece_none();
}
static piece tables_piece_behind(piece in, const char *what)
{
    piece found = tables_piece_from(in, what);
    size_t length = found.at != NULL ? strlen(what) : 0;
    return (piece){found.at != NULL ? found.at + length : NULL, found.length - length};
}
static bool tables_piece_begins(piece in, const char *what)
{
    return in.at != NULL && in.length >= strlen(what) && memcmp(in.at, what, strlen(what)) == 0;
}
/* The name of a variable or a value with its first character, @ or %; empty: none. */
static piece tables_name_at(piece in)
{
    size_t n = in.length > 0 && (*in.at == '@' || *in.at == '%') ? 1 : 0;
    while (n > 0 && n < in.length && strchr(name_letters, in.at[n]) != NULL && in.at[n] != 0) {
        n++;
    }
    return (piece){in.at, n > 1 ? n : 0};
}

/* A table: its name, the number of its elements, and true if all of its uses were understood. */
typedef struct table {
    piece name;
    unsigned long elements;
    bool moves;
} table;
/* The address of an element, in the current function. */
typedef struct address {
    piece name;
    table *of;
} address;
typedef struct tables {
    table *all;
    address *addresses;
    size_t n, used, room;
} tables;

static table *tables_find(const tables *t, piece name)
{
    for (size_t i = 0; i < t->n; i++) {
        if (tables_piece_same(t->all[i].name, name)) {
            return &t->all[i];
        }
    }
    return NULL;
}
static table *tables_find_address(const tables *t, piece name)
{
    for (size_t i = 0; i < t->used; i++) {
        if (tables_piece_same(t->addresses[i].name, name)) {
            return t->addresses[i].of;
        }
    }
    return NULL;
}
static void *tables_grow_list(void *old, size_t old_bytes, size_t bytes)
{
    void *wider = cli_allocate(bytes);
    if (old_bytes > 0) {
        memcpy(wider, old, old_bytes);
    }
    free(old);
    return wider;
}
static void tables_add_address(tables *t, piece name, table *of)
{
    if (t->used == t->room) {
        size_t room = t->room == 0 ? 64 : t->room * 2;
        t->addresses = tables_grow_list(t->addresses, t->used * sizeof *t->addresses, room * sizeof *t->addresses);
        t->room = room;
    }
    t->addresses[t->used++] = (address){name, of};
}

/* Adds a table's definition: @NAME = internal ... addrspace(4) constant [N x ...]. Constant
 * memory of kernels is no table: the names of C++ begin with @_, and the host may write to it.
 * Bytes that are read as other types stay, too: the bits of 2/pi. */
static void tables_add_table(tables *t, piece line)
{
    piece name = tables_name_at(line), array = tables_piece_behind(line, " " CONSTANT " constant [");
    if (name.length < 2 || name.at[1] == '_' || array.at == NULL ||
        tables_piece_from(line, " = internal ").at == NULL ||
        tables_piece_from(line, "externally_initialized").at != NULL) {
        return;
    }
    char *type = NULL;
    unsigned long elements = strtoul(array.at, &type, 10);
    if (elements == 0 || elements > 1 << 20 || strncmp(type, " x ", 3) != 0 || strncmp(type, " x i8]", 6) == 0) {
        return;
    }
    t->all = tables_grow_list(t->all, t->n * sizeof *t->all, (t->n + 1) * sizeof *t->all);
    t->all[t->n++] = (table){name, elements, true};
}

/* `%R = getelementptr inbounds [N x T], [N x T] addrspace(4)* @TABLE, i64 0, i64 %INDEX...`:
 * *index is the name of the index. Returns the table, or NULL for another line. */
static table *tables_element_of(const tables *t, piece line, piece *index)
{
    piece start = tables_piece_behind(line, " = getelementptr inbounds ["),
          rest = tables_piece_behind(start, CONSTANT "* ");
    piece name = tables_name_at(rest);
    table *of = name.length > 0 ? tables_find(t, name) : NULL;
    if (of == NULL || line.length < 3 || tables_name_at((piece){line.at + 2, line.length - 2}).length == 0) {
        return NULL;
    }
    rest = (piece){rest.at + name.length, rest.length - name.length};
    if (!tables_piece_begins(rest, ", i64 0, i64 ")) {
        return NULL;
    }
    *index = tables_name_at(tables_piece_behind(rest, ", i64 0, i64 "));
    return index->length > 0 ? of : NULL;
}

/* `%V = load T, T addrspace(4)* %R, align...`: the name of the address. Empty for another line. */
static piece tables_address_read(piece line)
{
    piece rest = tables_piece_behind(tables_piece_behind(line, " = load "), CONSTANT "* ");
    return tables_name_at(rest);
}

/* Marks the tables that the line uses in any other way, so that they stay in place. */
static void tables_keep_mentioned(const tables *t, piece line)
{
    for (piece rest = line; rest.length > 0; rest = (piece){rest.at + 1, rest.length - 1}) {
        piece name = tables_name_at(rest);
        if (name.length > 0) {
            table *of = *name.at == '@' ? tables_find(t, name) : tables_find_address(t, name);
            if (of != NULL) {
                of->moves = false;
            }
        }
    }
}

static piece tables_next_line(piece *text)
{
    const char *newline = memchr(text->at, '\n', text->length);
    piece line = {text->at, newline != NULL ? (size_t)(newline + 1 - text->at) : text->length};
    *text = (piece){text->at + line.length, text->length - line.length};
    return line;
}

/* Finds the tables that can move. */
static void tables_find_uses(tables *t, piece text)
{
    for (piece all = text; all.length > 0;) {
        piece line = tables_next_line(&all), index;
        if (tables_piece_begins(line, "define ")) {
            t->used = 0;
        }
        table *of = tables_element_of(t, line, &index);
        /* in the definition of a variable, only the text after its own name matters */
        if (*line.at == '@') {
            piece name = tables_name_at(line);
            tables_keep_mentioned(t, (piece){line.at + name.length, line.length - name.length});
        } else if (of != NULL) {
            tables_add_address(t, tables_name_at((piece){line.at + 2, line.length - 2}), of);
        } else if (tables_address_read(line).length == 0 || tables_find_address(t, tables_address_read(line)) == NULL) {
            tables_keep_mentioned(t, line);
        }
    }
}

/* Writes the line, which contains addrspace(4), with its last one as addrspace(1). */
static void tables_write_global(FILE *out, piece line)
{
    piece last = tables_piece_from(line, CONSTANT);
    assert(last.at != NULL);
    for (piece next; (next = tables_piece_from((piece){last.at + 1, last.length - 1}, CONSTANT)).at != NULL;) {
        last = next;
    }
    fwrite(line.at, 1, (size_t)(last.at - line.at), out);
    fputs(GLOBAL, out);
    fwrite(last.at + strlen(CONSTANT), 1, last.length - strlen(CONSTANT), out);
}

/* Writes the address of an element. Clamps the index as an unsigned number, so a negative index
 * becomes the index of the last element. */
static void tables_write_element(FILE *out, piece line, piece index, const table *of)
{
    piece result = tables_name_at((piece){line.at + 2, line.length - 2});
    int n = (int)result.length - 1;
    const char *name = result.at + 1;
    fprintf(out, "  %%low.%.*s = trunc i64 %.*s to i32\n", n, name, (int)index.length, index.at);
    fprintf(out, "  %%within.%.*s = call i32 @llvm.umin.i32(i32 %%low.%.*s, i32 %lu)\n", n, name, n, name,
            of->elements - 1);
    fprintf(out, "  %%index.%.*s = zext i32 %%within.%.*s to i64\n", n, name, n, name);
    size_t before = (size_t)(index.at - line.at);
    tables_write_global(out, (piece){line.at, before});
    fprintf(out, "%%index.%.*s", n, name);
    fwrite(index.at + index.length, 1, line.length - before - index.length, out);
}

static void tables_write_line(FILE *out, tables *t, piece line)
{
    piece index = tables_piece_none();
    table *of = *line.at == '@' ? tables_find(t, tables_name_at(line)) : tables_element_of(t, line, &index);
    if (*line.at != '@' && of != NULL) {
        tables_add_address(t, tables_name_at((piece){line.at + 2, line.length - 2}), of);
        if (of->moves) {
            tables_write_element(out, line, index, of);
            return;
        }
    } else if (of == NULL && tables_address_read(line).length > 0) {
        of = tables_find_address(t, tables_address_read(line));
    }
    if (of != NULL && of->moves) {
        tables_write_global(out, line);
    } else {
        fwrite(line.at, 1, line.length, out);
    }
}

void cc_tables_make_global(void **text, size_t *bytes)
{
    static const char declaration[] = "declare i32 @llvm.umin.i32(i32, i32)";
    piece whole = {*text, *bytes};
    tables t = {NULL, NULL, 0, 0, 0};
    for (piece all = whole; all.length > 0;) {
        piece line = tables_next_line(&all);
        if (*line.at == '@') {
            tables_add_table(&t, line);
        }
    }
    tables_find_uses(&t, whole);
    char *moved = NULL;
    size_t length = 0;
    FILE *out = t.n > 0 ? open_memstream(&moved, &length) : NULL;
    for (piece all = whole; out != NULL && all.length > 0;) {
        piece line = tables_next_line(&all);
        t.used = tables_piece_begins(line, "define ") ? 0 : t.used;
        tables_write_line(out, &t, line);
    }
    if (out != NULL && tables_piece_from(whole, declaration).at == NULL) {
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
