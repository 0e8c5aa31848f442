// Devices, contexts and buffers of OpenCL. Nothing here knows a kernel of ours; programs are built
// in opencl_build.cpp, plans are in opencl_plan.cpp.
#include "backends/opencl.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "backends/opencl_programs.hpp"
#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane::opencl {
namespace {

struct Found {
  DeviceInfo info;
  cl_device_id id;
};

template <class T>
T number(cl_device_id id, cl_device_info what) {
  T value{};
  clGetDeviceInfo(id, what, sizeof value, &value, nullptr);
  return value;
}

std::string words(cl_device_id id, cl_device_info what) {
  std::size_t bytes = 0;
  if (clGetDeviceInfo(id, what, 0, nullptr, &bytes) != CL_SUCCESS) return {};
  std::string text(bytes, '\0');
  clGetDeviceInfo(id, what, bytes, text.data(), nullptr);
  return trimmed(std::move(text));
}

std::string words(cl_platform_id id, cl_platform_info what) {
  std::size_t bytes = 0;
  if (clGetPlatformInfo(id, what, 0, nullptr, &bytes) != CL_SUCCESS) return {};
  std::string text(bytes, '\0');
  clGetPlatformInfo(id, what, bytes, text.data(), nullptr);
  return trimmed(std::move(text));
}

bool splits_by_counts(cl_device_id id) {
  std::size_t bytes = 0;
  if (clGetDeviceInfo(id, CL_DEVICE_PARTITION_PROPERTIES, 0, nullptr, &bytes) != CL_SUCCESS) {
    return false;
  }
  std::vector<cl_device_partition_property> ways(bytes / sizeof(cl_device_partition_property));
  clGetDeviceInfo(id, CL_DEVICE_PARTITION_PROPERTIES, bytes, ways.data(), nullptr);
  return std::find(ways.begin(), ways.end(), CL_DEVICE_PARTITION_BY_COUNTS) != ways.end();
}

// Float32 lanes of a streaming multiprocessor by compute capability, from NVIDIA's table of
// arithmetic throughput (CUDA C++ Programming Guide); 0 for other vendors' devices.
int lanes_per_unit(cl_device_id id) {
  // cl_nv_device_attribute_query; the numbers are the extension's.
  constexpr cl_device_info capability_major = 0x4000, capability_minor = 0x4001;
  if (words(id, CL_DEVICE_EXTENSIONS).find("cl_nv_device_attribute_query") == std::string::npos) {
    return 0;
  }
  const auto capability =
      10 * number<cl_uint>(id, capability_major) + number<cl_uint>(id, capability_minor);
  if (capability < 50) return 0;
  const bool has_half = capability == 60 || (capability >= 70 && capability <= 80);
  return has_half ? 64 : 128;
}

DeviceInfo describe(cl_device_id id, cl_platform_id platform) {
  DeviceInfo info;
  info.platform = words(platform, CL_PLATFORM_NAME);
  info.platform_version = words(platform, CL_PLATFORM_VERSION);
  info.name = words(id, CL_DEVICE_NAME);
  info.vendor = words(id, CL_DEVICE_VENDOR);
  info.version = words(id, CL_DEVICE_VERSION);
  info.driver = words(id, CL_DRIVER_VERSION);
  const auto type = number<cl_device_type>(id, CL_DEVICE_TYPE);
  info.kind = (type & CL_DEVICE_TYPE_GPU)   ? DeviceKind::gpu
              : (type & CL_DEVICE_TYPE_CPU) ? DeviceKind::cpu
                                            : DeviceKind::accelerator;
  info.compute_units = static_cast<int>(number<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS));
  info.clock_mhz = static_cast<int>(number<cl_uint>(id, CL_DEVICE_MAX_CLOCK_FREQUENCY));
  info.lanes_per_unit = lanes_per_unit(id);
  info.vector_floats = std::max<int>(1, number<cl_uint>(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT));
  info.global_bytes = number<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE);
  info.max_buffer_bytes = number<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  info.local_bytes = number<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE);
  info.max_work_group = number<std::size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  info.splits_by_counts = splits_by_counts(id);
  return info;
}

