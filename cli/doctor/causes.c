/* causes.c - the table of causes (causes.h): which test results each cause can explain, and which
 * facts exclude or show it.
 *
 * Threads: one at a time. Locks: none.
 */
#include "cli/doctor/causes.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Test results that a cause can explain. */
enum { LOSES = 1, SLOWS = 2, REFUSES = 4, ANY = -1 };

enum { CODE_MAP_FAILED = 205 };

/* An examination of a cause for a pair. */
typedef struct look {
    doctor_case *c;
    int a, b;
    const doctor_fact *by;
    int result; /* LOSES, SLOWS or REFUSES. 0: the pair works. ANY: the pair was not tested */
} look;

static const doctor_fact *doctor_causes_find_fact(const doctor_snapshot *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns the fact, or NULL if it is missing. */
static const doctor_fact *doctor_causes_find_fact(const doctor_snapshot *s, const char *format, ...)
{
    char key[DOCTOR_KEY_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof(key), format, arguments);
    va_end(arguments);
    const doctor_fact *f = doctor_find(s, key);
    return f && f->value ? f : NULL;
}

static bool doctor_cause_fact_is(const doctor_fact *f, const char *value)
{
    return f && strcmp(f->value, value) == 0;
}

static doctor_leave doctor_cause_exclude(look *l, const doctor_fact *by)
{
    l->by = by;
    return DOCTOR_EXCLUDED;
}

/* ---- of a pair ---- */

bool doctor_is_given(doctor_case *c, int a, int b)
{
    const char *read = doctor_maybe(c, "pair.%d.%d.read", a, b), *write = doctor_maybe(c, "pair.%d.%d.write", a, b);
    const char *cuda = read ? doctor_maybe(c, "pair.%d.%d.cuda", a, b) : doctor_look(c, "pair.%d.%d.cuda", a, b);
    bool refused =
        (read && strcmp(read, "ok") != 0) || (write && strcmp(write, "ok") != 0) || (cuda && strcmp(cuda, "no") == 0);
    return (read || cuda) && !refused;
}

/* Returns the fact that shows whether the driver gives access; NULL: no fact does. */
static const doctor_fact *doctor_cause_access_fact(const doctor_snapshot *s, int a, int b)
{
    const doctor_fact *read = doctor_causes_find_fact(s, "pair.%d.%d.read", a, b),
                      *write = doctor_causes_find_fact(s, "pair.%d.%d.write", a, b),
                      *cuda = doctor_causes_find_fact(s, "pair.%d.%d.cuda", a, b);
    return doctor_cause_fact_is(cuda, "no")              ? cuda
           : write && !doctor_cause_fact_is(write, "ok") ? write
           : read                                        ? read
                                                         : cuda;
}

bool doctor_is_nvlink(doctor_case *c, int a, int b)
{
    return doctor_number_maybe(c, 0, "pair.%d.%d.nvlinks", a, b) > 0 ||
           doctor_number_maybe(c, 0, "pair.%d.%d.nvlinks", b, a) > 0 ||
           (doctor_number_maybe(c, 0, "gpu.%d.nvlinks_switch", a) > 0 &&
            doctor_number_maybe(c, 0, "gpu.%d.nvlinks_switch", b) > 0);
}

static const doctor_fact *doctor_cause_nvlink_fact(const doctor_snapshot *s, int a, int b)
{
    const doctor_fact *there = doctor_causes_find_fact(s, "pair.%d.%d.nvlinks", a, b),
                      *back = doctor_causes_find_fact(s, "pair.%d.%d.nvlinks", b, a);
    return there && strtol(there->value, NULL, 10) > 0 ? there
           : back && strtol(back->value, NULL, 10) > 0 ? back
                                                       : doctor_causes_find_fact(s, "gpu.%d.nvlinks_switch", a);
}

static int doctor_cause_result_of(const doctor_fact *verdict)
{
    return doctor_cause_fact_is(verdict, "usable")    ? 0
           : doctor_cause_fact_is(verdict, "slow")    ? SLOWS
           : doctor_cause_fact_is(verdict, "corrupt") ? LOSES
           : doctor_cause_fact_is(verdict, "refused") ? REFUSES
                                                      : ANY;
}

/* Applies the verdict of one pair to the devices. A device that bad pairs share may be to blame. So
 * a bad pair clears all devices outside of it, and a good pair clears its own two devices. */
static void doctor_cause_read_pair(doctor_case *c, int n, int a, int b, const doctor_fact *verdict, doctor_pairs *out)
{
    int result = doctor_cause_result_of(verdict);
    bool works = result == 0 || result == SLOWS;
    out->bad += result == LOSES;
    out->good += works;
    for (int d = 0; d < n && (works || result == LOSES); d++) {
        bool in = d == a || d == b;
        out->clears[d] = out->clears[d] || in != works ? out->clears[d] : verdict;
    }
    if (works && !doctor_is_nvlink(c, a, b)) {
        out->works = out->works ? out->works : verdict;
        out->works_to[b] = out->works_to[b] ? out->works_to[b] : verdict;
    }
    doctor_drop(c, 0);
}

void doctor_pairs_read(const doctor_snapshot *s, doctor_pairs *out)
{
    int n = doctor_gpus(s);
    doctor_case c = {.s = s};
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < n * n; i++) {
        const doctor_fact *verdict =
            i / n == i % n ? NULL : doctor_causes_find_fact(s, "pair.%d.%d.verdict", i / n, i % n);
        if (verdict) {
            doctor_cause_read_pair(&c, n, i / n, i % n, verdict, out);
        }
    }
}

