/* rules.c - `heddle trace FILE --check RULES`: checks a trace against rules, so that a build can
 * fail.
 *
 * A line is a rule: FIGURE COMPARISON VALUE. A # starts a comment. Comparisons are < <= > >= == !=.
 *    compute  transfer  idle  overlap   share of the window (%), or a time (ns, us, ms, s)
 *    idle.CAUSE                         the same, for the causes loss, device, copy, claim, ring,
 *                                       memory, overhead, nothing and unknown
 *    gap.max                            the longest idle time; a time
 *    queue.mean queue.most              operations submitted and not ended; numbers
 *    submit-to-issue.p50 .p99           of launches; times
 *    issue-to-begin.p50 .p99            of launches; times
 *    memory.peak                        the most that buffers took; bytes, KiB, MiB, GiB
 *    FIGURE.DEVICE                      of one device; without .DEVICE, of each device that has
 *                                       operations
 *    critical.KIND                      compute, transfer, claim, way, host, unknown along the
 *                                       critical path; a share (%) or a time
 *    transfer.rate(A->B)                of every path from A to B (a device's number, or host);
 *                                       MB/s or GB/s
 *    transfer.share(A->B)               the same, as a share of the path's peak (%)
 *    findings  finding.ID  dropped  ignored  losses  failed  launches  operations    numbers
 *    window                             a time
 *
 * Threads, Locks: see model.h.
 * Always: an invalid line prevents all output. A trace without work breaks every rule about
 * devices.
 */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "cli/common/command.h"
#include "cli/trace/output.h"
#include "cli/trace/parts.h"

typedef enum unit_kind { UNIT_NUMBER, UNIT_SHARE, UNIT_TIME, UNIT_BYTES, UNIT_RATE } unit_kind;

static const struct {
    const char *text;
    unit_kind kind;
    double factor;
} units[] = {
    {"", UNIT_NUMBER, 1},         {"%", UNIT_SHARE, 1},         {"ns", UNIT_TIME, 1},     {"us", UNIT_TIME, 1e3},
    {"ms", UNIT_TIME, 1e6},       {"s", UNIT_TIME, 1e9},        {"bytes", UNIT_BYTES, 1}, {"KiB", UNIT_BYTES, 1024},
    {"MiB", UNIT_BYTES, 1048576}, {"GiB", UNIT_BYTES, 1 << 30}, {"MB/s", UNIT_RATE, 1e6}, {"GB/s", UNIT_RATE, 1e9},
};

static const char *const comparisons[] = {"<=", ">=", "==", "!=", "<", ">"};

typedef struct rule {
    char text[128], name[64];
    int device;   /* TRACE_NONE: each device */
    int src, dst; /* ends of a path */
    bool path;
    int comparison;
    double value; /* the value in the smallest unit */
    unit_kind unit;
    const char *unit_text;
    double factor;
} rule;

typedef struct checker {
    const trace *t;
    const rule *r;
    int line;
    FILE *out; /* NULL: only parse the rule */
    bool broken, asked;
} checker;

/* ---- rules ---- */

static bool trace_rule_holds(const rule *r, double value)
{
    switch (r->comparison) {
    case 0:
        return value <= r->value;
    case 1:
        return value >= r->value;
    case 2:
        return value == r->value;
    case 3:
        return value != r->value;
    case 4:
        return value < r->value;
    default:
        return value > r->value;
    }
}

__attribute__((format(printf, 2, 3))) static void trace_rule_report_broken(checker *c, const char *format, ...)
{
    va_list arguments;
    c->broken = true;
    if (c->out) {
        fprintf(c->out, "line %d: %s: ", c->line, c->r->text);
        va_start(arguments, format);
        vfprintf(c->out, format, arguments);
        va_end(arguments);
        fputc('\n', c->out);
    }
}

static void trace_rule_judge_value(checker *c, const char *of, double value)
{
    c->asked = true;
    if (!trace_rule_holds(c->r, value)) {
        trace_rule_report_broken(c, "%s%s%.6g%s%s", of, of[0] ? " has " : "it is ", value / c->r->factor,
                                 c->r->unit_text[0] && c->r->unit_text[0] != '%' ? " " : "", c->r->unit_text);
    }
}

/* Judges a part of the window, as a share or a time, by the unit of the rule. */
static void trace_rule_judge_part(checker *c, const char *of, int64_t ns)
{
    int64_t window = c->t->end - c->t->begin;
    trace_rule_judge_value(
        c, of, c->r->unit == UNIT_SHARE ? (window > 0 ? (double)ns * 100 / (double)window : 0) : (double)ns);
}

/* ---- figures ---- */

static bool trace_rule_is_used(const trace *t, int d)
{
    for (size_t i = 0; i < t->n_lanes; i++) {
        if (trace_lane_device(t->lanes[i].lane) == d && t->lanes[i].n_ops > 0) {
            return true;
        }
    }
    return false;
}

