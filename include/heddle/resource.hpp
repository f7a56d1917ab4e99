/* heddle/resource.hpp - a memory resource of cuda::mr that takes memory from Heddle.
 *
 * Libraries of C++ such as RMM and Thrust take memory from objects that satisfy the concepts of
 * cuda::mr, a part of CCCL. The class hd::memory_resource satisfies these concepts. It provides the
 * names of CCCL 3.0 and those of later releases:
 *
 *     hd_runtime *runtime;
 *     hd_open(NULL, &runtime);
 *     hd::memory_resource memory(runtime, 0);
 *     void *p = memory.allocate(stream, 1 << 20);          // a cuda::stream_ref
 *     memory.deallocate(stream, p, 1 << 20);
 *     rmm::mr::set_current_device_resource(memory);        // RMM 26.10
 *
 * The header needs C++17, exceptions, and the headers of CCCL and of the CUDA runtime. heddle.hpp
 * does not include this header. Before CCCL 3.1, define
 * LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE.
 *
 * Copies of a resource share their memory, and compare equal. The runtime must stay open until the
 * program gave all memory back.
 *
 * Threads: any.
 * Locks: the lock of a resource, for its table; no call of Heddle happens under it.
 * Blocking: allocations as hd_alloc; allocate_sync also waits for earlier work on the memory.
 * Always: if a program gives memory back behind work in a stream, later work on this memory waits
 * for the work in the stream.
 */
#ifndef HEDDLE_RESOURCE_HPP
#define HEDDLE_RESOURCE_HPP

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <heddle.h>

namespace hd
{

/* An allocation failed. what() is the message of Heddle. */
class resource_error : public std::bad_alloc
{
  public:
    explicit resource_error(const char *message) : text_(std::make_shared<std::string>(message))
    {
    }
    const char *what() const noexcept override
    {
        return text_->c_str();
    }

  private:
    std::shared_ptr<const std::string> text_; /* the copy of an exception must not fail */
};

class memory_resource
{
  public:
    static constexpr std::size_t alignment = 256; /* of all memory */

    /* Takes memory on a device of the runtime. Messages and reports name it by the label. */
    explicit memory_resource(hd_runtime *runtime, int device = 0, const char *label = "cuda::mr")
        : loans_(std::make_shared<loans>())
    {
        loans_->runtime = runtime;
        loans_->device = device;
        loans_->label = label;
        check(hd_lane_create(runtime, device, &loans_->lane));
    }

    /* ---- CCCL 3.1 and later ---- */

    /* Memory for work in the stream. */
    void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t align = alignment)
    {
        return take(bytes, align, false, stream.get());
    }

    /* Gives memory back, behind the work that is in the stream now. */
    void deallocate(cuda::stream_ref stream, void *memory, std::size_t, std::size_t = alignment) noexcept
    {
        give(memory, false, stream.get());
    }

    /* Memory that no earlier work uses. */
    void *allocate_sync(std::size_t bytes, std::size_t align = alignment)
    {
        return take(bytes, align, true, nullptr);
    }

    /* Gives memory back that no work of the program uses any more. */
    void deallocate_sync(void *memory, std::size_t, std::size_t = alignment) noexcept
    {
        give(memory, true, nullptr);
    }

    /* ---- CCCL 3.0 ---- */

    void *allocate(std::size_t bytes, std::size_t align = alignment)
    {
        return allocate_sync(bytes, align);
    }
    void deallocate(void *memory, std::size_t bytes, std::size_t align = alignment) noexcept
    {
        deallocate_sync(memory, bytes, align);
    }
    void *allocate_async(std::size_t bytes, std::size_t align, cuda::stream_ref stream)
    {
        return allocate(stream, bytes, align);
    }
    void *allocate_async(std::size_t bytes, cuda::stream_ref stream)
    {
        return allocate(stream, bytes);
    }
    void deallocate_async(void *memory, std::size_t bytes, std::size_t align, cuda::stream_ref stream) noexcept
    {
        deallocate(stream, memory, bytes, align);
    }
    void deallocate_async(void *memory, std::size_t bytes, cuda::stream_ref stream) noexcept
    {
        deallocate(stream, memory, bytes);
    }

    /* ---- all releases ---- */

    /* The number of blocks that were not given back. */
    std::size_t count() const
    {
        const std::lock_guard<std::mutex> guard(loans_->lock);
        return loans_->blocks.size();
    }

