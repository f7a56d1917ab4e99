/* heddle/cpp/result.hpp - the results of C++ calls: a value or an error.
 *
 * Each call of the C++ headers that can fail returns hd::result<T>.
 *   - By default hd::result<T> is T itself, and a failure throws hd::error.
 *   - If HEDDLE_NO_EXCEPTIONS is defined, or if the compiler disables exceptions, hd::result<T> is
 *     hd::expected<T>.
 *
 * Sources of one program may use different forms, because the linker sees different names for the
 * two forms.
 *
 * Threads: any thread may use an error, which is a copy.
 * Locks: none.
 * Always: an error contains all facts of its failure, even after later failures of the thread.
 */
#ifndef HEDDLE_CPP_RESULT_HPP
#define HEDDLE_CPP_RESULT_HPP

#include <heddle.h>

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "heddle.hpp needs C++17 or later: compile with -std=c++17"
#endif

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <type_traits>
#include <utility>
#if __cplusplus > 202002L && __has_include(<expected>)
#include <expected>
#endif

#if defined(HEDDLE_NO_EXCEPTIONS) || !defined(__cpp_exceptions)
#define HD_CPP_THROWS 0
#else
#define HD_CPP_THROWS 1
#endif
#if defined(__cpp_lib_expected)
#define HD_CPP_STANDARD_EXPECTED 1
#else
#define HD_CPP_STANDARD_EXPECTED 0
#endif

