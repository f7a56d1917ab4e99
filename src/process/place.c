/* place.c - the folder where programs of the library's own are, when they are not near the file that has the library's code.
 *
 * Compiled several times: what is installed has the folder of the installation, and the static library in the build tree that tree's. The
 * installation compiles it once more, for the static library that it puts down (cmake/place_archive.cmake).
 */
#ifndef HDI_PROGRAMS
#define HDI_PROGRAMS "/usr/local/libexec"
#endif

extern const char
    hdi_programs_place[]; /* as in spawn.h, which needs more of the system than the installation has switched on */
const char hdi_programs_place[] = HDI_PROGRAMS;
