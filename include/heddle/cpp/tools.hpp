/* heddle/cpp/tools.hpp - making kernel files, and the driver's own entry points.
 * heddle/kernel_file.h and heddle/driver.h are the reference.
 *
 * Threads: any.
 * Locks: none.
 * Blocking: hd::driver_entry may start the driver.
 * Always: an hd::kernel_file owns the bytes of its kernel file.
 */
#ifndef HEDDLE_CPP_TOOLS_HPP
#define HEDDLE_CPP_TOOLS_HPP

#include <cstdlib>
#include <memory>
#include <heddle/cpp/result.hpp>

HD_CPP_BEGIN

/* A kernel file, in memory that the library allocated with malloc. */
class kernel_file
{
  public:
    kernel_file() noexcept = default;
    kernel_file(void *data, std::size_t size) noexcept : data_(data, std::free), size_(size)
    {
    }

    /* The bytes of the kernel file, which belong to this object. */
    const void *data() const noexcept
    {
        return data_.get();
    }
    /* The number of bytes. */
    std::size_t size() const noexcept
    {
        return size_;
    }

  private:
    std::unique_ptr<void, void (*)(void *)> data_{nullptr, std::free};
    std::size_t size_ = 0;
};

/* hd_kernel_file_build. The call sets parts.size itself. */
inline result<kernel_file> build_kernel_file(hd_kernel_file_parts parts)
{
    void *out = nullptr;
    std::size_t bytes = 0;
    parts.size = sizeof parts;
    const hd_status status = hd_kernel_file_build(&parts, &out, &bytes);
    return detail::finish(status, kernel_file(out, bytes));
}

/* hd_driver_entry. Returns a pointer to a function of the given type:
 *     auto count = hd::driver_entry<int(int *)>(nullptr, "cuDeviceGetCount"); */
template <class Function> result<Function *> driver_entry(const char *driver, const char *symbol)
{
    void (*out)() = nullptr;
    const hd_status status = hd_driver_entry(driver, symbol, &out);
    return detail::finish(status, reinterpret_cast<Function *>(out));
}

HD_CPP_END
#endif
