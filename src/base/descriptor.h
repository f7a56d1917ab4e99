/* descriptor.h - makes every descriptor of the library: none is ever 0, 1 or 2.
 *
 * A service may have closed these three descriptors. If the library got their numbers, the
 * service's output could go into memory or sockets of the library. The system always returns the
 * lowest free number. So while a call makes a descriptor, the library occupies each of the three
 * numbers that is free. If a thread of the program reads or writes such a placeholder, the call
 * fails as with a closed descriptor (EBADF). The placeholders are closed when the call returns.
 *
 * All descriptors are close-on-exec. tools/check-layers finds files that make descriptors
 * themselves.
 *
 * Threads: any. Locks: one lock, which is not held while the system call runs. Blocking: as the
 * call that makes the descriptor.
 */
#ifndef HDI_BASE_DESCRIPTOR_H
#define HDI_BASE_DESCRIPTOR_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Each function returns the result of its system call, with its errno. */
int hdi_descriptor_open(const char *path, int flags, mode_t mode);
int hdi_descriptor_temporary(char *pattern); /* mkostemp */
int hdi_descriptor_memory(const char *name, unsigned flags);
int hdi_descriptor_event(int flags);
int hdi_descriptor_process(pid_t pid); /* pidfd_open */
int hdi_descriptor_pipe(int ends[2]);
int hdi_descriptor_sockets(int type, int ends[2]); /* a pair, AF_UNIX */

/* Duplicates a descriptor; the new number is at least `least`. */
int hdi_descriptor_copy(int descriptor, int least);
/* recvmsg, also for messages with descriptors. */
ssize_t hdi_descriptor_receive(int socket, struct msghdr *message, int flags);
/* fopen, to read; opendir. */
FILE *hdi_descriptor_text(const char *path);
DIR *hdi_descriptor_folder(const char *path);

/* dlopen; covers files that the loader and the library's constructors open. */
void *hdi_descriptor_library(const char *name, int how);
/* Keeps a loaded library loaded for good. Makes no descriptor, and takes no lock. */
void hdi_descriptor_library_stays(const char *name);

/* For calls of a driver, which opens descriptors itself and returns some. Between hold and release,
 * no new descriptor gets one of the three numbers. Pass the result to hdi_descriptors_release, on
 * any thread. */
bool hdi_descriptors_hold(void);
void hdi_descriptors_release(bool held);

/* For `main` of the library's helper programs, before they start threads. Occupies for good each of
 * the three numbers that is closed, even in programs that the process starts. Reading and writing
 * these descriptors still fails. */
void hdi_descriptors_fill(void);

#endif
