/* pack.c - columns of numbers as text: differences, mostly of one or two bytes, in base64.
 *
 * Threads: the tool's first. Locks: none.
 */
#include "cli/report/parts.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const int64_t most = (INT64_C(1) << 52) - 1; /* keeps differences within 53 bits */

static void report_page_column_put_group(page_column *c, int characters)
{
    for (int i = 0; i < characters; i++) {
        fputc(digits[c->bits >> (18 - 6 * i) & 63], c->out);
    }
    c->bits = 0;
    c->held = 0;
}

static void report_page_column_put_byte(page_column *c, unsigned byte)
{
    c->bits |= (uint64_t)byte << (16 - 8 * c->held);
    if (++c->held == 3) {
        report_page_column_put_group(c, 4);
    }
}

static void report_page_column_put_number(page_column *c, uint64_t number)
{
    while (number >= 128) {
        report_page_column_put_byte(c, (unsigned)(number & 127) | 128);
        number >>= 7;
    }
    report_page_column_put_byte(c, (unsigned)number);
}

static void report_page_column_put_repeats(page_column *c)
{
    if (c->repeats > 0) {
        report_page_column_put_number(c, 1);
        report_page_column_put_number(c, c->repeats);
        c->repeats = 0;
    }
}

void report_page_column_begin(page_column *c, FILE *out)
{
    *c = (page_column){.out = out};
}

void report_page_column_add(page_column *c, int64_t value)
{
    bool unseen = value == INT64_MIN;
    if (!unseen) {
        value = value > most ? most : value < -most ? -most : value;
    }
    if (c->any && unseen == c->unseen && (unseen || value == c->last)) {
        c->repeats++;
        return;
    }
    report_page_column_put_repeats(c);
    c->any = true;
    c->unseen = unseen;
    if (unseen) {
        report_page_column_put_number(c, 0);
        return;
    }
    int64_t step = value - c->last;
    uint64_t folded = step < 0 ? ((uint64_t)-step << 1) - 1 : (uint64_t)step << 1;
    report_page_column_put_number(c, folded + 2);
    c->last = value;
}

void report_page_column_end(page_column *c)
{
    report_page_column_put_repeats(c);
    if (c->held > 0) {
        /* without padding, which the page's reader does not need */
        report_page_column_put_group(c, c->held + 1);
    }
}