/* ---- the IOMMU and bridges ---- */

bool doctor_translates(const char *type)
{
    return type && strncmp(type, "DMA", 3) == 0;
}

static doctor_leave doctor_cause_leave_iommu(look *l)
{
    bool open = false;
    for (int i = 0; i < 2; i++) {
        int device = i ? l->b : l->a;
        const char *type = doctor_look(l->c, "gpu.%d.iommu", device);
        if (doctor_translates(type)) {
            return DOCTOR_FOUND;
        }
        open |= !type;
        l->by = doctor_causes_find_fact(l->c->s, "gpu.%d.iommu", device);
    }
    return open ? DOCTOR_POSSIBLE : DOCTOR_EXCLUDED;
}

/* Bridges above both devices do not count, since the pair's traffic does not reach them. */
bool doctor_redirects(doctor_case *c, int a, int b)
{
    const char *mine = doctor_maybe(c, "gpu.%d.acs", a);
    int kept = c->n;
    const char *theirs = doctor_maybe(c, "gpu.%d.acs", b);
    doctor_drop(c, kept);
    while (mine && *mine && strcmp(mine, "none") != 0) {
        char bridge[64];
        size_t length = strcspn(mine, "= ");
        snprintf(bridge, sizeof(bridge), "%.*s=", (int)(length < 60 ? length : 60), mine);
        if (!theirs || !strstr(theirs, bridge)) {
            return true;
        }
        mine += strcspn(mine, " ");
        mine += strspn(mine, " ");
    }
    return false;
}

/* Bridges that redirect traffic slow copies down only if one switch connects both devices. Without
 * redirection (ACS), the copies would stay below that switch. */
static doctor_leave doctor_cause_leave_acs(look *l)
{
    const doctor_fact *path = doctor_causes_find_fact(l->c->s, "pair.%d.%d.path", l->a, l->b);
    if (l->result == SLOWS && !doctor_cause_fact_is(path, "same switch")) {
        return doctor_cause_exclude(l, path);
    }
    if (doctor_redirects(l->c, l->a, l->b) || doctor_redirects(l->c, l->b, l->a)) {
        return DOCTOR_FOUND;
    }
    bool known = doctor_look(l->c, "gpu.%d.acs", l->a) && doctor_look(l->c, "gpu.%d.acs", l->b);
    return known ? doctor_cause_exclude(l, doctor_causes_find_fact(l->c->s, "gpu.%d.acs", l->a)) : DOCTOR_POSSIBLE;
}

static doctor_leave doctor_cause_leave_guest(look *l)
{
    const doctor_snapshot *s = l->c->s;
    const doctor_fact *wsl = doctor_causes_find_fact(s, "system.wsl"),
                      *a = doctor_causes_find_fact(s, "gpu.%d.virtualization", l->a),
                      *b = doctor_causes_find_fact(s, "gpu.%d.virtualization", l->b);
    if (doctor_cause_fact_is(wsl, "yes")) {
        return doctor_cause_exclude(l, wsl);
    }
    const char *guest = doctor_look(l->c, "system.hypervisor");
    if (doctor_cause_fact_is(a, "passthrough") || doctor_cause_fact_is(b, "passthrough") ||
        (guest && strcmp(guest, "yes") == 0)) {
        return DOCTOR_FOUND;
    }
    return guest ? doctor_cause_exclude(l, doctor_causes_find_fact(s, "system.hypervisor")) : DOCTOR_POSSIBLE;
}

/* ---- the window ---- */

