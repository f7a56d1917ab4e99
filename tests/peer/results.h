/* results.h - shared by the tests of result files: a folder and a key per case, and a result to
 * save.
 *
 * Threads: any, once the case has begun. Locks: none.
 * Always: each case uses a new folder, which is removed at its end.
 */
#ifndef TEST_PEER_RESULTS_H
#define TEST_PEER_RESULTS_H

#include "support/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/wait.h"
#include "driver/driver.h"
#include "peer/peers.h"

static char folder[64];
static hdi_result_key key;

static const uint8_t uuid_a[16] = {1, 2, 3}, uuid_b[16] = {4, 5, 6};

static inline hdi_result_facts facts_now(void)
{
    return (hdi_result_facts){
        .boot = "6b1d",
        .kernel = "quiet iommu=pt",
        .driver = "13000 580.65",
        .program = "1 2.3",
        .provider = "nvidia",
        .placement = "thread",
        .faults = "",
        .device_bus = "0000:1b:00.0",
        .owner_bus = "0000:43:00.0",
        .device_uuid = uuid_a,
        .owner_uuid = uuid_b,
    };
}

static inline hd_peer_info info_now(void)
{
    return (hd_peer_info){
        .size = sizeof(hd_peer_info),
        .verdict = HD_PEER_CORRUPT,
        .driver_code = 700,
        .atomics = true,
        .direct_bytes_per_s = 397e9,
        .staged_bytes_per_s = 53.5e9,
        .reason = "a copy did not arrive: <device>, <owner>",
    };
}

static inline void path_of_finding(char out[200])
{
    snprintf(out, 200, "%s/%s", folder, key.name);
}

static inline int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/heddle-cache-XXXXXX");
    const hdi_result_facts facts = facts_now();
    return mkdtemp(folder) && hdi_result_key_make(&facts, &key) ? 0 : -1;
}

static inline int count_files(void)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    }
    closedir(d);
    return n;
}

static inline int tear_down(void **state)
{
    (void)state;
    char command[128];
    chmod(folder, 0700);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static inline void write_file(const char *path, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