std::vector<Found> find_devices() {
  cl_uint platform_count = 0;
  if (clGetPlatformIDs(0, nullptr, &platform_count) != CL_SUCCESS) return {};
  std::vector<cl_platform_id> platforms(platform_count);
  if (platform_count == 0 ||
      clGetPlatformIDs(platform_count, platforms.data(), nullptr) != CL_SUCCESS) {
    return {};
  }
  std::vector<Found> found;
  for (cl_platform_id platform : platforms) {
    cl_uint count = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) continue;
    std::vector<cl_device_id> ids(count);
    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr);
    for (cl_device_id id : ids) {
      const bool usable = number<cl_bool>(id, CL_DEVICE_AVAILABLE) == CL_TRUE &&
                          number<cl_bool>(id, CL_DEVICE_COMPILER_AVAILABLE) == CL_TRUE;
      if (usable) found.push_back({describe(id, platform), id});
    }
  }
  return found;
}

struct Opened {
  std::vector<Found> found;
  std::vector<BrokenDriver> broken;
};

// Each platform once, however many devices it has.
void leave_out_miscompilers(Opened& all) {
  std::set<std::string> told;
  std::erase_if(all.found, [&](const Found& device) {
    const DeviceInfo& info = device.info;
    const auto fault = compiler_fault(info.platform_version);
    if (fault && told.insert(info.platform).second) {
      all.broken.push_back({info.platform, *fault, "compiles kernels wrongly"});
    }
    return fault.has_value();
  });
}

// Sorts them; rows, ceilings and reports know a device by its name.
void number_devices(std::vector<Found>& found) {
  std::stable_sort(found.begin(), found.end(), [](const Found& x, const Found& y) {
    return std::tie(x.info.kind, x.info.platform, x.info.name) <
           std::tie(y.info.kind, y.info.platform, y.info.name);
  });
  std::map<std::string, int> seen;
  for (std::size_t i = 0; i < found.size(); ++i) {
    DeviceInfo& info = found[i].info;
    info.index = static_cast<int>(i);
    const int count = ++seen[info.name];
    if (count > 1) info.name += fmt::format(" #{}", count);
  }
}

const Opened& opened() {
  // A GPU's driver may wake its card first.
  static constexpr std::chrono::seconds patience(30);
  static const Opened all = [] {
    Opened made;
    // PoCL 6 takes another method for barriers (cbs) for some kernels, which makes loops with
    // barriers endless or, optimised, deletes them; all releases have loops over work-items.
    setenv("POCL_WORK_GROUP_METHOD", "loops", 0);
    const TriedDrivers drivers([] { (void)find_devices(); }, patience);
    made.broken = drivers.broken();
    drivers.open_working([&] { made.found = find_devices(); });
    leave_out_miscompilers(made);
    number_devices(made.found);
    return made;
  }();
  return all;
}

const std::vector<Found>& found_devices() { return opened().found; }

// CPU devices' drivers keep caches of their own, and would have to build once more to give a
// program back (PoCL 3.1: 0.7 s beside 0.5 s for the build of a GEMM).
const ProgramCache* usual_cache(const DeviceInfo& info) {
  const bool keeps = info.kind != DeviceKind::cpu || ProgramCache::is_asked_for();
  return keeps ? ProgramCache::of_user() : nullptr;
}