/* Returns 1 if the window is smaller than the memory, 0 if it is not, and -1 if this is unknown. */
static int doctor_cause_window_is_small(doctor_case *c, int device)
{
    long long window = doctor_number(c, 0, "gpu.%d.window_mib", device);
    long long memory = doctor_number(c, 0, "gpu.%d.memory_mib", device);
    return window <= 0 || memory <= 0 ? -1 : window < memory;
}

/* If a mapping failed for lack of room, other pairs may have taken the room in the window. Then the
 * window is still a possible cause. Otherwise a working pair with the same owner shows that the
 * window does not matter. */
static doctor_leave doctor_cause_leave_window(look *l)
{
    int small = doctor_cause_window_is_small(l->c, l->b);
    if (small == 0) {
        return doctor_cause_exclude(l, doctor_causes_find_fact(l->c->s, "gpu.%d.window_mib", l->b));
    }
    if (small < 0) {
        return DOCTOR_POSSIBLE;
    }
    if (doctor_number_maybe(l->c, 0, "pair.%d.%d.code", l->a, l->b) == CODE_MAP_FAILED) {
        return DOCTOR_FOUND;
    }
    if (l->c->pairs->works_to[l->b]) {
        return doctor_cause_exclude(l, l->c->pairs->works_to[l->b]);
    }
    if (l->result == ANY && doctor_is_given(l->c, l->a, l->b)) {
        doctor_look(l->c, "pair.%d.%d.code", l->a, l->b);
    }
    return l->result == LOSES ? DOCTOR_FOUND : DOCTOR_POSSIBLE;
}

bool doctor_maps_all(const char *keys)
{
    const char *at = keys ? strstr(keys, "StaticBar1=") : NULL;
    return at && strtol(at + strlen("StaticBar1="), NULL, 0) != 0;
}

/* GeForce cards get peer access only from a patched driver, which maps the owner's memory into its
 * window. If that window is large enough and facts exclude all other causes, the driver does not
 * map the memory. A working pair shows that the driver maps it. */
static doctor_leave doctor_cause_leave_static(look *l)
{
    static const doctor_cause others[] = {DOCTOR_IOMMU, DOCTOR_ACS, DOCTOR_GUEST, DOCTOR_WINDOW, DOCTOR_KEYS};
    const doctor_snapshot *s = l->c->s;
    const doctor_fact *kind = doctor_causes_find_fact(s, "driver.kind"),
                      *keys = doctor_causes_find_fact(s, "driver.registry"),
                      *name = doctor_causes_find_fact(s, "gpu.%d.name", l->b), *works = l->c->pairs->works, *by;
    const doctor_fact *wsl = doctor_causes_find_fact(s, "system.wsl");
    if (doctor_cause_fact_is(wsl, "yes")) {
        return doctor_cause_exclude(l, wsl);
    }
    if (kind && !doctor_cause_fact_is(kind, "open")) {
        return doctor_cause_exclude(l, kind);
    }
    if (name && !strstr(name->value, "GeForce")) {
        return doctor_cause_exclude(l, name);
    }
    if (keys && doctor_maps_all(keys->value)) {
        return doctor_cause_exclude(l, keys);
    }
    if (works) {
        return doctor_cause_exclude(l, works);
    }
    if (doctor_cause_window_is_small(l->c, l->b) == 1) {
        return doctor_cause_exclude(l, doctor_causes_find_fact(s, "gpu.%d.window_mib", l->b));
    }
    bool left = l->result == LOSES && kind && keys && name && doctor_cause_window_is_small(l->c, l->b) == 0;
    for (size_t i = 0; left && i < sizeof(others) / sizeof(others[0]); i++) {
        left = doctor_leaves(l->c, others[i], l->a, l->b, &by) == DOCTOR_EXCLUDED &&
               doctor_leaves(l->c, others[i], l->b, l->a, &by) == DOCTOR_EXCLUDED;
    }
    return left ? DOCTOR_FOUND : DOCTOR_POSSIBLE;
}

/* If NVML names another reason, no registry key is the cause. */
static doctor_leave doctor_cause_leave_keys(look *l)
{
    static const char *const named[] = {"chipset not supported", "GPU not supported", "topology not supported"};
    const doctor_fact *read = doctor_causes_find_fact(l->c->s, "pair.%d.%d.read", l->a, l->b);
    const char *keys = doctor_look(l->c, "driver.registry");
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
        if (doctor_cause_fact_is(read, named[i])) {
            return doctor_cause_exclude(l, read);
        }
    }
    return !keys                       ? DOCTOR_POSSIBLE
           : strcmp(keys, "none") == 0 ? doctor_cause_exclude(l, doctor_causes_find_fact(l->c->s, "driver.registry"))
                                       : DOCTOR_FOUND;
}

