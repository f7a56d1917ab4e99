/* environment.c - facts about environment variables that matter to the doctor.
 *
 * Threads: one at a time. Locks: none.
 * Always: only known values of the listed variables become facts. Other values may be a name, a
 * path or a secret.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/options.h"
#include "cli/doctor/collect.h"

/* Stands in place of an unknown value of a variable. */
#define OTHER "(another value)"

enum value_kind { VALUE_NUMBER, VALUE_WORD, VALUE_DEVICES };

/* The words that a variable may contain, besides a number. */
static const struct {
    const char *name;
    enum value_kind kind;
    const char *words; /* each between spaces */
} variables[] = {
    {"CUDA_DEVICE_MAX_CONNECTIONS", VALUE_NUMBER, ""},
    {"CUDA_DEVICE_ORDER", VALUE_WORD, " PCI_BUS_ID FASTEST_FIRST "},
    {"CUDA_LAUNCH_BLOCKING", VALUE_NUMBER, ""},
    {"CUDA_MODULE_LOADING", VALUE_WORD, " LAZY EAGER DEFAULT "},
    {"CUDA_VISIBLE_DEVICES", VALUE_DEVICES, " NoDevFiles "},
    {"HEDDLE_DRIVER", VALUE_WORD, " auto nvidia host "},
    {"HEDDLE_PEERS", VALUE_WORD, " verify trust off "},
    {"HEDDLE_PLACEMENT", VALUE_WORD, " inline thread process "},
    {"NCCL_P2P_DISABLE", VALUE_NUMBER, ""},
    {"NCCL_P2P_LEVEL", VALUE_WORD, " LOC NVL PIX PXB PXN PHB SYS "},
    {"NCCL_SHM_DISABLE", VALUE_NUMBER, ""},
};

/* True for a short whole number, which every variable may be. */
static bool doctor_environment_is_number(const char *text, size_t length)
{
    size_t sign = length > 1 && (text[0] == '-' || text[0] == '+');
    return length > sign && length <= 10 && strspn(text + sign, "0123456789") >= length - sign;
}

static bool doctor_environment_is_word(const char *words, const char *text, size_t length)
{
    char word[64];
    if (length == 0 || length > sizeof(word) - 3 || memchr(text, ' ', length)) {
        return false;
    }
    snprintf(word, sizeof(word), " %.*s ", (int)length, text);
    return strstr(words, word);
}

/* True for "GPU-" or "MIG-" with a whole UUID, which the snapshot replaces by a hash. CUDA also
 * accepts the beginning of a UUID. A hash would not hide a short beginning, since a reader could
 * try all beginnings. */
static bool doctor_environment_is_whole_uuid(const char *text, size_t length)
{
    enum { PREFIX = 4 };
    return length == PREFIX + DOCTOR_UUID_BYTES &&
           (strncmp(text, "GPU-", PREFIX) == 0 || strncmp(text, "MIG-", PREFIX) == 0) && doctor_is_uuid(text + PREFIX);
}

/* Cleans a list with commas: keeps its numbers, the words in `words` and whole UUIDs, and replaces
 * all other entries. */
static void doctor_environment_clean_devices(const char *list, const char *words, char out[DOCTOR_VALUE_BYTES])
{
    size_t used = 0;
    out[0] = 0;
    for (const char *at = list; *list && used + 64 < DOCTOR_VALUE_BYTES;) {
        size_t length = strcspn(at, ",");
        bool keep = length == 0 || doctor_environment_is_number(at, length) ||
                    doctor_environment_is_whole_uuid(at, length) || doctor_environment_is_word(words, at, length);
        const char *other = strncmp(at, "GPU-", 4) == 0   ? "GPU-(a part)"
                            : strncmp(at, "MIG-", 4) == 0 ? "MIG-(a part)"
                                                          : OTHER;
        used += (size_t)snprintf(out + used, DOCTOR_VALUE_BYTES - used, "%.*s%s",
                                 keep ? (int)length : (int)strlen(other), keep ? at : other, at[length] ? "," : "");
        if (!at[length]) {
            break;
        }
        at += length + 1;
    }
}

/* Lists the names of unknown variables. A name that resembles no option becomes "(another name)",
 * because it may contain anything. */
static void doctor_environment_read_unknown(doctor_snapshot *s)
{
    char list[DOCTOR_VALUE_BYTES] = "", name[HDI_OPTION_NAME];
    const char *check = secure_getenv("HEDDLE_ENVIRONMENT_CHECK");
    const hdi_option_row *meant;
    size_t used = 0;
    if (check && strcmp(check, "off") == 0) {
        doctor_miss(s, "HEDDLE_ENVIRONMENT_CHECK=off", "env.unknown");
        return;
    }
    for (char **variable = environ; *variable && used + 2 * HDI_OPTION_NAME + 32 < sizeof(list); variable++) {
        if (hdi_option_is_unknown(*variable, name, &meant)) {
            used += (size_t)(meant ? snprintf(list + used, sizeof(list) - used, "%s%s (did you mean %s?)",
                                              used ? ", " : "", name, meant->environment)
                                   : snprintf(list + used, sizeof(list) - used, "%s(another name)", used ? ", " : ""));
        }
    }
    doctor_put(s, used ? list : "none", "env.unknown");
}

void doctor_read_environment(doctor_snapshot *s)
{
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        char list[DOCTOR_VALUE_BYTES];
        const char *value = secure_getenv(variables[i].name);
        if (value && variables[i].kind == VALUE_DEVICES) {
            doctor_environment_clean_devices(value, variables[i].words, list);
            value = list;
        } else if (value && value[0] && !doctor_environment_is_number(value, strlen(value)) &&
                   !(variables[i].kind == VALUE_WORD &&
                     doctor_environment_is_word(variables[i].words, value, strlen(value)))) {
            value = OTHER;
        }
        doctor_put(s, value ? value : "(not set)", "env.%s", variables[i].name);
    }
    doctor_environment_read_unknown(s);
    doctor_put(s, secure_getenv("CUDA_MPS_PIPE_DIRECTORY") ? "yes" : "no",
               "mps.directory_set"); /* a path may contain names */
}
