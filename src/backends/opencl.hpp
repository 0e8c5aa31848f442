// OpenCL devices, contexts, programs, buffers and kernels over the OpenCL 1.2 C API. The rest of an
// opencl variant's plan (copies of the operands, events) is in opencl_plan.hpp.
#pragma once

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/opencl_drivers.hpp"
#include "core/backend.hpp"
#include "core/buffer.hpp"

namespace rooflane::opencl {

extern const Backend backend;

class ProgramCache;

enum class DeviceKind { gpu, accelerator, cpu };
std::string_view name_of(DeviceKind kind);

struct DeviceInfo {
  int index = 0;  // as `doctor` prints it
  std::string platform;
  std::string platform_version;  // with the driver's own release, where it says one
  std::string name;              // of devices with one name the second is "NAME #2"
  std::string vendor;
  std::string version;  // of OpenCL, as the device words it
  std::string driver;
  DeviceKind kind = DeviceKind::cpu;
  int compute_units = 0;
  int clock_mhz = 0;       // highest
  int lanes_per_unit = 0;  // float32 multiply-adds a clock and compute unit; 0: unknown
  int vector_floats = 1;   // native width of float vectors
  std::size_t global_bytes = 0;
  std::size_t max_buffer_bytes = 0;  // largest single buffer
  std::size_t local_bytes = 0;       // per work-group
  std::size_t max_work_group = 0;
  bool splits_by_counts = false;  // can be partitioned into sub-devices of chosen size
};

// Every device of every platform: GPUs first, then accelerators, then CPUs; within a kind by
// platform, device name, and the platform's own order. Read once; empty without a driver.
const std::vector<DeviceInfo>& devices();

// Drivers that were left out: they crashed or hung at their start in a child process, or are known
// to compile these kernels wrongly.
const std::vector<BrokenDriver>& broken_drivers();

// Why there is no device: its driver was left out, or none is installed.
std::string no_device_reason();

// Throws Error(unavailable) that names the index and how many devices there are.
const DeviceInfo& device(int index);

// Why `threads` compute units of this device cannot be used; nothing when they can. threads <= 0
// means the whole device, and only a CPU device takes another number than that.
std::optional<std::string> unsupported_threads(const DeviceInfo& info, int threads);

// A call that failed: "clFinish: CL_OUT_OF_RESOURCES (-5) on DEVICE: what that means".
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Whether any context of this process was lost. Some drivers answer every further context with the
// same error: then only a new process helps.
bool context_was_lost();

// "CL_OUT_OF_RESOURCES (-5)".
std::string print_status(cl_int status);

// A driver's text without the blanks and zeros around it.
std::string trimmed(std::string text);

// Owns one reference to an OpenCL object.
template <class Handle, cl_int (*release)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  ~Owned() { reset(); }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }
  void reset() {
    if (handle_ != nullptr) release(std::exchange(handle_, nullptr));
  }
  Handle give_up() { return std::exchange(handle_, nullptr); }

 private:
  Handle handle_ = nullptr;
};

// Goes back to its context, which gives it out again.
using Queue = std::shared_ptr<std::remove_pointer_t<cl_command_queue>>;
using Program = Owned<cl_program, clReleaseProgram>;
using Event = Owned<cl_event, clReleaseEvent>;

// One device, or a sub-device of `threads` compute units, made ready. Shared by all plans of the
// process; thread-safe.
class Context {
 public:
  // Throws Error(unavailable) for a device or a number of threads that does not exist.
  static std::shared_ptr<Context> open(int device, int threads);
  // The whole device in a context that nobody else holds, for programs that may ruin theirs.
  static std::shared_ptr<Context> fresh(int device);
  // The same with programs kept in `cache`; null: nowhere.
  static std::shared_ptr<Context> fresh(int device, const ProgramCache* cache);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const DeviceInfo& info() const { return info_; }
  int compute_units() const { return compute_units_; }  // those of the sub-device
  cl_context handle() const { return context_; }
  cl_device_id device() const { return device_; }

  // In order. Its user waits for what he enqueued before he lets go of it.
  Queue queue(bool profiling) const;
  // Builds `source` with -cl-std=CL1.2 and the options; the same pair is built once per context,
  // and taken from the cache on disk where an earlier process on the same device and driver left
  // it. Instructions of sm_90a behind their mark (opencl_ptx.hpp) are uncovered in a second stage.
  // Throws BuildError with the log.
  cl_program program(const char* source, const std::string& options);
  // How many programs came from the cache on disk.
  int programs_from_cache() const { return from_cache_; }
  // Throws DeviceError for any status but CL_SUCCESS. A status after which the context cannot be
  // used any more makes the next open() start a fresh one.
  void check(cl_int status, const char* call) const;
  // Start and end of a finished command of a profiling queue, in nanoseconds of the device's clock.
  std::pair<cl_ulong, cl_ulong> span_of(const Event& event) const;

