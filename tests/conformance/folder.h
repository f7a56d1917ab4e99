/* folder.h - makes a folder for each case of a test program, and deletes it after the case.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: begin_case and end_case are conf_case_begins and conf_case_ends with the folder around
 * them.
 */
#ifndef CONFORMANCE_FOLDER_H
#define CONFORMANCE_FOLDER_H

#include "conformance.h"

static char folder[64];

CONF_UNUSED static int begin_case(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/heddle-test-XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : conf_case_begins(state);
}

CONF_UNUSED static int end_case(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    int result = conf_case_ends(state);
    return system(command) == 0 ? result : -1;
}

#define FOLDER_CASE(function) cmocka_unit_test_setup_teardown(function, begin_case, end_case)

#endif
