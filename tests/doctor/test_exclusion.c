/* test_exclusion.c - findings on random snapshots, with tests of pairs and facts in any
 * combination.
 *
 * This file defines the allowed findings again, in the words of the report alone, and shares
 * nothing with the table of causes.
 * Promise: Findings and fixes blame nothing that verified facts exclude; other causes are named.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/json_read.h"
#include "cli/doctor/findings.h"
#include "cli/doctor/report.h"

enum { MACHINES = 6000, MOST = 5 };

static uint64_t state;

static unsigned pick(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

/* Puts one of the words into the snapshot; "" leaves the fact out. */
static void put_one(doctor_snapshot *s, const char *const *words, unsigned n, const char *format, ...)
{
    char key[DOCTOR_KEY_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    const char *word = words[pick(n)];
    if (word[0]) {
        doctor_put(s, word, "%s", key);
    }
}

#define ONE_OF(s, key, ...)                                                                                            \
    put_one(s, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), key)
#define ONE_OF_DEVICE(s, key, i, ...)                                                                                  \
    put_one(s, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), key, i)
#define ONE_OF_PAIR(s, key, a, b, ...)                                                                                 \
    put_one(s, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), key,   \
            a, b)

static void put_device(doctor_snapshot *s, int i)
{
    ONE_OF_DEVICE(s, "gpu.%d.iommu", i, "identity", "off", "DMA", "DMA-FQ", "");
    ONE_OF_DEVICE(s, "gpu.%d.acs", i, "none", "none", "0000:17:01.0=0x001d", "0000:19:01.0=0x001d", "");
    ONE_OF_DEVICE(s, "gpu.%d.virtualization", i, "none", "none", "passthrough", "");
    ONE_OF_DEVICE(s, "gpu.%d.name", i, "NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 5090", "NVIDIA A100", "");
    ONE_OF_DEVICE(s, "gpu.%d.window_mib", i, "32768", "32768", "256", "");
    ONE_OF_DEVICE(s, "gpu.%d.memory_mib", i, "24576", "24576", "");
    ONE_OF_DEVICE(s, "gpu.%d.display", i, "no", "no", "yes", "");
    ONE_OF_DEVICE(s, "gpu.%d.graphics_processes", i, "0", "0", "2", "");
    ONE_OF_DEVICE(s, "gpu.%d.nvlinks_switch", i, "0", "0", "0", "18", "");
    ONE_OF_DEVICE(s, "gpu.%d.mig", i, "no", "no", "no", "yes", "");
}

static void put_pair(doctor_snapshot *s, int a, int b, const char *verdict)
{
    if (verdict[0]) {
        doctor_put(s, verdict, "pair.%d.%d.verdict", a, b);
    }
    ONE_OF_PAIR(s, "pair.%d.%d.cuda", a, b, "yes", "yes", "no", "");
    ONE_OF_PAIR(s, "pair.%d.%d.read", a, b, "ok", "ok", "chipset not supported", "unknown", "disabled by registry key",
                "");
    ONE_OF_PAIR(s, "pair.%d.%d.write", a, b, "ok", "ok", "");
    ONE_OF_PAIR(s, "pair.%d.%d.nvlinks", a, b, "", "", "", "", "4");
    ONE_OF_PAIR(s, "pair.%d.%d.code", a, b, "0", "0", "205", "217", "");
    ONE_OF_PAIR(s, "pair.%d.%d.path", a, b, "same switch", "same root complex", "");
}

/* On some machines all pairs work, on some all but one device's pairs, and on others pairs are
 * random. */
