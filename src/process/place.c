/* place.c - the folder of the library's helper programs, if they are not near the file with the
 * library's code.
 *
 * Compiled several times. The installed library names the folder of the installation, and the
 * static library in the build tree that of the tree. The installation compiles this file once more,
 * for the static library that it installs (cmake/place_archive.cmake).
 */
#ifndef HDI_PROGRAMS
#define HDI_PROGRAMS "/usr/local/libexec"
#endif

extern const char
    /* as in spawn.h, which needs more features of the system than the installation enables */
    hdi_programs_place[];
const char hdi_programs_place[] = HDI_PROGRAMS;
