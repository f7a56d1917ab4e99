/* report.c - the tables of `heddle p2p`: devices, verdicts and their reasons, facts, bandwidth and
 * latency.
 *
 * Threads: the conductor. Locks: none.
 * Always: in place of a figure that was not measured, the tables contain a dash. The lines below
 * the matrix of verdicts give the reason and advice for every verdict except "usable".
 */
#include <math.h>
#include <string.h>
#include "cli/common/machine.h"
#include "cli/common/words.h"
#include "cli/p2p/parts.h"

enum {
    LINE = 120,
    LABEL = 6,       /* row number */
    CELL = 8,        /* figure */
    HEADING = 4,     /* blanks before the heading of a matrix */
    BETWEEN = 4,     /* blanks between matrices */
    WORDS_MOST = 8,  /* with more devices, verdicts are abbreviated */
    WORD = 13,       /* width of a full verdict */
    PAIRS_SHOWN = 12 /* with one reason */
};

/* ---- verdicts ---- */

static void p2p_report_print_devices(const p2p_experiment *x, FILE *out)
{
    char version[24], module[64];
    cli_machine_driver_version_text(x->info.driver_version, version);
    p2p_driver_text(x, module, sizeof(module));
    fprintf(out, "heddle %s, driver %s %s%s%s\n\n", hd_version(), x->info.driver, version,
            module[0] && !x->on_host ? ", module " : "", x->on_host ? "" : module);
    for (int i = 0; i < x->n; i++) {
        const hd_device_info *d = &x->devices[i].info;
        fprintf(out, "%4d  %-28s %-14s", i, d->name, d->bus_id);
        if (d->numa_node >= 0) {
            fprintf(out, "  NUMA node %d", d->numa_node);
        }
        fprintf(out, "%s\n", d->is_host ? "  (host device: a CPU stand-in)" : "");
    }
}

/* For many devices. */
static const char *p2p_report_short_verdict(hd_peer_verdict verdict)
{
    static const char *const texts[] = {"?", "yes", "slow", "no", "BAD", "?"};
    return (unsigned)verdict < sizeof(texts) / sizeof(texts[0]) ? texts[verdict] : "?";
}

static void p2p_report_print_verdicts(const p2p_experiment *x, FILE *out)
{
    bool words = x->n <= WORDS_MOST;
    int width = words ? WORD : 5, known = 0;
    fprintf(out, "\nverdicts: may a row's device use the memory of a column's?\n%*s", LABEL, "");
    for (int o = 0; o < x->n; o++) {
        fprintf(out, "%*d", width, o);
    }
    fprintf(out, "\n");
    for (int d = 0; d < x->n; d++) {
        fprintf(out, "%*d", LABEL, d);
        for (int o = 0; o < x->n; o++) {
            hd_peer_verdict verdict = x->peers[d][o].verdict;
            fprintf(out, "%*s", width,
                    d == o  ? "."
                    : words ? hd_peer_verdict_text(verdict)
                            : p2p_report_short_verdict(verdict));
            known += d != o && x->peers[d][o].remembered;
        }
        fprintf(out, "\n");
    }
    if (!words) {
        fprintf(out, "%*s(yes: usable, no: refused, BAD: corrupt, ?: inconclusive)\n", LABEL, "");
    }
    if (known) {
        fprintf(out, "%*s%d of %d were found by an earlier program; --again tests all\n", LABEL, "", known,
                x->n * (x->n - 1));
    }
}

static const char *p2p_report_after_number(const char *at)
{
    return at + strspn(at, "0123456789abcdefABCDEFx.");
}

/* True if two sentences differ only in numbers, such as those of devices, bytes or speeds. */
static bool p2p_report_same_words(const char *a, const char *b)
{
    while (*a && *b) {
        bool number = *a >= '0' && *a <= '9' && *b >= '0' && *b <= '9';
        if (!number && *a != *b) {
            return false;
        }
        a = number ? p2p_report_after_number(a) : a + 1;
        b = number ? p2p_report_after_number(b) : b + 1;
    }
    return *a == *b;
}

static bool p2p_report_same_finding(const hd_peer_info *a, const hd_peer_info *b)
{
    return a->verdict == b->verdict && a->driver_code == b->driver_code && p2p_report_same_words(a->reason, b->reason);
}