    friend bool operator==(const memory_resource &a, const memory_resource &b) noexcept
    {
        return a.loans_ == b.loans_;
    }
    friend bool operator!=(const memory_resource &a, const memory_resource &b) noexcept
    {
        return !(a == b);
    }
    friend void get_property(const memory_resource &, cuda::mr::device_accessible) noexcept
    {
    }

  private:
    struct late_block {
        hd_buffer *buffer;
        void *stream;
    };
    struct loans {
        hd_runtime *runtime = nullptr;
        int device = 0;
        hd_lane *lane = nullptr; /* contains no work, so its memory waits for no work */
        std::string label;
        std::mutex lock;
        std::unordered_map<void *, hd_buffer *> blocks;
        std::vector<late_block> late; /* given back while their streams were being captured */
        ~loans()
        {
            hd_lane_destroy(lane);
        }
    };
    std::shared_ptr<loans> loans_;

    static void check(hd_status status)
    {
        if (status != HD_OK) {
            throw resource_error(hd_message());
        }
    }

    /* Puts a claim on the stream that begins and ends at once. */
    hd_status claim(hd_buffer *buffer, void *stream) const noexcept
    {
        const hd_arg use = hd_inout(buffer);
        hd_claim_options options = {};
        options.size = sizeof options;
        options.label = loans_->label.c_str();
        hd_claim *made = nullptr;
        const hd_status status =
            hd_claim_begin_stream(loans_->runtime, loans_->device, stream, &use, 1, &options, &made);
        return status == HD_OK ? hd_claim_end(made, HD_OK) : status;
    }

    void *take(std::size_t bytes, std::size_t align, bool ready, void *stream)
    {
        settle();
        if (align > alignment || (align & (align - 1)) != 0) {
            throw resource_error("hd::memory_resource: memory of Heddle begins at multiples of 256; ask for a power of "
                                 "two up to 256");
        }
        hd_alloc_options options = {};
        options.size = sizeof options;
        options.label = loans_->label.c_str();
        hd_buffer *buffer = nullptr;
        check(hd_alloc_with(loans_->lane, bytes != 0 ? bytes : 1, &options, &buffer));
        hd_status status = ready ? hd_buffer_wait(buffer, HD_READ_WRITE, HD_FOREVER) : claim(buffer, stream);
        if (status == HD_ERROR_UNSUPPORTED && hd_buffer_wait(buffer, HD_READ_WRITE, 0) == HD_OK) {
            status = HD_OK; /* the stream is being captured, but no earlier work uses the memory */
        }
        if (status != HD_OK) {
            const resource_error failure(hd_message());
            hd_free(buffer);
            throw failure;
        }
        void *const memory = reinterpret_cast<void *>(hd_buffer_address(buffer));
        try {
            const std::lock_guard<std::mutex> guard(loans_->lock);
            loans_->blocks.emplace(memory, buffer);
            /* so that give() cannot fail */
            loans_->late.reserve(loans_->late.size() + loans_->blocks.size());
        } catch (...) {
            const std::lock_guard<std::mutex> guard(loans_->lock);
            loans_->blocks.erase(memory);
            hd_free(buffer);
            throw;
        }
        return memory;
    }

    void give(void *memory, bool ready, void *stream) noexcept
    {
        hd_buffer *buffer = nullptr;
        {
            const std::lock_guard<std::mutex> guard(loans_->lock);
            const auto found = loans_->blocks.find(memory);
            if (found == loans_->blocks.end()) {
                return; /* null, or no memory of this resource */
            }
            buffer = found->second;
            loans_->blocks.erase(found);
        }
        end(late_block{buffer, stream}, ready);
    }

    /* Frees a buffer behind the work in its stream. While the stream is being captured, or no claim
     * can be made, the buffer waits in the list. */
    void end(late_block block, bool ready) noexcept
    {
        const hd_status status = ready ? HD_OK : claim(block.buffer, block.stream);
        if (status == HD_OK || status == HD_ERROR_HANDLE || status == HD_ERROR_DEVICE_LOST) {
            hd_free(block.buffer);
            return;
        }
        const std::lock_guard<std::mutex> guard(loans_->lock);
        loans_->late.push_back(block);
    }

    void settle()
    {
        std::vector<late_block> list;
        {
            const std::lock_guard<std::mutex> guard(loans_->lock);
            list.reserve(loans_->late.size() + loans_->blocks.size());
            list.swap(loans_->late); /* with room for every block again */
        }
        for (const late_block &block : list) {
            end(block, false);
        }
    }
};

} // namespace hd

#endif