/* ---- a device that bad pairs share ---- */

bool doctor_is_culprit(const doctor_case *c, int device)
{
    return c->pairs->bad > 0 && c->pairs->good > 0 && !c->pairs->clears[device];
}

bool doctor_has_display(doctor_case *c, int device)
{
    return doctor_is(c, "yes", "gpu.%d.display", device) ||
           doctor_number_maybe(c, 0, "gpu.%d.graphics_processes", device) > 0;
}

static doctor_leave doctor_cause_leave_display(look *l)
{
    doctor_leave leave = DOCTOR_EXCLUDED;
    for (int i = 0; i < 2; i++) {
        int device = i ? l->b : l->a;
        const doctor_fact *clear = l->c->pairs->clears[device];
        if (!doctor_has_display(l->c, device)) {
            const doctor_fact *display = doctor_causes_find_fact(l->c->s, "gpu.%d.display", device);
            leave = display || leave == DOCTOR_FOUND ? leave : DOCTOR_POSSIBLE;
            l->by = l->by ? l->by : display;
        } else if (clear) {
            l->by = clear;
        } else if (doctor_is_culprit(l->c, device)) {
            leave = DOCTOR_FOUND;
        } else {
            leave = leave == DOCTOR_FOUND ? leave : DOCTOR_POSSIBLE;
        }
    }
    return leave;
}

static doctor_leave doctor_cause_leave_device(look *l)
{
    for (int i = 0; i < 2; i++) {
        int device = i ? l->b : l->a;
        if (doctor_is_culprit(l->c, device) && !doctor_has_display(l->c, device)) {
            return DOCTOR_FOUND;
        }
    }
    return DOCTOR_EXCLUDED;
}

/* ---- refusals ---- */

static doctor_leave doctor_cause_leave_nvlink(look *l)
{
    static const char *const others[] = {"system.wsl", "confidential.on"};
    const doctor_snapshot *s = l->c->s;
    if (!doctor_is_nvlink(l->c, l->a, l->b)) {
        return doctor_cause_exclude(l, doctor_causes_find_fact(s, "gpu.%d.nvlinks", l->a));
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (doctor_cause_fact_is(doctor_causes_find_fact(s, "%s", others[i]), "yes")) {
            return doctor_cause_exclude(l, doctor_causes_find_fact(s, "%s", others[i]));
        }
    }
    for (int i = 0; i < 2; i++) {
        const doctor_fact *mig = doctor_causes_find_fact(s, "gpu.%d.mig", i ? l->b : l->a);
        if (doctor_cause_fact_is(mig, "yes")) {
            return doctor_cause_exclude(l, mig);
        }
    }
    return l->result == ANY && doctor_is_given(l->c, l->a, l->b) ? DOCTOR_POSSIBLE : DOCTOR_FOUND;
}

static doctor_leave doctor_cause_leave_refusal(look *l)
{
    (void)l;
    return DOCTOR_FOUND;
}

/* ---- all ---- */

static const struct {
    const char *id, *name, *fix;
    int results; /* test results that the cause can explain */
    bool bus;    /* the cause concerns only pairs over PCIe, not pairs that NVLink connects */
    bool owner;  /* a finding about a device concerns only the pairs that use its memory */
    doctor_leave (*leave)(look *l);
} causes[DOCTOR_CAUSES] = {
    [DOCTOR_IOMMU] = {"iommu", "the IOMMU", "start the kernel with iommu=pt", LOSES, true, false,
                      doctor_cause_leave_iommu},
    [DOCTOR_IOMMU_SLOW] = {"iommu", "the IOMMU", "start the kernel with iommu=pt", SLOWS, true, false,
                           doctor_cause_leave_iommu},
    [DOCTOR_ACS] = {"acs", "bridges (ACS)", "turn ACS off at the bridges: setpci -s BRIDGE ECAP_ACS+0x6.w=0",
                    LOSES | SLOWS, true, false, doctor_cause_leave_acs},
    [DOCTOR_GUEST] = {"guest", "a virtual machine",
                      "use no virtual machine, or have its host pass the devices through as one clique", LOSES, true,
                      false, doctor_cause_leave_guest},
    [DOCTOR_WINDOW] = {"window", "a small memory window (BAR1)",
                       "turn on \"above 4G decoding\" and resizable BAR in the firmware", LOSES | REFUSES, true, true,
                       doctor_cause_leave_window},
    [DOCTOR_STATIC] = {"static", "missing mappings of the window",
                       "set NVreg_RegistryDwords=\"RMForceStaticBar1=1;PeerMappingOverride=1\" for the module nvidia "
                       "in /etc/modprobe.d, then load the module again",
                       LOSES, true, true, doctor_cause_leave_static},
    [DOCTOR_KEYS] = {"keys", "registry keys of the driver",
                     "remove the keys from NVreg_RegistryDwords in /etc/modprobe.d, and load the module nvidia again",
                     LOSES | REFUSES, true, false, doctor_cause_leave_keys},
    [DOCTOR_DISPLAY] = {"display", "a device with a display", "connect the display to a device that has no peers",
                        LOSES, true, false, doctor_cause_leave_display},
    [DOCTOR_DEVICE] =
        {"device", "a device that bad pairs share",
         "put another card into the slot of the card that all these pairs share, to see whether the slot or the card "
         "is bad",
         LOSES, false, false, doctor_cause_leave_device},
    [DOCTOR_NVLINK] =
        {"nvlink", "NVLink",
         "nvidia-smi nvlink -s and -e show the links and their errors; reset the devices, and reseat the bridge",
         LOSES | REFUSES, false, false, doctor_cause_leave_nvlink},
    [DOCTOR_ROUTE] = {"route", "the path over PCIe", "", REFUSES, true, false, doctor_cause_leave_refusal},
    [DOCTOR_REFUSAL] = {"refusal", "the driver", "", REFUSES, false, false, doctor_cause_leave_refusal},
};