static void put_machine(doctor_snapshot *s)
{
    static const char *const any[] = {"usable", "usable", "slow", "corrupt", "corrupt", "refused", "inconclusive", ""};
    int n = 2 + (int)pick(MOST - 1), kind = (int)pick(4), culprit = (int)pick((unsigned)n);
    doctor_put_number(s, n, "gpus");
    ONE_OF(s, "system.hypervisor", "no", "no", "yes", "");
    ONE_OF(s, "system.wsl", "no", "no", "no", "yes", "");
    ONE_OF(s, "driver.kind", "open", "open", "proprietary", "");
    ONE_OF(s, "driver.registry", "none", "none", "ForceP2P=17", "RMForceStaticBar1=1;PeerMappingOverride=1", "");
    ONE_OF(s, "confidential.on", "no", "no", "no", "yes", "");
    ONE_OF(s, "confidential.multi_gpu", "none", "protected", "");
    ONE_OF(s, "module.nvidia", "yes", "");
    for (int a = 0; a < n; a++) {
        put_device(s, a);
        for (int b = 0; b < n; b++) {
            bool bad = kind == 2 || a == culprit || b == culprit;
            if (a != b) {
                put_pair(s, a, b, kind == 0 ? "usable" : kind == 3 ? any[pick(8)] : bad ? "corrupt" : "usable");
            }
        }
    }
}

/* ---- allowed findings ---- */