static void p2p_report_print_finding(const p2p_experiment *x, int first_d, int first_o, FILE *out)
{
    const hd_peer_info *p = &x->peers[first_d][first_o];
    char line[sizeof(p->reason) + 128];
    int shown = 0, count = 0;
    fprintf(out, "  %-13s", hd_peer_verdict_text(p->verdict));
    for (int d = 0; d < x->n; d++) {
        for (int o = 0; o < x->n; o++) {
            if (d != o && p2p_report_same_finding(p, &x->peers[d][o])) {
                if (shown < PAIRS_SHOWN) {
                    fprintf(out, "%s%d -> %d", shown++ ? ", " : "", d, o);
                }
                count++;
            }
        }
    }
    if (count > shown) {
        fprintf(out, " and %d more", count - shown);
    }
    const char *code = p->driver_code ? hdi_driver_code_name(p->driver_code) : "";
    bool told = strstr(p->reason, code) != NULL; /* "" always matches */
    /* the numbers in the sentence are those of this pair */
    char whose[32] = "";
    if (count > 1) {
        snprintf(whose, sizeof(whose), "%d -> %d: ", first_d, first_o);
    }
    snprintf(line, sizeof(line), "%s%s%s%s%s", whose, p->reason[0] ? p->reason : "no reason was given",
             told ? "" : " (", told ? "" : code, told ? "" : ")");
    fprintf(out, "\n               why: ");
    cli_words_put(out, line, 20, 20);
    fprintf(out, "               do:  ");
    cli_words_put(out, p2p_remedy(x, p), 20, 20);
}

static void p2p_report_print_reasons(const p2p_experiment *x, FILE *out)
{
    bool any = false;
    for (int d = 0; d < x->n; d++) {
        for (int o = 0; o < x->n; o++) {
            bool first = d != o && x->peers[d][o].verdict != HD_PEER_USABLE;
            for (int e = 0; e <= d && first; e++) {
                for (int q = 0; q < x->n && (e < d || q < o); q++) {
                    first = first && (e == q || !p2p_report_same_finding(&x->peers[e][q], &x->peers[d][o]));
                }
            }
            if (first) {
                fprintf(out, "%s", any ? "" : "\n");
                any = true;
                p2p_report_print_finding(x, d, o, out);
            }
        }
    }
}

/* ---- facts ---- */

static bool p2p_report_same_fact(const p2p_fact *a, const p2p_fact *b)
{
    return a->id == b->id && a->state == b->state && strcmp(a->text, b->text) == 0;
}

/* Devices with the same fact share a line. */
static void p2p_report_print_fact(const p2p_experiment *x, int index, FILE *out)
{
    const p2p_fact *f = &x->facts.list[index];
    char line[P2P_FACT_TEXT + 160];
    int count = 0, used = 0;
    for (int i = 0; i < index && f->device >= 0; i++) {
        if (p2p_report_same_fact(&x->facts.list[i], f)) {
            return;
        }
    }
    for (int i = index; i < x->facts.n && f->device >= 0; i++) {
        if (p2p_report_same_fact(&x->facts.list[i], f)) {
            count++;
            if (used < 64) {
                used += snprintf(line + used, sizeof(line) - (size_t)used, "%s%d", used ? ", " : "device ",
                                 x->facts.list[i].device);
            }
        }
    }
    if (count > 1 && count == x->n) {
        used = snprintf(line, sizeof(line), "all devices");
    }
    snprintf(line + used, sizeof(line) - (size_t)used, "%s%s", used ? ": " : "", f->text);
    fprintf(out, "  %-8s %-18s ", p2p_state_text(f->state), f->name);
    cli_words_put(out, line, 30, 30);
    if (f->state != P2P_OK && f->remedy[0]) {
        fprintf(out, "%*sdo: ", 30, "");
        cli_words_put(out, f->remedy, 34, 34);
    }
}

static void p2p_report_print_paths(const p2p_experiment *x, FILE *out)
{
    static const system_path paths[] = {SYSTEM_PATH_SAME_SWITCH, SYSTEM_PATH_SAME_ROOT, SYSTEM_PATH_OTHER_ROOT,
                                        SYSTEM_PATH_UNKNOWN};
    int counts[4] = {0}, kinds = 0;
    for (int d = 0; d < x->n; d++) {
        for (int o = d + 1; o < x->n; o++) {
            for (int k = 0; k < 4; k++) {
                counts[k] += x->facts.path[d][o] == paths[k];
            }
        }
    }
    if (x->n < 2) {
        return;
    }
    fprintf(out, "  %-8s %-18s ", counts[3] ? "unknown" : "OK", "paths on the bus");
    for (int k = 0; k < 4; k++) {
        if (counts[k]) {
            fprintf(out, "%s%d pair%s: %s", kinds++ ? "; " : "", counts[k], counts[k] == 1 ? "" : "s",
                    cli_system_path_text(paths[k]));
        }
    }
    fprintf(out, "\n");
}

