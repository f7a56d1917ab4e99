/* handover.h - fields that the thread sanitizer is not to report.
 *
 * They are written when a structure has no owner, or a new one. Meanwhile a thread with an old handle may read them.
 *
 * A call reads what an object is, and looks at the handle again under the lock that protects what it names. Where the object is another one by
 * then, the call is refused, and nothing that it has read counts. The sanitizer would report that read. So these fields, and no others, are
 * written between HDI_HANDOVER_BEGIN and HDI_HANDOVER_END, which keep it from looking. What is only good under a lock, such as a use
 * record, is written outside of them.
 *
 * Threads: any; both in one thread, in pairs. Always: nothing at all is left of them where there is no sanitizer.
 */
#ifndef HDI_BASE_HANDOVER_H
#define HDI_BASE_HANDOVER_H

#if defined(__SANITIZE_THREAD__)
/* The sanitizer's own; its headers do not have them. */
extern void AnnotateIgnoreWritesBegin(const char *file, int line);
extern void AnnotateIgnoreWritesEnd(const char *file, int line);
#define HDI_HANDOVER_BEGIN() AnnotateIgnoreWritesBegin(__FILE__, __LINE__)
#define HDI_HANDOVER_END() AnnotateIgnoreWritesEnd(__FILE__, __LINE__)
#else
#define HDI_HANDOVER_BEGIN() ((void)0)
#define HDI_HANDOVER_END() ((void)0)
#endif

#endif