static bool trace_rule_has_work(const trace *t)
{
    bool work = false;
    for (int d = 0; d < t->n_devices && !work; d++) {
        work = trace_rule_is_used(t, d);
    }
    return work;
}

static int64_t trace_rule_longest_gap(const trace_device *d)
{
    int64_t longest = 0, now = 0;
    for (size_t i = 0; i < d->n_pieces; i++) { /* adjacent idle pieces form one gap */
        now = d->pieces[i].state == TRACE_IDLE ? now + d->pieces[i].end - d->pieces[i].begin : 0;
        longest = trace_most(longest, now);
    }
    return longest;
}

static double trace_rule_memory_peak(const trace *t, int d)
{
    double sum = 0;
    for (size_t i = 0; i < t->n_labels; i++) {
        sum += t->labels[i].kind == 0 && t->labels[i].device == d ? (double)t->labels[i].at_peak : 0;
    }
    return sum;
}

/* Judges how long launches take to reach the device. */
static bool trace_rule_delay_figure(checker *c, const char *name, const trace_delays *d, const char *of)
{
    const struct {
        const char *name;
        uint64_t count;
        int64_t ns;
    } figures[] = {{"submit-to-issue.p50", d->issued, d->issue_p50},
                   {"submit-to-issue.p99", d->issued, d->issue_p99},
                   {"issue-to-begin.p50", d->begun, d->begin_p50},
                   {"issue-to-begin.p99", d->begun, d->begin_p99}};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        if (strcmp(name, figures[i].name) != 0) {
            continue;
        }
        if (of && figures[i].count > 0) {
            trace_rule_judge_value(c, of, (double)figures[i].ns);
        } else if (of) {
            trace_rule_report_broken(c, "the trace lacks this figure of %s", of);
        }
        return c->r->unit == UNIT_TIME;
    }
    return false;
}

/* Judges a figure of device `d`. False: the name is unknown, or the rule's unit does not fit. `of`
 * NULL: only checks the name and the unit. */
static bool trace_rule_device_figure(checker *c, const char *name, int d, const char *of)
{
    const trace_device *x = &c->t->devices[d < 0 ? 0 : d];
    const char *cause = strncmp(name, "idle.", 5) == 0 ? name + 5 : NULL;
    const struct {
        const char *name;
        int64_t ns;
    } parts[] = {{"compute", x->compute}, {"transfer", x->transfer}, {"idle", x->idle}, {"overlap", x->overlap}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(name, parts[i].name) == 0) {
            of ? trace_rule_judge_part(c, of, parts[i].ns) : (void)0;
            return c->r->unit == UNIT_SHARE || c->r->unit == UNIT_TIME;
        }
    }
    for (int i = 0; cause && i < TRACE_CAUSES; i++) {
        if (strcmp(cause, trace_cause_id((trace_cause)i)) == 0) {
            of ? trace_rule_judge_part(c, of, x->cause[i]) : (void)0;
            return c->r->unit == UNIT_SHARE || c->r->unit == UNIT_TIME;
        }
    }
    if (strcmp(name, "gap.max") == 0) {
        of ? trace_rule_judge_value(c, of, (double)trace_rule_longest_gap(x)) : (void)0;
        return c->r->unit == UNIT_TIME;
    }
    bool queues = strcmp(name, "queue.mean") == 0;
    if (queues || strcmp(name, "queue.most") == 0) {
        of ? trace_rule_judge_value(c, of, queues ? x->queue_mean : (double)x->queue_most) : (void)0;
        return c->r->unit == UNIT_NUMBER;
    }
    if (strcmp(name, "memory.peak") == 0) {
        of ? trace_rule_judge_value(c, of, trace_rule_memory_peak(c->t, d)) : (void)0;
        return c->r->unit == UNIT_BYTES;
    }
    return trace_rule_delay_figure(c, name, &x->delays, of);
}

static bool trace_rule_is_end(int wanted, uint8_t is)
{
    return wanted == TRACE_NONE ? is >= TRACE_DEVICES : wanted == is;
}

static bool trace_rule_path_figure(checker *c)
{
    const rule *r = c->r;
    bool share = strcmp(r->name, "transfer.share") == 0;
    if ((!share && strcmp(r->name, "transfer.rate") != 0) || r->unit != (share ? UNIT_SHARE : UNIT_RATE)) {
        return false;
    }
    for (size_t i = 0; i < c->t->n_links; i++) {
        const trace_link *l = &c->t->links[i];
        double peak = l->peak > 0 ? l->peak : l->best;
        if (trace_rule_is_end(r->src, l->src) && trace_rule_is_end(r->dst, l->dst) && l->busy > 0 &&
            (!share || peak > 0)) {
            trace_rule_judge_value(c, trace_way_text(l->way), share ? l->rate * 100 / peak : l->rate);
        }
    }
    if (!c->asked) {
        trace_rule_report_broken(c, "no such transfer was measured");
    }
    return true;
}