 private:
  struct IdleQueues {
    std::mutex mutex;
    std::vector<Owned<cl_command_queue, clReleaseCommandQueue>> of[2];  // plain, profiling
  };

  Context(const DeviceInfo& info, int threads, const ProgramCache* cache);

  // Everything that a program depends on.
  std::string cache_key(const char* source, const std::string& options) const;
  // Throws BuildError with the log.
  void build(cl_program program, const std::string& options) const;
  Program program_of(const std::string& binary, cl_int& status) const;
  // Empty when the driver does not return it.
  std::string binary_of(cl_program program) const;
  // A program of the cache, ready; null when there is none that the driver takes.
  Program cached_program(const std::string& key, const std::string& options);
  void keep_program(const std::string& key, cl_program program) const;

  DeviceInfo info_;
  const ProgramCache* cache_;
  std::atomic<int> from_cache_{0};
  int compute_units_ = 0;
  cl_device_id device_ = nullptr;
  cl_context context_ = nullptr;
  std::shared_ptr<IdleQueues> idle_queues_ = std::make_shared<IdleQueues>();
  mutable std::atomic<bool> lost_{false};
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Program> programs_;
};

// Bytes of a device's memory that this process holds, given back when it ends.
class HeldBytes {
 public:
  HeldBytes() = default;
  // Throws DeviceError when the device cannot hold them beside what this process holds there.
  HeldBytes(const DeviceInfo& info, std::size_t bytes);
  ~HeldBytes() { reset(); }
  HeldBytes(HeldBytes&& other) noexcept
      : device_(other.device_), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes&& other) noexcept {
    if (this != &other) {
      reset();
      device_ = other.device_;
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

 private:
  void reset();
  int device_ = 0;
  std::size_t bytes_ = 0;
};

// Most bytes of the device's memory that a new plan can have: all of it, less the memory of this
// process and, where the driver reports it (AMD's), of other processes.
std::size_t available_bytes(const DeviceInfo& info);

// Device memory. On a CPU device it is host memory of ours (huge pages, visible for eviction) that
// the device uses in place.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Holds at least 4 bytes, since OpenCL knows no empty buffer. Throws DeviceError before anything
  // is allocated when the device cannot hold it.
  DeviceBuffer(const Context& context, std::size_t bytes);
  cl_mem get() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }
  const Buffer& host() const { return host_; }  // empty unless the device is a CPU

 private:
  std::size_t bytes_ = 0;
  HeldBytes held_;
  Buffer host_;  // outlives memory_, which uses it
  Owned<cl_mem, clReleaseMemObject> memory_;
};

// Host memory that the driver allocated, so that the device reads and writes it without a copy in
// between (CL_MEM_ALLOC_HOST_PTR): transfers from and to it are the fastest.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // `queue` must live as long as the buffer. Throws DeviceError.
  PinnedBuffer(const Context& context, cl_command_queue queue, std::size_t bytes);
  ~PinnedBuffer() { reset(); }
  PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void reset();
  cl_command_queue queue_ = nullptr;
  Owned<cl_mem, clReleaseMemObject> memory_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// One kernel with its arguments. Not shared between plans: OpenCL kernels hold their arguments.
class KernelCall {
 public:
  KernelCall() = default;
  KernelCall(const Context& context, cl_program program, const char* name);
  cl_kernel get() const { return kernel_.get(); }

  // Sets all arguments in order: cl_mem, cl_int, cl_uint, cl_long, cl_float.
  template <class... Args>
  void set_args(const Context& context, Args... args) {
    cl_uint index = 0;
    // OpenCL takes handles by their address and the size of the handle.
    (set_arg(context, index++, sizeof(Args), &args), ...);  // NOLINT(bugprone-sizeof-expression)
    buffers_.clear();
    index = 0;
    (remember(index++, args), ...);
    count_ = index;
  }
  // The arguments that follow those set so far.
  template <class... Args>
  void add_args(const Context& context, Args... args) {
    ((set_arg(context, count_, sizeof(Args), &args),  // NOLINT(bugprone-sizeof-expression)
      remember(count_, args), ++count_),
     ...);
  }
  // The arguments that are memory, by their number.
  const std::vector<std::pair<cl_uint, cl_mem>>& buffers() const { return buffers_; }

 private:
  void set_arg(const Context& context, cl_uint index, std::size_t bytes, const void* value);
  void remember(cl_uint index, cl_mem memory) { buffers_.emplace_back(index, memory); }
  template <class Arg>
  void remember(cl_uint, const Arg&) {}
  std::vector<std::pair<cl_uint, cl_mem>> buffers_;
  cl_uint count_ = 0;
  Owned<cl_kernel, clReleaseKernel> kernel_;
};

}  // namespace rooflane::opencl
