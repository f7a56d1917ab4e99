/* same.h - compares our declarations with those of another header, at compile time: numbers,
 * layouts of structures, members.
 *
 * Threads: none. Locks: none.
 */
#ifndef TESTS_SUPPORT_SAME_H
#define TESTS_SUPPORT_SAME_H

#include <stddef.h>

#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours " is not " #theirs)
#define SAME_SIZE(ours, theirs)                                                                                        \
    _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs),                               \
                   #ours " is not laid out as " #theirs)
#define SAME_MEMBER(ours, our_member, theirs, their_member)                                                            \
    _Static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member) &&                                     \
                       sizeof(((ours *)0)->our_member) == sizeof(((theirs *)0)->their_member),                         \
                   #ours "." #our_member " is not " #theirs "." #their_member)

#endif