static const char *value(const doctor_snapshot *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns "" for a missing fact. */
static const char *value(const doctor_snapshot *s, const char *format, ...)
{
    char key[DOCTOR_KEY_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    const doctor_fact *f = doctor_find(s, key);
    return f && f->value ? f->value : "";
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static const char *verdict(const doctor_snapshot *s, int a, int b)
{
    return value(s, "pair.%d.%d.verdict", a, b);
}

static bool is_linked(const doctor_snapshot *s, int a, int b)
{
    return is(value(s, "pair.%d.%d.nvlinks", a, b), "4") || is(value(s, "pair.%d.%d.nvlinks", b, a), "4") ||
           (is(value(s, "gpu.%d.nvlinks_switch", a), "18") && is(value(s, "gpu.%d.nvlinks_switch", b), "18"));
}

static bool is_shown_to_work(const doctor_snapshot *s, int a, int b)
{
    return is(verdict(s, a, b), "usable") || is(verdict(s, a, b), "slow");
}

/* True if, by all known facts, the pair can lose bytes over PCIe. */
static bool can_lose(const doctor_snapshot *s, int a, int b)
{
    return !is_linked(s, a, b) && !is_shown_to_work(s, a, b) && !is(verdict(s, a, b), "refused");
}

static bool some_peer(const doctor_snapshot *s, int a, bool (*is_so)(const doctor_snapshot *, int, int))
{
    for (int b = 0; b < doctor_gpus(s); b++) {
        if (b != a && (is_so(s, a, b) || is_so(s, b, a))) {
            return true;
        }
    }
    return false;
}

static bool translates(const doctor_snapshot *s, int i)
{
    return strncmp(value(s, "gpu.%d.iommu", i), "DMA", 3) == 0;
}

static bool has_small_window(const doctor_snapshot *s, int i)
{
    return is(value(s, "gpu.%d.window_mib", i), "256");
}

static bool draws(const doctor_snapshot *s, int i)
{
    return is(value(s, "gpu.%d.display", i), "yes") || is(value(s, "gpu.%d.graphics_processes", i), "2");
}

static bool may_redirect(const doctor_snapshot *s, int a, int b)
{
    return is(verdict(s, a, b), "slow") || can_lose(s, a, b);
}

/* A working pair over PCIe shows that its owner's window does not matter, unless mapping there
 * failed for another pair. */
static bool uses_window(const doctor_snapshot *s, int owner)
{
    bool bad = false, full = false, works = false;
    for (int b = 0; b < doctor_gpus(s); b++) {
        if (b != owner && !is_linked(s, b, owner)) {
            bad |= !is_shown_to_work(s, b, owner);
            full |= !is_shown_to_work(s, b, owner) && is(value(s, "pair.%d.%d.code", b, owner), "205");
            works |= is_shown_to_work(s, b, owner);
        }
    }
    return works ? full : bad;
}

static bool some_pair_works(const doctor_snapshot *s)
{
    bool works = false;
    for (int a = 0; a < doctor_gpus(s); a++) {
        for (int b = 0; b < doctor_gpus(s); b++) {
            works |= a != b && is_shown_to_work(s, a, b) && !is_linked(s, a, b);
        }
    }
    return works;
}

/* True if all pairs that lose bytes include the device, and no working pair does. */
static bool is_in_bad_ones_only(const doctor_snapshot *s, int device)
{
    bool others_work = false;
    for (int a = 0; a < doctor_gpus(s); a++) {
        for (int b = 0; b < doctor_gpus(s); b++) {
            bool in = a == device || b == device;
            if (a != b && ((in && is_shown_to_work(s, a, b)) || (!in && is(verdict(s, a, b), "corrupt")))) {
                return false;
            }
            others_work |= a != b && !in && is_shown_to_work(s, a, b);
        }
    }
    return others_work;
}

/* True if this device or pair may get the finding. Ids that are missing here blame nothing. */
static bool may_be(const doctor_snapshot *s, const char *id, int a, int b)
{
    if (is(id, "iommu")) {
        return translates(s, a) && some_peer(s, a, can_lose);
    }
    if (is(id, "acs")) {
        return !is(value(s, "gpu.%d.acs", a), "none") && some_peer(s, a, may_redirect);
    }
    if (is(id, "vm-peers")) {
        return (is(value(s, "system.hypervisor"), "yes") || is(value(s, "gpu.%d.virtualization", a), "passthrough")) &&
               some_peer(s, a, can_lose);
    }
    if (is(id, "window-small")) {
        return has_small_window(s, a) && uses_window(s, a);
    }
    if (is(id, "static-mapping")) {
        return !some_pair_works(s) && is(verdict(s, a, b), "corrupt") && is(value(s, "driver.registry"), "none") &&
               !translates(s, a) && !translates(s, b) && is(value(s, "gpu.%d.acs", a), value(s, "gpu.%d.acs", b)) &&
               value(s, "gpu.%d.acs", a)[0] && is(value(s, "system.hypervisor"), "no") && !has_small_window(s, b) &&
               !is_linked(s, a, b);
    }
    if (is(id, "display-peers") || is(id, "device-peers")) {
        return is_in_bad_ones_only(s, a) && draws(s, a) == is(id, "display-peers");
    }
    if (is(id, "registry")) {
        return !is(value(s, "driver.registry"), "none") && !is_shown_to_work(s, a, b) && !is_linked(s, a, b);
    }
    if (is(id, "nvlink-refused")) {
        return is_linked(s, a, b) && !is_shown_to_work(s, a, b);
    }
    if (is(id, "refused-chipset") || is(id, "refused-other") || is(id, "refused-topology")) {
        return !is_linked(s, a, b) && !is_shown_to_work(s, a, b) && !is(verdict(s, a, b), "corrupt");
    }
    return !(is(id, "refused-registry") || is(id, "refused-kind") || is(id, "pair-corrupt")) ||
           !is_shown_to_work(s, a, b);
}

/* True if the fix may contain these words for the pair. */
static bool may_advise(const doctor_snapshot *s, const char *words, int a, int b)
{
    bool slow = is(verdict(s, a, b), "slow");
    if (is(words, "iommu=pt")) {
        const char *x = value(s, "gpu.%d.iommu", a), *y = value(s, "gpu.%d.iommu", b);
        return !is_linked(s, a, b) && (!x[0] || !y[0] || translates(s, a) || translates(s, b));
    }
    if (is(words, "setpci")) {
        bool none = is(value(s, "gpu.%d.acs", a), "none") && is(value(s, "gpu.%d.acs", b), "none");
        return !none && !is_linked(s, a, b) && !(slow && !is(value(s, "pair.%d.%d.path", a, b), "same switch"));
    }
    if (is(words, "use no virtual machine")) {
        return !is_linked(s, a, b) &&
               (!is(value(s, "system.hypervisor"), "no") || is(value(s, "gpu.%d.virtualization", a), "passthrough") ||
                is(value(s, "gpu.%d.virtualization", b), "passthrough"));
    }
    if (is(words, "resizable BAR")) {
        bool large = is(value(s, "gpu.%d.window_mib", b), "32768") && is(value(s, "gpu.%d.memory_mib", b), "24576");
        return !large && !is_linked(s, a, b);
    }
    if (is(words, "RMForceStaticBar1=1;P")) {
        return !some_pair_works(s) && !strstr(value(s, "driver.registry"), "StaticBar1=1") &&
               !is(value(s, "driver.kind"), "proprietary") && !is_linked(s, a, b);
    }
    if (is(words, "remove the keys from NVreg")) {
        return !is(value(s, "driver.registry"), "none") && !is_linked(s, a, b);
    }
    if (is(words, "connect the display to a device that")) {
        return draws(s, a) || draws(s, b) || !value(s, "gpu.%d.display", a)[0] || !value(s, "gpu.%d.display", b)[0];
    }
    return is_linked(s, a, b); /* "nvidia-smi nvlink" */
}

static void check_subjects(const doctor_snapshot *s, const doctor_finding *f)
{
    for (size_t i = 0; i < f->n_subjects && f->rule->scope != DOCTOR_MACHINE; i++) {
        if (!may_be(s, f->rule->id, f->subjects[i].a, f->subjects[i].b)) {
            doctor_write(s, stderr);
            fail_msg("%s is found for %d, %d", f->rule->id, f->subjects[i].a, f->subjects[i].b);
        }
    }
}

/* Each remedy in the fix must apply to a pair of the finding. `fix` is the report's text. */
static void check_fix(const doctor_snapshot *s, const doctor_finding *f, const char *fix)
{
    static const char *const remedies[] = {"iommu=pt",
                                           "setpci",
                                           "use no virtual machine",
                                           "resizable BAR",
                                           "RMForceStaticBar1=1;P",
                                           "remove the keys from NVreg",
                                           "connect the display to a device that",
                                           "nvidia-smi nvlink"};
    bool any = strstr(fix, "exclude all of the usual causes") || strstr(fix, "card that all these pairs share");
    for (size_t k = 0; k < sizeof remedies / sizeof remedies[0]; k++) {
        bool there = strstr(fix, remedies[k]), may = false;
        for (size_t i = 0; i < f->n_subjects && there; i++) {
            may |= may_advise(s, remedies[k], f->subjects[i].a, f->subjects[i].b);
        }
        if (there && !may) {
            doctor_write(s, stderr);
            fail_msg("%s advises \"%s\": %s", f->rule->id, remedies[k], fix);
        }
        any |= there;
    }
    if (!any) {
        fail_msg("%s advises nothing: %s", f->rule->id, fix);
    }
}

static void check_fixes(const doctor_snapshot *s, const doctor_findings *found)
{
    char *text = NULL;
    size_t length;
    hdi_json_tree tree;
    FILE *file = open_memstream(&text, &length);
    doctor_print_json(s, found, file);
    fclose(file);
    assert_true(hdi_json_read(text, length, &tree));
    const hdi_json_value *one = hdi_json_member(tree.root, "findings")->first;
    for (int i = 0; i < found->n; i++, one = one->next) {
        if (found->list[i].rule->suspects) {
            check_fix(s, &found->list[i], hdi_json_member(one, "fix")->text);
        }
    }
    hdi_json_release(&tree);
    free(text);
}

static bool has_suspects(const doctor_findings *found)
{
    bool has = false;
    for (int i = 0; i < found->n; i++) {
        has |= found->list[i].rule->suspects != 0;
    }
    return has;
}

static bool has_finding(const doctor_findings *f, const char *id)
{
    for (int i = 0; i < f->n; i++) {
        if (is(f->list[i].rule->id, id)) {
            return true;
        }
    }
    return false;
}

/* Bad pairs are found, and if all pairs work, no warning is about peers. */
static void check_machine(const doctor_snapshot *s, const doctor_findings *found)
{
    bool corrupt = false, all_work = true;
    for (int a = 0; a < doctor_gpus(s); a++) {
        for (int b = 0; b < doctor_gpus(s); b++) {
            corrupt |= a != b && is(verdict(s, a, b), "corrupt");
            all_work &= a == b || is(verdict(s, a, b), "usable");
        }
    }
    assert_int_equal(has_finding(found, "pair-corrupt"), corrupt);
    for (int i = 0; i < found->n && all_work; i++) {
        const doctor_rule *rule = found->list[i].rule;
        static const char *const others[] = {"window-sisters",
                                             /* reports of NVML and the bus are facts, too */
                                             "one-way"};
        if (is(rule->area, "peers") && rule->severity != DOCTOR_NOTE && !is(rule->id, others[0]) &&
            !is(rule->id, others[1])) {
            doctor_write(s, stderr);
            fail_msg("all pairs work, and %s is found", rule->id);
        }
    }
    assert_false(all_work && has_finding(found, "confidential"));
}

static void nothing_is_blamed_that_facts_exclude(void **unused)
{
    (void)unused;
    int found_any = 0;
    for (int i = 0; i < MACHINES; i++) {
        doctor_snapshot s = {0};
        doctor_findings found;
        state = (uint64_t)i + 1;
        pick(1);
        put_machine(&s);
        doctor_judge(&s, &found);
        for (int k = 0; k < found.n; k++) {
            check_subjects(&s, &found.list[k]);
        }
        if (has_suspects(&found)) {
            check_fixes(&s, &found);
        }
        check_machine(&s, &found);
        found_any += found.n;
        doctor_findings_release(&found);
        doctor_release(&s);
    }
    assert_true(found_any > MACHINES);
}

/* ---- remaining causes: on an otherwise healthy machine, one cause is planted, and a pair loses
 * bytes ---- */

static const struct {
    const char *key, *value, *id;
} planted[] = {
    {"gpu.0.iommu", "DMA", "iommu"},
    {"gpu.1.acs", "0000:17:01.0=0x001d", "acs"},
    {"system.hypervisor", "yes", "vm-peers"},
    {"gpu.1.window_mib", "256", "window-small"},
    {"driver.registry", "ForceP2P=17", "registry"},
};
enum { PLANTED = sizeof planted / sizeof planted[0] };

static void put_bare(doctor_snapshot *s)
{
    doctor_put(s, "2", "gpus");
    doctor_put(s, "no", "system.hypervisor");
    doctor_put(s, "none", "driver.registry");
    doctor_put(s, "open", "driver.kind");
    for (int a = 0; a < 2; a++) {
        doctor_put(s, "identity", "gpu.%d.iommu", a);
        doctor_put(s, "none", "gpu.%d.acs", a);
        doctor_put(s, "32768", "gpu.%d.window_mib", a);
        doctor_put(s, "24576", "gpu.%d.memory_mib", a);
        doctor_put(s, "NVIDIA GeForce RTX 5090", "gpu.%d.name", a);
        doctor_put(s, "no", "gpu.%d.display", a);
        doctor_put(s, "yes", "pair.%d.%d.cuda", a, !a);
        doctor_put(s, "corrupt", "pair.%d.%d.verdict", a, !a);
    }
}

/* For any set of causes, exactly these are found; for an empty set, the mapping. */
static void what_is_left_over_is_found(void **unused)
{
    (void)unused;
    for (unsigned set = 0; set < 1u << PLANTED; set++) {
        doctor_snapshot s = {0};
        doctor_findings found;
        for (int i = 0; i < PLANTED; i++) {
            if (set >> i & 1) {
                doctor_put(&s, planted[i].value, "%s", planted[i].key);
            }
        }
        put_bare(&s);
        doctor_judge(&s, &found);
        for (int i = 0; i < PLANTED; i++) {
            if (has_finding(&found, planted[i].id) != (bool)(set >> i & 1)) {
                fail_msg("set %u: %s is %sfound", set, planted[i].id, set >> i & 1 ? "not " : "");
            }
        }
        assert_int_equal(has_finding(&found, "static-mapping"), set == 0);
        doctor_findings_release(&found);
        doctor_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_blamed_that_facts_exclude),
        cmocka_unit_test(what_is_left_over_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
