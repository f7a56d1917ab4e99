/* sanitizers.h - the sanitizer of the test build: TEST_TSAN and TEST_ASAN are 1 or 0, for GCC and
 * clang alike.
 *
 * Contains only macros.
 */
#ifndef TEST_SUPPORT_SANITIZERS_H
#define TEST_SUPPORT_SANITIZERS_H

#if defined(__SANITIZE_THREAD__)
#define TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_TSAN 1
#endif
#endif
#ifndef TEST_TSAN
#define TEST_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEST_ASAN 1
#endif
#endif
#ifndef TEST_ASAN
#define TEST_ASAN 0
#endif

#endif