static bool trace_rule_critical_figure(checker *c)
{
    static const char *const kinds[TRACE_ALONG] = {"critical.compute", "critical.transfer", "critical.claim",
                                                   "critical.way",     "critical.host",     "critical.unknown"};
    for (int i = 0; i < TRACE_ALONG; i++) {
        if (strcmp(c->r->name, kinds[i]) == 0 && (c->r->unit == UNIT_SHARE || c->r->unit == UNIT_TIME)) {
            if (c->t->n_critical > 0) {
                trace_rule_judge_part(c, "", c->t->along[i]);
            } else {
                trace_rule_report_broken(c, "the trace has no critical path");
            }
            return true;
        }
    }
    return false;
}

static bool trace_rule_count_figure(checker *c)
{
    const trace *t = c->t;
    const char *name = c->r->name;
    uint64_t launches = 0, found = 0;
    for (size_t i = 0; i < t->n_launches; i++) {
        launches += t->launches[i].count;
    }
    for (size_t i = 0; i < t->n_findings && strncmp(name, "finding.", 8) == 0; i++) {
        found += strcmp(name + 8, t->findings[i].id) == 0;
    }
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"findings", t->n_findings}, {"dropped", t->dropped}, {"ignored", t->ignored},
                  {"losses", t->n_losses},     {"failed", t->failed},   {"launches", launches},
                  {"operations", t->n_ops}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (strcmp(name, counts[i].name) == 0 && c->r->unit == UNIT_NUMBER) {
            trace_rule_judge_value(c, "", (double)counts[i].value);
            return true;
        }
    }
    if (strncmp(name, "finding.", 8) == 0 && trace_finding_number(name + 8) != TRACE_NONE &&
        c->r->unit == UNIT_NUMBER) {
        trace_rule_judge_value(c, "", (double)found);
        return true;
    }
    if (strcmp(name, "window") == 0 && c->r->unit == UNIT_TIME) {
        trace_rule_judge_value(c, "", (double)(t->end - t->begin));
        return true;
    }
    return false;
}

/* False: the rule is invalid. */
static bool trace_rule_check(checker *c)
{
    const rule *r = c->r;
    char of[32];
    if (r->path) {
        return trace_rule_path_figure(c);
    }
    if (!trace_rule_device_figure(c, r->name, TRACE_NONE, NULL)) {
        return r->device == TRACE_NONE && (trace_rule_count_figure(c) || trace_rule_critical_figure(c));
    }
    if (r->device != TRACE_NONE && r->device >= c->t->n_devices) {
        trace_rule_report_broken(c, "the trace has %d devices", c->t->n_devices);
        return true;
    }
    if (!trace_rule_has_work(c->t)) { /* a build whose trace is empty must fail */
        trace_rule_report_broken(c, "no device has operations");
        return true;
    }
    for (int d = 0; d < c->t->n_devices; d++) {
        snprintf(of, sizeof of, "device %d", d);
        if (r->device == d || (r->device == TRACE_NONE && trace_rule_is_used(c->t, d))) {
            trace_rule_device_figure(c, r->name, d, of);
        }
    }
    return true;
}

/* ---- parsing ---- */

static const char *trace_rule_skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t') {
        at++;
    }
    return at;
}

/* Parses one end of a path: the number of a device, or "host" (TRACE_NONE). */
static bool trace_rule_parse_end(const char **at, int *out)
{
    *at = trace_rule_skip_blanks(*at);
    *out = TRACE_NONE;
    if (strncmp(*at, "host", 4) == 0) {
        *at += 4;
    } else if (isdigit((unsigned char)**at)) {
        char *end;
        long number = strtol(*at, &end, 10);
        if (number >= TRACE_DEVICES) {
            return false;
        }
        *out = (int)number;
        *at = end;
    } else {
        return false;
    }
    *at = trace_rule_skip_blanks(*at);
    return true;
}

static bool trace_rule_parse_path(const char **at, rule *out)
{
    if (**at != '(') {
        return true;
    }
    ++*at;
    out->path = true;
    if (!trace_rule_parse_end(at, &out->src) || strncmp(*at, "->", 2) != 0) {
        return false;
    }
    *at += 2;
    return trace_rule_parse_end(at, &out->dst) && *(*at)++ == ')';
}