static void p2p_report_print_facts(const p2p_experiment *x, FILE *out)
{
    if (x->on_host) {
        return;
    }
    fprintf(out, "\nwhat the system reports of the devices and what is between them\n");
    for (int i = 0; i < x->facts.n; i++) {
        p2p_report_print_fact(x, i, out);
    }
    p2p_report_print_paths(x, out);
}

/* ---- figures ---- */

static void p2p_report_put_value(FILE *out, double value, const char *unit)
{
    if (isnan(value)) {
        fprintf(out, "%*s", CELL, "-");
    } else {
        fprintf(out, "%*.*f", CELL, strcmp(unit, "ns") == 0 || value >= 1000 ? 0 : value < 10 ? 2 : 1, value);
    }
}

static bool p2p_report_is_measured(const p2p_experiment *x, p2p_figure_id id)
{
    bool any = false;
    for (int d = 0; d < x->n; d++) {
        for (int o = 0; o < x->n; o++) {
            any = any || !isnan(x->figures[id][d][o]);
        }
    }
    return any;
}

/* Matrices, each with a heading, side by side if they fit. */
typedef struct block {
    p2p_figure_id id;
    const char *text;
} block;

static int p2p_report_block_width(const p2p_experiment *x, const block *b)
{
    int matrix = LABEL + CELL * x->n, heading = HEADING + (int)strlen(b->text);
    return matrix > heading ? matrix : heading;
}

/* Fills a block's line with blanks up to the next block. */
static void p2p_report_end_block(const p2p_experiment *x, const block *b, int written, bool last, FILE *out)
{
    fprintf(out, "%*s", last ? 0 : p2p_report_block_width(x, b) + BETWEEN - written, "");
}

static void p2p_report_print_matrix_row(const p2p_experiment *x, const block *b, int d, FILE *out)
{
    fprintf(out, "%*d", LABEL, d);
    for (int o = 0; o < x->n; o++) {
        if (d == o) {
            fprintf(out, "%*s", CELL, ".");
        } else {
            p2p_report_put_value(out, x->figures[b->id][d][o], p2p_figures[b->id].unit);
        }
    }
}

static void p2p_report_print_beside(const p2p_experiment *x, const block *blocks, int n, FILE *out)
{
    int row = LABEL + CELL * x->n;
    for (int i = 0; i < n; i++) {
        int written = fprintf(out, "%*s%s", HEADING, "", blocks[i].text);
        p2p_report_end_block(x, &blocks[i], written, i + 1 == n, out);
    }
    fprintf(out, "\n");
    for (int i = 0; i < n; i++) {
        fprintf(out, "%*s", LABEL, "");
        for (int o = 0; o < x->n; o++) {
            fprintf(out, "%*d", CELL, o);
        }
        p2p_report_end_block(x, &blocks[i], row, i + 1 == n, out);
    }
    fprintf(out, "\n");
    for (int d = 0; d < x->n; d++) {
        for (int i = 0; i < n; i++) {
            p2p_report_print_matrix_row(x, &blocks[i], d, out);
            p2p_report_end_block(x, &blocks[i], row, i + 1 == n, out);
        }
        fprintf(out, "\n");
    }
}

static void p2p_report_print_blocks(const p2p_experiment *x, const char *title, const block *all, int count, FILE *out)
{
    block shown[2];
    int n = 0, width = -BETWEEN;
    for (int i = 0; i < count && n < 2; i++) {
        if (p2p_report_is_measured(x, all[i].id)) {
            width += p2p_report_block_width(x, &all[i]) + BETWEEN;
            shown[n++] = all[i];
        }
    }
    if (n == 0) {
        return;
    }
    fprintf(out, "\n%s (%s)\n", title, p2p_figures[shown[0].id].unit);
    int fit = width > LINE ? 1 : n;
    for (int i = 0; i < n; i += fit) {
        p2p_report_print_beside(x, shown + i, fit, out);
    }
}