struct StatusName {
  cl_int status;
  const char* name;
};
// NVIDIA's, of no header: a kernel read or wrote where it may not.
constexpr cl_int illegal_access = -9999;
constexpr StatusName status_names[] = {
    {illegal_access, "illegal access, NVIDIA's"},
    {CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
    {CL_INVALID_BINARY, "CL_INVALID_BINARY"},
    {CL_INVALID_PROGRAM, "CL_INVALID_PROGRAM"},
    {CL_INVALID_KERNEL, "CL_INVALID_KERNEL"},
    {CL_INVALID_EVENT, "CL_INVALID_EVENT"},
    {CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND"},
    {CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE"},
    {CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE"},
    {CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES"},
    {CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY"},
    {CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE"},
    {CL_DEVICE_PARTITION_FAILED, "CL_DEVICE_PARTITION_FAILED"},
    {CL_INVALID_VALUE, "CL_INVALID_VALUE"},
    {CL_INVALID_DEVICE, "CL_INVALID_DEVICE"},
    {CL_INVALID_CONTEXT, "CL_INVALID_CONTEXT"},
    {CL_INVALID_COMMAND_QUEUE, "CL_INVALID_COMMAND_QUEUE"},
    {CL_INVALID_MEM_OBJECT, "CL_INVALID_MEM_OBJECT"},
    {CL_INVALID_BUILD_OPTIONS, "CL_INVALID_BUILD_OPTIONS"},
    {CL_INVALID_PROGRAM_EXECUTABLE, "CL_INVALID_PROGRAM_EXECUTABLE"},
    {CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME"},
    {CL_INVALID_ARG_INDEX, "CL_INVALID_ARG_INDEX"},
    {CL_INVALID_ARG_SIZE, "CL_INVALID_ARG_SIZE"},
    {CL_INVALID_KERNEL_ARGS, "CL_INVALID_KERNEL_ARGS"},
    {CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE"},
    {CL_INVALID_WORK_ITEM_SIZE, "CL_INVALID_WORK_ITEM_SIZE"},
    {CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE"},
    {CL_INVALID_GLOBAL_WORK_SIZE, "CL_INVALID_GLOBAL_WORK_SIZE"},
};

const char* meaning_of(cl_int status) {
  switch (status) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
      return "the device is out of memory";
    case CL_OUT_OF_RESOURCES:
      return "a kernel faulted, or the device ran out of registers, local memory or memory";
    case illegal_access:
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST:
      return "a kernel read or wrote outside its buffers";
    case CL_DEVICE_NOT_AVAILABLE:
      return "the device went away";
    case CL_OUT_OF_HOST_MEMORY:
      return "the host is out of memory";
    case CL_INVALID_CONTEXT:
    case CL_INVALID_COMMAND_QUEUE:
      return "the context is lost: an earlier kernel faulted, or the device went away";
    default:
      return "the call was refused";
  }
}

// After these the driver answers every further call on the context with an error.
bool loses_context(cl_int status) {
  return status == CL_OUT_OF_RESOURCES || status == CL_INVALID_CONTEXT ||
         status == CL_INVALID_COMMAND_QUEUE || status == CL_DEVICE_NOT_AVAILABLE ||
         status == illegal_access || status == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
}

std::atomic<bool> any_context_lost{false};

// The bytes that this process holds on each device. Never freed: buffers may outlive static
// objects.
std::atomic<std::size_t>& held_on(int device) {
  static auto& held = *new std::vector<std::atomic<std::size_t>>(found_devices().size());
  return held[static_cast<std::size_t>(device)];
}

}  // namespace

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\0')) text.pop_back();
  return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

std::string_view name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::gpu:
      return "GPU";
    case DeviceKind::accelerator:
      return "accelerator";
    case DeviceKind::cpu:
      return "CPU";
  }
  return {};
}

const std::vector<DeviceInfo>& devices() {
  static const std::vector<DeviceInfo> infos = [] {
    std::vector<DeviceInfo> list;
    for (const Found& found : found_devices()) list.push_back(found.info);
    return list;
  }();
  return infos;
}

const std::vector<BrokenDriver>& broken_drivers() { return opened().broken; }

std::string no_device_reason() {
  std::string reason;
  for (const BrokenDriver& driver : broken_drivers()) {
    reason += fmt::format("{}its driver {}: {}: {}", reason.empty() ? "" : "; ", driver.fault,
                          driver.file, driver.reason);
  }
  return reason.empty() ? "no OpenCL device: install a driver (pocl-opencl-icd runs on any CPU)"
                        : "no OpenCL device: " + reason;
}

const DeviceInfo& device(int index) {
  const std::vector<DeviceInfo>& all = devices();
  if (index >= 0 && index < static_cast<int>(all.size())) return all[index];
  if (all.empty()) {
    throw unavailable_error(fmt::format("--cl-device {}: {}", index, no_device_reason()));
  }
  throw unavailable_error(
      fmt::format("--cl-device {}: there {} {} OpenCL device{}; allowed: 0{}", index,
                  all.size() == 1 ? "is" : "are", all.size(), all.size() == 1 ? "" : "s",
                  all.size() == 1 ? "" : fmt::format(" to {}", all.size() - 1)));
}

std::optional<std::string> unsupported_threads(const DeviceInfo& info, int threads) {
  if (info.kind != DeviceKind::cpu || threads <= 0 || threads == info.compute_units) {
    return std::nullopt;
  }
  if (threads > info.compute_units) {
    return fmt::format("{} has {} compute units, {} threads asked for", info.name,
                       info.compute_units, threads);
  }
  if (!info.splits_by_counts) {
    return fmt::format("{} cannot be partitioned: only all {} compute units can be used", info.name,
                       info.compute_units);
  }
  return std::nullopt;
}

bool context_was_lost() { return any_context_lost; }

std::string print_status(cl_int status) {
  for (const StatusName& known : status_names) {
    if (known.status == status) return fmt::format("{} ({})", known.name, status);
  }
  return fmt::format("OpenCL error {}", status);
}

std::shared_ptr<Context> Context::open(int device, int threads) {
  const DeviceInfo& info = opencl::device(device);
  if (const auto reason = unsupported_threads(info, threads)) throw unavailable_error(*reason);
  // Contexts live until the process ends: drivers are already unloading when static objects die.
  static std::mutex& mutex = *new std::mutex;
  static auto& contexts = *new std::map<std::pair<int, int>, std::shared_ptr<Context>>;
  const bool whole = info.kind != DeviceKind::cpu || threads <= 0 || threads == info.compute_units;
  const int units = whole ? info.compute_units : threads;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<Context>& context = contexts[{device, units}];
  if (context == nullptr || context->lost_) {
    context.reset(new Context(info, units, usual_cache(info)));
  }
  return context;
}

std::shared_ptr<Context> Context::fresh(int device) {
  return fresh(device, usual_cache(opencl::device(device)));
}

std::shared_ptr<Context> Context::fresh(int device, const ProgramCache* cache) {
  const DeviceInfo& info = opencl::device(device);
  return std::shared_ptr<Context>(new Context(info, info.compute_units, cache));
}

Context::Context(const DeviceInfo& info, int threads, const ProgramCache* cache)
    : info_(info), cache_(cache), compute_units_(threads) {
  device_ = found_devices()[static_cast<std::size_t>(info.index)].id;
  if (threads < info.compute_units) {
    const cl_device_partition_property by_counts[] = {CL_DEVICE_PARTITION_BY_COUNTS, threads,
                                                      CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    cl_device_id part = nullptr;
    check(clCreateSubDevices(device_, by_counts, 1, &part, nullptr), "clCreateSubDevices");
    device_ = part;
  }
  cl_int status = CL_SUCCESS;
  context_ = clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &status);
  check(status, "clCreateContext");
}

Context::~Context() {
  programs_.clear();
  clReleaseContext(context_);
  clReleaseDevice(device_);  // counts for sub-devices only
}

// Queues are kept: a thread of PoCL 6.0 locks a queue again after clFinish has returned
// (pocl_update_event_finished), and aborts the process where the queue was released in between.
Queue Context::queue(bool profiling) const {
  Owned<cl_command_queue, clReleaseCommandQueue> queue;
  {
    const std::scoped_lock lock(idle_queues_->mutex);
    auto& idle = idle_queues_->of[profiling];
    if (!idle.empty()) {
      queue = std::move(idle.back());
      idle.pop_back();
    }
  }
  if (!queue) {
    cl_int status = CL_SUCCESS;
    queue = Owned<cl_command_queue, clReleaseCommandQueue>(clCreateCommandQueue(
        context_, device_, profiling ? CL_QUEUE_PROFILING_ENABLE : 0, &status));
    check(status, "clCreateCommandQueue");
  }
  return {queue.give_up(), [all = idle_queues_, profiling](cl_command_queue used) {
            const std::scoped_lock lock(all->mutex);
            all->of[profiling].emplace_back(used);
          }};
}

void Context::check(cl_int status, const char* call) const {
  if (status == CL_SUCCESS) return;
  if (loses_context(status)) {
    lost_ = true;
    any_context_lost = true;
  }
  throw DeviceError(
      fmt::format("{}: {} on {}: {}", call, print_status(status), info_.name, meaning_of(status)));
}

std::pair<cl_ulong, cl_ulong> Context::span_of(const Event& event) const {
  const auto moment = [&](cl_profiling_info which) {
    cl_ulong ns = 0;
    check(clGetEventProfilingInfo(event.get(), which, sizeof ns, &ns, nullptr),
          "clGetEventProfilingInfo");
    return ns;
  };
  return {moment(CL_PROFILING_COMMAND_START), moment(CL_PROFILING_COMMAND_END)};
}

std::size_t available_bytes(const DeviceInfo& info) {
  // cl_amd_device_attribute_query: free KiB in all, and in the largest block.
  constexpr cl_device_info free_memory_amd = 0x4039;
  const std::size_t held = std::min<std::size_t>(held_on(info.index), info.global_bytes);
  const std::size_t left = info.global_bytes - held;
  std::size_t free_kib[2] = {};
  const cl_device_id id = found_devices()[static_cast<std::size_t>(info.index)].id;
  if (clGetDeviceInfo(id, free_memory_amd, sizeof free_kib, free_kib, nullptr) != CL_SUCCESS) {
    return left;
  }
  return std::min(left, free_kib[0] * 1024);
}

HeldBytes::HeldBytes(const DeviceInfo& info, std::size_t bytes) : device_(info.index) {
  const std::size_t available = available_bytes(info);
  if (bytes > available) {
    throw DeviceError(
        fmt::format("out of device memory: {} bytes more are wanted, {} has {} and {} are free",
                    bytes, info.name, info.global_bytes, available));
  }
  bytes_ = bytes;
  held_on(device_) += bytes_;
}

void HeldBytes::reset() {
  if (bytes_ > 0) held_on(device_) -= std::exchange(bytes_, 0);
}

DeviceBuffer::DeviceBuffer(const Context& context, std::size_t bytes) : bytes_(bytes) {
  // Whole 16-byte vectors, so that a kernel may read the last one entirely; never empty.
  const std::size_t held = std::max<std::size_t>((bytes + 15) / 16 * 16, 16);
  // Some drivers promise any size and fail at its first use.
  if (held > context.info().max_buffer_bytes) {
    throw DeviceError(fmt::format("a buffer of {} bytes: {} allocates at most {} bytes at once",
                                  held, context.info().name, context.info().max_buffer_bytes));
  }
  held_ = HeldBytes(context.info(), held);
  cl_int status = CL_SUCCESS;
  cl_mem_flags flags = CL_MEM_READ_WRITE;
  if (context.info().kind == DeviceKind::cpu) {
    host_ = Buffer(held);
    flags |= CL_MEM_USE_HOST_PTR;
  }
  memory_ = Owned<cl_mem, clReleaseMemObject>(
      clCreateBuffer(context.handle(), flags, held, host_.data(), &status));
  context.check(status, fmt::format("clCreateBuffer of {} bytes", held).c_str());
}

PinnedBuffer::PinnedBuffer(const Context& context, cl_command_queue queue, std::size_t bytes)
    : queue_(queue) {
  cl_int status = CL_SUCCESS;
  memory_ = Owned<cl_mem, clReleaseMemObject>(
      clCreateBuffer(context.handle(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                     std::max<std::size_t>(bytes, 4), nullptr, &status));
  context.check(status, fmt::format("clCreateBuffer of {} bytes of the host", bytes).c_str());
  data_ = clEnqueueMapBuffer(queue, memory_.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                             std::max<std::size_t>(bytes, 4), 0, nullptr, nullptr, &status);
  context.check(status, "clEnqueueMapBuffer");
  bytes_ = bytes;
}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  queue_ = other.queue_;
  memory_ = std::move(other.memory_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void PinnedBuffer::reset() {
  if (data_ != nullptr) {
    clEnqueueUnmapMemObject(queue_, memory_.get(), std::exchange(data_, nullptr), 0, nullptr,
                            nullptr);
    clFinish(queue_);
  }
  memory_.reset();
}

KernelCall::KernelCall(const Context& context, cl_program program, const char* name) {
  cl_int status = CL_SUCCESS;
  kernel_ = Owned<cl_kernel, clReleaseKernel>(clCreateKernel(program, name, &status));
  context.check(status, "clCreateKernel");
}

void KernelCall::set_arg(const Context& context, cl_uint index, std::size_t bytes,
                         const void* value) {
  context.check(clSetKernelArg(kernel_.get(), index, bytes, value), "clSetKernelArg");
}

}  // namespace rooflane::opencl