/* Parses the number after the last dot, which is a device. */
static void trace_rule_parse_device(rule *out)
{
    char *dot = strrchr(out->name, '.'), *end = NULL;
    out->device = TRACE_NONE;
    if (dot && isdigit((unsigned char)dot[1])) {
        long number = strtol(dot + 1, &end, 10);
        if (*end == 0 && number < 1000) {
            out->device = (int)number;
            *dot = 0;
        }
    }
}

static bool trace_rule_parse_value(const char *at, rule *out)
{
    char number[32];
    at = trace_rule_skip_blanks(at);
    size_t length = strspn(at, "0123456789.");
    if (length == 0 || length >= sizeof number || memchr(at, '.', length) != memrchr(at, '.', length)) {
        return false;
    }
    /* not strtod: the locale may use another decimal point */
    double value = 0, place = 0;
    for (size_t i = 0; i < length; i++) {
        if (at[i] == '.') {
            place = 1;
        } else {
            value = value * 10 + (at[i] - '0');
            place *= 10;
        }
    }
    at = trace_rule_skip_blanks(at + length);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(at, units[i].text) == 0) {
            out->unit = units[i].kind;
            out->unit_text = units[i].text;
            out->factor = units[i].factor;
            out->value = (place > 0 ? value / place : value) * units[i].factor;
            return true;
        }
    }
    return false;
}

static bool trace_rule_parse(const char *line, rule *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->text, sizeof out->text, "%.120s", line);
    const char *at = line;
    size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789.-");
    if (length == 0 || length >= sizeof out->name) {
        return false;
    }
    memcpy(out->name, at, length);
    at += length;
    trace_rule_parse_device(out);
    if (!trace_rule_parse_path(&at, out)) {
        return false;
    }
    at = trace_rule_skip_blanks(at);
    for (int i = 0; i < (int)(sizeof comparisons / sizeof comparisons[0]); i++) {
        if (strncmp(at, comparisons[i], strlen(comparisons[i])) == 0) {
            out->comparison = i;
            return trace_rule_parse_value(at + strlen(comparisons[i]), out);
        }
    }
    return false;
}

/* Removes a line's comment and the space around it. */
static void trace_rule_trim_line(char *line)
{
    char *comment = strchr(line, '#');
    if (comment) {
        *comment = 0;
    }
    const char *begin = line + strspn(line, " \t\r");
    memmove(line, begin, strlen(begin) + 1);
    for (size_t n = strlen(line); n > 0 && strchr(" \t\r", line[n - 1]); n--) {
        line[n - 1] = 0;
    }
}

/* Explains an invalid line. `parsed`: its syntax is correct. */
static const char *trace_rule_explain_line(const rule *r, bool parsed)
{
    if (strncmp(r->name, "finding.", 8) == 0 && trace_finding_number(r->name + 8) == TRACE_NONE) {
        return "no finding has that name; `heddle trace` prints the name of each finding";
    }
    return parsed ? "the figure does not exist, or has another unit; write a rule such as idle.device < 5 % or "
                    "gap.max < 1 ms"
                  : "write FIGURE < VALUE, such as idle.device < 5 %; units are %, ns, us, ms, s, bytes, KiB, MiB, "
                    "GiB, MB/s and GB/s";
}

/* Checks all lines of a file. Returns the number of rules, or -1 for an invalid line. `out`
 * NULL: only parse. */
static int trace_rule_check_lines(const trace *t, const char *rules, FILE *out, bool *broken, char error[512])
{
    int number = 0, count = 0;
    while (*rules) {
        size_t length = strcspn(rules, "\n");
        char line[256];
        number++;
        snprintf(line, sizeof line, "%.*s", (int)(length < sizeof line ? length : sizeof line - 1), rules);
        rules += length + (rules[length] == '\n');
        trace_rule_trim_line(line);
        if (line[0] == 0) {
            continue;
        }
        rule r = {.device = TRACE_NONE};
        checker c = {.t = t, .r = &r, .line = number, .out = out};
        bool parsed = length < sizeof line && trace_rule_parse(line, &r);
        if (!parsed || !trace_rule_check(&c)) {
            snprintf(error, 512, "line %d is no rule (%.100s); %s", number, line, trace_rule_explain_line(&r, parsed));
            return -1;
        }
        *broken = *broken || c.broken;
        count++;
    }
    return count;
}

int trace_check(const trace *t, const char *rules, FILE *out, char error[512])
{
    bool broken = false;
    int count = trace_rule_check_lines(t, rules, NULL, &broken, error);
    if (count == 0) {
        snprintf(error, 512, "it has no rule; write one in each line, such as idle.device < 5 %%");
    }
    if (count <= 0) {
        return CLI_USAGE;
    }
    broken = false;
    trace_rule_check_lines(t, rules, out, &broken, error);
    if (!broken) {
        fprintf(out, "%d rule%s kept\n", count, count == 1 ? "" : "s");
    }
    return broken ? CLI_FAILED : CLI_OK;
}