/* The inline namespaces separate sources that are compiled differently. */
#if HD_CPP_THROWS
#define HD_CPP_BEGIN                                                                                                   \
    namespace hd                                                                                                       \
    {                                                                                                                  \
    inline namespace throwing                                                                                          \
    {
#elif HD_CPP_STANDARD_EXPECTED
#define HD_CPP_BEGIN                                                                                                   \
    namespace hd                                                                                                       \
    {                                                                                                                  \
    inline namespace standard_expected                                                                                 \
    {
#else
#define HD_CPP_BEGIN                                                                                                   \
    namespace hd                                                                                                       \
    {                                                                                                                  \
    inline namespace own_expected                                                                                      \
    {
#endif
#define HD_CPP_END                                                                                                     \
    }                                                                                                                  \
    }

/* With this attribute, a launch costs as much as in C, however many launches a source contains. */
#define HD_CPP_INLINE __attribute__((always_inline)) inline

HD_CPP_BEGIN

/* A failure, with all facts of hd_last_error. */
class error
#if HD_CPP_THROWS
    : public std::exception
#endif
{
  public:
    /* Takes the calling thread's last failure, which the library reported with `status`. */
    __attribute__((noinline, cold)) explicit error(hd_status status) noexcept : facts_{}
    {
        facts_.size = sizeof facts_;
        hd_last_error(&facts_);
        facts_.status = status;
    }

    /* Returns the calling thread's last failure, for a call that reported it without a status. */
    static error last() noexcept
    {
        error e(HD_OK);
        hd_last_error(&e.facts_);
        return e;
    }

    /* Makes a failure that the C++ headers found themselves. `format` is a format of printf. */
    __attribute__((format(printf, 3, 4))) error(hd_status status, const char *format, ...) noexcept : facts_{}
    {
        facts_.size = sizeof facts_;
        facts_.status = status;
        facts_.device = facts_.lane = -1;
        std::va_list values;
        va_start(values, format);
        std::vsnprintf(facts_.message, sizeof facts_.message, format, values);
        va_end(values);
    }

#if HD_CPP_THROWS
    /* The message: hd_error.message. */
    const char *what() const noexcept override
    {
        return facts_.message;
    }
#else
    const char *what() const noexcept
    {
        return facts_.message;
    }
#endif
    /* The status: hd_error.status. */
    hd_status status() const noexcept
    {
        return facts_.status;
    }
    /* hd_status_name of the status. */
    const char *status_name() const noexcept
    {
        return hd_status_name(facts_.status);
    }
    /* The device: hd_error.device. */
    int device() const noexcept
    {
        return facts_.device;
    }
    /* The number of the lane: hd_error.lane. */
    int lane() const noexcept
    {
        return facts_.lane;
    }
    /* The ticket's number: hd_error.ticket. */
    std::uint64_t ticket() const noexcept
    {
        return facts_.ticket;
    }
    /* The driver's code: hd_error.driver_code. */
    int driver_code() const noexcept
    {
        return facts_.driver_code;
    }
    /* The operation: hd_error.operation. */
    const char *operation() const noexcept
    {
        return facts_.operation;
    }
    /* The kernel's name: hd_error.kernel. */
    const char *kernel() const noexcept
    {
        return facts_.kernel;
    }
    /* All facts, as C gives them. */
    const hd_error &facts() const noexcept
    {
        return facts_;
    }

  private:
    hd_error facts_;
};

#if HD_CPP_STANDARD_EXPECTED

template <class T> using expected = std::expected<T, error>;
using unexpected = std::unexpected<error>;
using std::unexpect;
using std::unexpect_t;

#else

/* An error from which an expected can be made. */
class unexpected
{
  public:
    explicit unexpected(const error &e) noexcept : error_(e)
    {
    }
    /* The error. */
    const hd::error &error() const noexcept
    {
        return error_;
    }

  private:
    hd::error error_;
};

/* Makes the constructor of an expected take a status for its error. */
struct unexpect_t {
};
inline constexpr unexpect_t unexpect{};

/* A value or an error: the part of std::expected<T, hd::error> that needs no exceptions. An
 * expected can be moved, but not copied. Test `if (e)` first: you may use `*e` and `e->` only if
 * `e` contains a value, and e.error() only if `e` contains an error. */
template <class T> class [[nodiscard]] expected
{
  public:
    using value_type = T;

    expected(T value) noexcept : has_(true), value_(std::move(value))
    {
    }
    expected(unexpected e) noexcept : has_(false), error_(e.error())
    {
    }
    expected(unexpect_t, hd_status status) noexcept : has_(false), error_(status)
    {
    }
    expected(expected &&other) noexcept : has_(other.has_)
    {
        take(other);
    }
    expected &operator=(expected &&other) noexcept
    {
        if (this != &other) {
            drop();
            has_ = other.has_;
            take(other);
        }
        return *this;
    }
    ~expected()
    {
        drop();
    }

    explicit operator bool() const noexcept
    {
        return has_;
    }
    /* True if it contains a value, false if it contains an error. */
    bool has_value() const noexcept
    {
        return has_;
    }
    T &operator*() &noexcept
    {
        return value_;
    }
    const T &operator*() const &noexcept
    {
        return value_;
    }
    T &&operator*() &&noexcept
    {
        return std::move(value_);
    }
    T *operator->() noexcept
    {
        return &value_;
    }
    const T *operator->() const noexcept
    {
        return &value_;
    }
    /* The error, which must be there. */
    const hd::error &error() const noexcept
    {
        return error_;
    }
    /* Returns the value, or `other` instead of an error. */
    template <class U> T value_or(U &&other) &&
    {
        return has_ ? std::move(value_) : static_cast<T>(std::forward<U>(other));
    }

  private:
    void take(expected &other) noexcept
    {
        if (has_) {
            new (&value_) T(std::move(other.value_));
        } else {
            new (&error_) hd::error(other.error_);
        }
    }
    void drop() noexcept
    {
        if (has_) {
            value_.~T();
        } else {
            error_.~error();
        }
    }

    bool has_;
    union {
        T value_;
        hd::error error_;
    };
};

/* Success or an error. */
template <> class [[nodiscard]] expected<void>
{
  public:
    using value_type = void;

    expected() noexcept : has_(true), none_()
    {
    }
    expected(unexpected e) noexcept : has_(false), error_(e.error())
    {
    }
    expected(unexpect_t, hd_status status) noexcept : has_(false), error_(status)
    {
    }
    expected(expected &&other) noexcept : has_(other.has_), none_()
    {
        take(other);
    }
    expected &operator=(expected &&other) noexcept
    {
        if (this != &other) {
            drop();
            has_ = other.has_;
            take(other);
        }
        return *this;
    }
    ~expected()
    {
        drop();
    }

    explicit operator bool() const noexcept
    {
        return has_;
    }
    /* True if it contains a value, false if it contains an error. */
    bool has_value() const noexcept
    {
        return has_;
    }
    void operator*() const noexcept
    {
    }
    /* The error, which must be there. */
    const hd::error &error() const noexcept
    {
        return error_;
    }

  private:
    void take(expected &other) noexcept
    {
        if (!has_) {
            new (&error_) hd::error(other.error_);
        }
    }
    void drop() noexcept
    {
        if (!has_) {
            error_.~error();
        }
    }

    bool has_;
    union {
        char none_;
        hd::error error_;
    };
};

#endif

#if HD_CPP_THROWS
/* The result of a call that can fail: T itself, or hd::expected<T> if failures are not thrown. */
template <class T> using result = T;
#else
template <class T> using result = expected<T>;
#endif

namespace detail
{

/* Only these functions make a failed result: from an error, or from the status of a C call. */
#if HD_CPP_THROWS

template <class T> [[noreturn]] inline T refuse(const error &e)
{
    throw e;
}

[[noreturn]] __attribute__((noinline, cold)) inline void fail(hd_status status)
{
    throw error(status);
}

HD_CPP_INLINE void finish(hd_status status)
{
    if (__builtin_expect(status != HD_OK, 0)) {
        fail(status);
    }
}

/* Makes the result of a C call. `value` is the call's output if the call succeeded. */
template <class T> HD_CPP_INLINE T finish(hd_status status, T value)
{
    if (__builtin_expect(status != HD_OK, 0)) {
        fail(status);
    }
    return value;
}

#else

template <class T> inline expected<T> refuse(const error &e) noexcept
{
    return unexpected(e);
}

HD_CPP_INLINE expected<void> finish(hd_status status) noexcept
{
    if (__builtin_expect(status != HD_OK, 0)) {
        return expected<void>(unexpect, status);
    }
    return expected<void>();
}

template <class T> HD_CPP_INLINE expected<T> finish(hd_status status, T value) noexcept
{
    if (__builtin_expect(status != HD_OK, 0)) {
        return expected<T>(unexpect, status);
    }
    return expected<T>(std::move(value));
}

#endif

/* Makes the result of a wait with a limit: true if the work ended. */
inline result<bool> finish_wait(hd_status status)
{
    return finish(status == HD_ERROR_TIMEOUT ? HD_OK : status, status == HD_OK);
}

} // namespace detail

#if HD_CPP_THROWS
/* Calls `call`, and returns its value, or the hd::error that it throws, as an expected. Use this
 * where the program expects a failure. */
template <class Call> auto attempt(Call &&call) -> expected<decltype(call())>
{
    try {
        if constexpr (std::is_void_v<decltype(call())>) {
            call();
            return {};
        } else {
            return std::forward<Call>(call)();
        }
    } catch (const error &e) {
        return unexpected(e);
    }
}
#endif

HD_CPP_END
#endif
