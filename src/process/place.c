/* place.c - the folder of the library's helper programs, if they are not near the file with the
 * library's code.
 *
 * This file is compiled several times. In the installed library it names the folder of the
 * installation, and in the static library of the build tree the folder of that tree. The
 * installation compiles the file once more, for the static library that it installs
 * (cmake/place_archive.cmake).
 */
#ifndef HDI_PROGRAMS
#define HDI_PROGRAMS "/usr/local/libexec"
#endif

extern const char
    /* declared as in spawn.h, whose other declarations need system features that the installation
     * does not enable */
    hdi_programs_place[];
const char hdi_programs_place[] = HDI_PROGRAMS;
