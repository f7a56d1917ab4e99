/* version.c - the version of the library that is loaded. Threads: any. Locks: none. It is a constant. */
#include <heddle/version.h>

const char *hd_version(void)
{
    return HD_VERSION_STRING;
}
