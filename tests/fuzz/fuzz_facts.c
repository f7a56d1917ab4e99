/* fuzz_facts.c - files of /sys and /proc, which other kernels or drivers may write differently:
 * facts about devices and the paths between.
 *
 * An input: files, each with one byte for its index, two for its length, and its content.
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cli/p2p/facts.h"

#define PCI "sys/bus/pci/devices/"
#define REAL "sys/devices/pci0000:17/"
#define BRIDGE "0000:17:01.0"
#define FIRST "0000:1b:00.0"
#define SECOND "0000:1c:00.0"

static const char *const files[] = {"proc/cpuinfo",
                                    "proc/driver/nvidia/params",
                                    "proc/self/maps",
                                    "proc/driver/nvidia/version",
                                    REAL BRIDGE "/" FIRST "/numa_node",
                                    REAL BRIDGE "/" SECOND "/numa_node",
                                    "sys/kernel/iommu_groups/7/type",
                                    REAL BRIDGE "/" FIRST "/current_link_speed",
                                    REAL BRIDGE "/" FIRST "/max_link_speed",
                                    REAL BRIDGE "/" FIRST "/current_link_width",
                                    REAL BRIDGE "/" FIRST "/max_link_width",
                                    REAL BRIDGE "/" FIRST "/resource",
                                    REAL BRIDGE "/config"};
enum { FILES = sizeof files / sizeof files[0] };

static void link_to(const char *target, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    fuzz_check(symlink(target, path) == 0);
}

/* Makes two devices below one bridge. */
static void make_tree(void)
{
    for (int i = 0; i < FILES; i++) {
        fuzz_write(files[i], "", 0);
    }
    fuzz_write(PCI "x/x", "", 0);
    link_to("../../../devices/pci0000:17/" BRIDGE, PCI BRIDGE);
    link_to("../../../devices/pci0000:17/" BRIDGE "/" FIRST, PCI FIRST);
    link_to("../../../devices/pci0000:17/" BRIDGE "/" SECOND, PCI SECOND);
    link_to("../../../../kernel/iommu_groups/7", REAL BRIDGE "/" FIRST "/iommu_group");
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    static bool made;
    if (!made) {
        make_tree();
        made = true;
    }
    fuzz_input in = {input, bytes};
    bool written[FILES] = {false};
    while (in.left > 0) {
        size_t which = (size_t)fuzz_take(&in, 1) % FILES, n;
        const uint8_t *content = fuzz_take_piece(&in, (size_t)fuzz_take(&in, 2), &n);
        fuzz_write(files[which], content, n);
        written[which] = true;
    }
    const p2p_place places[] = {{"0000:1B:00.0", (uint64_t)1 << 37}, {SECOND, 5}};
    static p2p_facts facts;
    p2p_facts_read(fuzz_folder(), places, 2, &facts);
    fuzz_check(facts.n > 0 && facts.n <= P2P_FACTS_MAX);
    for (int i = 0; i < facts.n; i++) {
        const p2p_fact *f = &facts.list[i];
        fuzz_check(f->device >= -1 && f->device < 2 && f->id != NULL && f->name != NULL && f->remedy != NULL);
        fuzz_check(memchr(f->text, 0, sizeof f->text) != NULL && f->text[0] != 0 && p2p_state_text(f->state) != NULL);
    }
    fuzz_check(facts.path[0][1] == facts.path[1][0]);
    for (int i = 0; i < FILES; i++) { /* so that the next input finds none of them */
        if (written[i]) {
            fuzz_write(files[i], "", 0);
        }
    }
    return 0;
}
