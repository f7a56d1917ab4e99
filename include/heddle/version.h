/* heddle/version.h - the version of the library, and the macros that declare its symbols.
 *
 * Threads: any.
 * Blocking: never.
 */
#ifndef HEDDLE_VERSION_H
#define HEDDLE_VERSION_H

/* The version of these headers. */
#define HD_VERSION_MAJOR 0
#define HD_VERSION_MINOR 3
#define HD_VERSION_PATCH 0
/* The version as a text: "0.3.0". */
#define HD_VERSION_STRING HD_VERSION_TEXT(HD_VERSION_MAJOR, HD_VERSION_MINOR, HD_VERSION_PATCH)

/* Helpers of HD_VERSION_STRING. */
#define HD_VERSION_TEXT(major, minor, patch) HD_VERSION_JOIN(major, minor, patch)
#define HD_VERSION_JOIN(major, minor, patch) #major "." #minor "." #patch

/* The mark of every public function. The library exports no other symbol. */
#if defined(__GNUC__)
#define HD_API __attribute__((visibility("default")))
#else
#define HD_API
#endif

/* Enclose the declarations of a header, so that C++ code calls them as C functions. */
#ifdef __cplusplus
#define HD_BEGIN_DECLS extern "C" {
#define HD_END_DECLS }
#else
#define HD_BEGIN_DECLS
#define HD_END_DECLS
#endif

HD_BEGIN_DECLS

/* Returns the version of the loaded library as "major.minor.patch"; a static string. Cannot
 * fail. */
HD_API const char *hd_version(void);

HD_END_DECLS
#endif