const char *doctor_cause_id(doctor_cause cause)
{
    return causes[cause].id;
}

const char *doctor_cause_name(doctor_cause cause)
{
    return causes[cause].name;
}

const char *doctor_cause_fix(doctor_cause cause)
{
    return causes[cause].fix;
}

/* Excludes a cause if the test of the pair contradicts it. If the pair was not tested, the access
 * that the driver reports decides. DOCTOR_FOUND: neither excludes the cause. */
static doctor_leave doctor_cause_leave_result(look *l, int results)
{
    const doctor_snapshot *s = l->c->s;
    const doctor_fact *verdict = doctor_causes_find_fact(s, "pair.%d.%d.verdict", l->a, l->b);
    l->result = verdict ? doctor_cause_result_of(verdict) : ANY;
    if (l->result != ANY) {
        return l->result & results ? DOCTOR_FOUND : doctor_cause_exclude(l, verdict);
    }
    if (results & REFUSES && results != REFUSES) {
        return DOCTOR_FOUND;
    }
    const doctor_fact *access = doctor_cause_access_fact(s, l->a, l->b);
    bool given = results == REFUSES ? access && doctor_is_given(l->c, l->a, l->b) : doctor_is_given(l->c, l->a, l->b);
    if (!access) {
        return results == REFUSES ? DOCTOR_FOUND : DOCTOR_POSSIBLE;
    }
    return given == (results != REFUSES) ? DOCTOR_FOUND : doctor_cause_exclude(l, access);
}

doctor_leave doctor_leaves(doctor_case *c, doctor_cause cause, int a, int b, const doctor_fact **by)
{
    look l = {.c = c, .a = a, .b = b};
    int before = c->n;
    const doctor_fact *provider = doctor_causes_find_fact(c->s, "driver.provider");
    doctor_leave leave = doctor_cause_leave_result(&l, causes[cause].results);
    if (leave == DOCTOR_FOUND) {
        if (doctor_cause_fact_is(provider, "host") && cause != DOCTOR_REFUSAL) {
            /* host devices are on no bus */
            leave = doctor_cause_exclude(&l, provider);
        } else if (causes[cause].bus && doctor_is_nvlink(c, a, b)) {
            leave = doctor_cause_exclude(&l, doctor_cause_nvlink_fact(c->s, a, b));
        } else {
            leave = causes[cause].leave(&l);
        }
    }
    doctor_drop(c, before);
    *by = leave == DOCTOR_EXCLUDED ? l.by : NULL;
    return leave;
}

bool doctor_is_blamed(doctor_case *c, doctor_cause cause)
{
    int n = doctor_gpus(c->s);
    const doctor_fact *by;
    bool found = n < 2 && c->a < 0;
    if (c->b >= 0) {
        return doctor_leaves(c, cause, c->a, c->b, &by) == DOCTOR_FOUND;
    }
    for (int i = 0; i < n * n && !found; i++) {
        int a = i / n, b = i % n;
        bool mine = c->a < 0 || b == c->a || (a == c->a && !causes[cause].owner);
        found = a != b && mine && doctor_leaves(c, cause, a, b, &by) == DOCTOR_FOUND;
    }
    return found;
}
