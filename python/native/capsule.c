/* capsule.c - the end of a DLPack capsule that no consumer took, and the names of capsules.
 *
 * The Python package calls the C library by ctypes, with this one exception. The interpreter may end
 * a capsule while an exception is on its way, and then it must not call a function of Python. So the
 * end of a capsule is a function of C. The file uses no header of Python: the package passes the two
 * functions of the interpreter that it needs.
 *
 * Threads: those of the interpreter, which hold its lock or are attached to it.
 * Locks: none.
 * Always: hd_python_begin runs before the first capsule.
 */
#include <stddef.h>
#include <heddle/version.h>
#include "dlpack/layout.h"

HD_API void hd_python_begin(int (*is)(void *capsule, const char *name), void *(*get)(void *capsule, const char *name));
HD_API void hd_python_capsule_end(void *capsule);

/* The capsule keeps a pointer to its name, so the names live as long as the process. */
extern const char hd_python_versioned[], hd_python_plain[], hd_python_used_versioned[], hd_python_used_plain[];
HD_API const char hd_python_versioned[] = "dltensor_versioned";
HD_API const char hd_python_plain[] = "dltensor";
HD_API const char hd_python_used_versioned[] = "used_dltensor_versioned";
HD_API const char hd_python_used_plain[] = "used_dltensor";

static int (*capsule_is)(void *capsule, const char *name);
static void *(*capsule_get)(void *capsule, const char *name);

/* Stores PyCapsule_IsValid and PyCapsule_GetPointer. */
void hd_python_begin(int (*is)(void *capsule, const char *name), void *(*get)(void *capsule, const char *name))
{
    capsule_is = is;
    capsule_get = get;
}

/* The destructor of a capsule. A consumer renames the capsule when it takes the tensor. */
void hd_python_capsule_end(void *capsule)
{
    if (capsule_is(capsule, hd_python_versioned)) {
        hdi_dlpack_versioned *managed = (hdi_dlpack_versioned *)capsule_get(capsule, hd_python_versioned);
        managed->deleter(managed);
    } else if (capsule_is(capsule, hd_python_plain)) {
        hdi_dlpack_unversioned *managed = (hdi_dlpack_unversioned *)capsule_get(capsule, hd_python_plain);
        managed->deleter(managed);
    }
}