static void p2p_report_print_pairs(const p2p_experiment *x, FILE *out)
{
    static const block driver[] = {{P2P_CE_WRITE, "direct: a row's copy engine writes"},
                                   {P2P_STAGED, "without peer access"}};
    static const block heddle[] = {{P2P_HEDDLE_DIRECT, "with peer access"}, {P2P_HEDDLE_STAGED, "without peer access"}};
    static const block driver_both[] = {{P2P_CE_BOTH_WRITE, "direct, sum"},
                                        {P2P_STAGED_BOTH, "without peer access, sum"}};
    static const block heddle_both[] = {{P2P_HEDDLE_DIRECT_BOTH, "with peer access, sum"},
                                        {P2P_HEDDLE_STAGED_BOTH, "without peer access, sum"}};
    static const block reads[] = {{P2P_CE_READ, "a row's engine reads"}, {P2P_CE_BOTH_READ, "both at once, sum"}};
    static const block kernels[] = {{P2P_SM_WRITE, "a row's kernel writes"}, {P2P_SM_READ, "a row's kernel reads"}};
    static const block kernels_both[] = {{P2P_SM_BOTH_WRITE, "both write, sum"}, {P2P_SM_BOTH_READ, "both read, sum"}};
    static const block small[] = {{P2P_DIRECT_4096, "the driver, direct"},
                                  {P2P_STAGED_4096, "the driver, without peer access"}};
    static const block small_heddle[] = {{P2P_HEDDLE_DIRECT_4096, "hd_copy, with peer access"},
                                         {P2P_HEDDLE_STAGED_4096, "hd_copy, without peer access"}};
    static const block load[] = {{P2P_SM_LATENCY, "a row's kernel, a column's memory"}};
    p2p_report_print_blocks(x, "the driver's copies, one direction", driver, 2, out);
    p2p_report_print_blocks(x, "hd_copy, one direction", heddle, 2, out);
    p2p_report_print_blocks(x, "the driver's copies, both directions at once", driver_both, 2, out);
    p2p_report_print_blocks(x, "hd_copy, both directions at once", heddle_both, 2, out);
    p2p_report_print_blocks(x, "copy engines that read, direct", reads, 2, out);
    p2p_report_print_blocks(x, "kernels, direct", kernels, 2, out);
    p2p_report_print_blocks(x, "kernels, direct, both directions at once", kernels_both, 2, out);
    p2p_report_print_blocks(x, "4 KiB copied and waited for, driver", small, 2, out);
    p2p_report_print_blocks(x, "4 KiB copied and waited for, Heddle", small_heddle, 2, out);
    p2p_report_print_blocks(x, "latency of a load", load, 1, out);
}

static void p2p_report_print_links(const p2p_experiment *x, FILE *out)
{
    fprintf(out, "\ndevices and pinned memory near them\n%*s", 77, "");
    for (int d = 0; d < x->n; d++) {
        fprintf(out, "%*d", CELL, d);
    }
    fprintf(out, "\n");
    for (int l = 0; l < P2P_LINKS; l++) {
        fprintf(out, "  %-69s %-4s ", p2p_links[l].text, p2p_links[l].unit);
        for (int d = 0; d < x->n; d++) {
            p2p_report_put_value(out, x->links[l][d], p2p_links[l].unit);
        }
        fprintf(out, "\n");
    }
}

void p2p_print_tables(const void *experiment, FILE *out)
{
    const p2p_experiment *x = experiment;
    p2p_report_print_devices(x, out);
    if (x->n > 1) {
        p2p_report_print_verdicts(x, out);
        p2p_report_print_reasons(x, out);
    } else {
        fprintf(out, "\nthere is one device, so there are no pairs\n");
    }
    p2p_report_print_facts(x, out);
    if (!x->options->verdicts_only) {
        p2p_report_print_pairs(x, out);
        p2p_report_print_links(x, out);
        fprintf(out,
                "\nmeasured with buffers of %llu MiB, %d copies in a sample (staged: %d), median of %d sample%s, GB/s "
                "= 1e9 bytes a second%s\n",
                (unsigned long long)(x->bytes / P2P_MIB), x->copies, x->staged_copies, x->samples,
                x->samples == 1 ? "" : "s",
                x->bytes < P2P_SIZE_MIB * P2P_MIB ? ";\nnvbandwidth's usual size is 512 MiB: --size 512" : "");
        fprintf(out, "compared: %llu copies and chains, %llu of them wrong\n", (unsigned long long)x->checked,
                (unsigned long long)x->wrong);
    }
    for (int i = 0; i < x->n_notes; i++) {
        fprintf(out, "%snote: ", i ? "" : "\n");
        cli_words_put(out, x->notes[i], 6, 6);
    }
    if (x->notes_left_out) {
        fprintf(out, "and %d more notes\n", x->notes_left_out);
    }
}
