// Device copies of operands: gaps in a host view are closed in staging memory, so that every
// transfer is one contiguous copy and kernels see dense arrays only.
#include "backends/opencl_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>

#include "backends/opencl_features.hpp"
#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane::opencl {
namespace {

// Kernels of two runs (the first and the last of those timed together), tensors of one transfer: no
// room comes near. Reserved so that `run` allocates nothing.
constexpr std::size_t most_events = 16;

bool is_dense(const View& view) {
  std::int64_t dense_stride = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    if (view.shape[axis] != 1 && view.strides[axis] != dense_stride) return false;
    dense_stride *= view.shape[axis];
  }
  return true;
}

std::size_t dense_bytes(const View& view) { return view.dtype->bytes(view.elements()); }

// body(row of the view, row of the dense array) for every row of the last axis.
template <class Body>
void for_each_row(const View& view, std::byte* dense, Body body) {
  if (view.empty()) return;
  const std::size_t row_bytes = view.dtype->bytes(view.cols());
  for (std::int64_t row = 0; row < view.rows(); ++row, dense += row_bytes) {
    body(view.row(row), dense, row_bytes);
  }
}

void close_gaps(const View& view, std::byte* dense) {
  for_each_row(view, dense, [](const std::byte* row, std::byte* to, std::size_t bytes) {
    std::memcpy(to, row, bytes);
  });
}

void open_gaps(const View& view, std::byte* dense) {
  for_each_row(view, dense, [](std::byte* row, const std::byte* from, std::size_t bytes) {
    std::memcpy(row, from, bytes);
  });
}

// The line of a build log in which a compiler says that a kernel is too large for a group; nothing
// when the program is wrong in another way. The words of NVIDIA's, AMD's and Intel's compilers.
std::optional<std::string> resource_complaint(std::string_view log) {
  for (const std::string_view line : split(log, '\n')) {
    for (const char* words :
         {"uses too much", "exceeds limit", "exceeds available", "local memory limit exceeded"}) {
      if (line.find(words) != std::string_view::npos) return std::string(line);
    }
  }
  return std::nullopt;
}

template <class T>
T group_info(const Context& context, const KernelCall& call, cl_kernel_work_group_info what) {
  T value{};
  context.check(
      clGetKernelWorkGroupInfo(call.get(), context.device(), what, sizeof value, &value, nullptr),
      "clGetKernelWorkGroupInfo");
  return value;
}

// What the compiler knows once a kernel is built: how many items its registers allow, and how much
// local memory a group takes.
void require_fit(const Context& context, const KernelCall& call, const char* name) {
  const DeviceInfo& info = context.info();
  const auto size =
      group_info<std::array<std::size_t, 3>>(context, call, CL_KERNEL_COMPILE_WORK_GROUP_SIZE);
  const auto most = group_info<std::size_t>(context, call, CL_KERNEL_WORK_GROUP_SIZE);
  const std::size_t items = size[0] * size[1] * size[2];  // 0: the kernel names no size
  // NVIDIA's driver says 256 whatever a kernel takes, and runs groups of 512 and 1024.
  const bool is_nvidia = info.vendor.find("NVIDIA") != std::string::npos;
  if (items > most && !is_nvidia) {
    throw UnfitTuning(
        fmt::format("kernel {} needs groups of {} work-items, {} has registers for {}", name, items,
                    info.name, most));
  }
  const auto local = group_info<cl_ulong>(context, call, CL_KERNEL_LOCAL_MEM_SIZE);
  if (local <= info.local_bytes) return;
  const std::size_t allowed = features(info.index).static_local_bytes;
  if (local > allowed) {
    throw UnfitTuning(fmt::format("kernel {} needs {} bytes of local memory, {} has {}", name,
                                  local, info.name, allowed));
  }
}

}  // namespace

std::optional<std::string> unsupported_anywhere(const Problem& problem, const Environment& env,
                                                double workspace_bytes) {
  const std::vector<DeviceInfo>& all = devices();
  if (env.device < 0 || env.device >= static_cast<int>(all.size())) {
    try {
      device(env.device);
    } catch (const Error& error) {
      return error.what();
    }
  }
  const DeviceInfo& info = device(env.device);
  if (auto reason = unsupported_threads(info, env.threads)) return reason;
  double total = workspace_bytes;
  double largest = workspace_bytes;
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    const double bytes = tensor_bytes(problem, tensor);
    total += bytes;
    largest = std::max(largest, bytes);
  }
  if (largest > static_cast<double>(info.max_buffer_bytes)) {
    return fmt::format("one buffer of {:.0f} bytes exceeds the {} bytes that {} allows", largest,
                       info.max_buffer_bytes, info.name);
  }
  if (total > static_cast<double>(info.global_bytes)) {
    return fmt::format("{:.0f} bytes of device memory exceed the {} bytes of {}", total,
                       info.global_bytes, info.name);
  }
  if (const std::size_t available = available_bytes(info); total > static_cast<double>(available)) {
    return fmt::format("{:.0f} bytes of device memory exceed the {} bytes that are free on {}",
                       total, available, info.name);
  }
  return std::nullopt;
}

std::string defines(const Tuning& tuning) {
  std::string text;
  for (const auto& [key, value] : tuning.values()) {
    std::string name = key;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    text += fmt::format(" -D{}={}", name, value);
  }
  return text;
}

template <class Command>
void DevicePlan::enqueue_in(Phase& phase, const char* call, Command command) {
  cl_event raw = nullptr;
  context_->check(command(records_events_ ? &raw : nullptr), call);
  if (records_events_) phase.emplace_back(raw);
}

DevicePlan::DevicePlan(const Problem& problem, const Tuning& tuning, const Environment& env)
    : Plan(problem),
      context_(Context::open(env.device, env.threads)),
      tuning_(tuning),
      records_events_(env.device_timer || context_->info().kind != DeviceKind::cpu),
      queue_(context_->queue(records_events_)) {
  for (Phase* phase : {&upload_, &run_, &download_}) phase->reserve(most_events);
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    if (tensor.role == Role::constant) continue;
    const auto bytes = static_cast<std::size_t>(tensor_bytes(problem, tensor));
    copies_.push_back({tensor.name, tensor.role, DeviceBuffer(*context_, bytes), PinnedBuffer()});
  }
}

KernelCall DevicePlan::kernel(const char* source, const std::string& options, const char* name) {
  cl_program program = nullptr;
  try {
    program = context_->program(source, options);
  } catch (const BuildError& error) {
    if (const auto line = resource_complaint(error.what())) throw UnfitTuning(*line);
    throw;
  }
  KernelCall call(*context_, program, name);
  require_fit(*context_, call, name);
  return call;
}

cl_mem DevicePlan::copy_of(std::string_view tensor) const {
  for (const Copy& copy : copies_) {
    if (copy.tensor == tensor) return now(copy.memory.get());
  }
  return nullptr;
}

cl_mem DevicePlan::workspace(std::size_t bytes) {
  return workspace_.emplace_back(*context_, bytes).get();
}

cl_mem DevicePlan::zeroed_workspace(std::size_t bytes) {
  cl_mem memory = workspace(bytes);
  const cl_uchar zero = 0;
  context_->check(
      clEnqueueFillBuffer(queue_.get(), memory, &zero, sizeof zero, 0, bytes, 0, nullptr, nullptr),
      "clEnqueueFillBuffer");
  context_->check(clFinish(queue_.get()), "clFinish");
  return memory;
}

cl_mem DevicePlan::packed(std::size_t bytes) {
  return packed_.emplace_back(*context_, bytes).get();
}

cl_mem DevicePlan::copy_of(std::string_view tensor, const Operands& constants) {
  const std::vector<TensorSpec> tensors = problem().kernel().tensors(problem());
  const bool is_constant = std::any_of(tensors.begin(), tensors.end(), [&](const TensorSpec& spec) {
    return spec.name == tensor && spec.role == Role::constant;
  });
  if (!is_constant) return copy_of(tensor);
  const View& view = constants.at(tensor);
  cl_mem memory = packed(view.dtype->bytes(view.elements()));
  write_now(memory, view);
  return memory;
}

void DevicePlan::write_now(cl_mem target, const View& view) {
  const std::size_t bytes = dense_bytes(view);
  if (bytes == 0) return;
  Buffer staging;
  const void* from = view.data;
  if (!is_dense(view)) {
    staging = Buffer(bytes);
    close_gaps(view, static_cast<std::byte*>(staging.data()));
    from = staging.data();
  }
  context_->check(
      clEnqueueWriteBuffer(queue_.get(), target, CL_TRUE, 0, bytes, from, 0, nullptr, nullptr),
      "clEnqueueWriteBuffer");
}

void DevicePlan::add_step(KernelCall call, std::int64_t groups, std::int64_t items) {
  steps_.push_back({.call = std::move(call),
                    .size = {static_cast<std::size_t>(groups), static_cast<std::size_t>(items)}});
}

void DevicePlan::add_description(KernelCall call, const std::array<cl_mem, 3>& operands) {
  add_step(std::move(call), 1, 1);
  steps_.back().describes = true;
  steps_.back().operands = operands;
}

void DevicePlan::enqueue() {
  for (Step& step : steps_) {
    if (step.describes) {
      std::array<cl_mem, 3> current = step.operands;
      for (cl_mem& memory : current) memory = now(memory);
      if (current == step.described) continue;
      step.described = current;
    }
    launch(step.call, step.size);
  }
}

void DevicePlan::launch(const KernelCall& kernel, const Launch& size) {
  if (size.groups == 0) return;
  const std::size_t global = size.groups * size.group_items;
  if (cold_) {
    for (const auto& [index, memory] : kernel.buffers()) {
      cl_mem current = now(memory);
      context_->check(clSetKernelArg(kernel.get(), index, sizeof(cl_mem), &current),
                      "clSetKernelArg");
    }
  }
  enqueue_in(run_, "clEnqueueNDRangeKernel", [&](cl_event* event) {
    return clEnqueueNDRangeKernel(queue_.get(), kernel.get(), 1, nullptr, &global,
                                  &size.group_items, 0, nullptr, event);
  });
}

void DevicePlan::enqueue_call(const char* name,
                              FunctionRef<cl_int(cl_command_queue*, cl_event*)> call) {
  if (records_events_) {
    enqueue_in(run_, "clEnqueueMarkerWithWaitList", [&](cl_event* event) {
      return clEnqueueMarkerWithWaitList(queue_.get(), 0, nullptr, event);
    });
  }
  cl_command_queue queue = queue_.get();
  enqueue_in(run_, name, [&](cl_event* event) { return call(&queue, event); });
}

void DevicePlan::wait_now() {
  context_->check(clFinish(queue_.get()), "clFinish");
  run_.clear();
}

void DevicePlan::on_bind(const Operands& operands) {
  for (Copy& copy : copies_) {
    const View& view = operands.at(copy.tensor);
    copy.staging =
        is_dense(view) ? PinnedBuffer() : PinnedBuffer(*context_, queue_.get(), dense_bytes(view));
  }
}

void DevicePlan::upload() {
  upload_.clear();
  for (Copy& copy : copies_) {
    if (!is_read(copy.role) || copy.memory.bytes() == 0) continue;
    const View& view = bound_.at(copy.tensor);
    const void* from = view.data;
    if (copy.staging.data() != nullptr) {
      close_gaps(view, static_cast<std::byte*>(copy.staging.data()));
      from = copy.staging.data();
    }
    enqueue_in(upload_, "clEnqueueWriteBuffer", [&](cl_event* event) {
      return clEnqueueWriteBuffer(queue_.get(), now(copy.memory.get()), CL_FALSE, 0,
                                  copy.memory.bytes(), from, 0, nullptr, event);
    });
  }
  context_->check(clFinish(queue_.get()), "clFinish");
}

void DevicePlan::run() {
  run_.clear();
  if (writes_nothing()) return;
  enqueue();
  context_->check(clFinish(queue_.get()), "clFinish");
}

bool DevicePlan::writes_nothing() const {
  return std::all_of(copies_.begin(), copies_.end(), [](const Copy& copy) {
    return !is_written(copy.role) || copy.memory.bytes() == 0;
  });
}

void DevicePlan::hold(double ns) {
  // A multiply-add that waits for the one before takes 4 clocks or more, of at most 3 GHz.
  constexpr double step_ns = 1.3;
  constexpr const char* source =
      "__kernel void hold(__global float* out, float x, int steps) {\n"
      "  for (int i = 0; i < steps; ++i) x = fma(x, 0.5f, 1.0f);\n"
      "  if (x < 0.0f) *out = x;\n"
      "}\n";
  KernelCall call = kernel(source, "", "hold");
  call.set_args(*context_, copies_.back().memory.get(), cl_float{1},
                static_cast<cl_int>(ns / step_ns));
  const std::size_t one = 1;
  context_->check(
      clEnqueueNDRangeKernel(queue_.get(), call.get(), 1, nullptr, &one, &one, 0, nullptr, nullptr),
      "clEnqueueNDRangeKernel");
}

double DevicePlan::time_queued(std::int64_t runs) {
  using Clock = std::chrono::steady_clock;
  // The most: a host that was paused, or a queue that was full, must not hold the device up ever
  // longer.
  constexpr double least_hold_ns = 2e5;
  constexpr double most_hold_ns = 2e7;
  if (context_->info().kind != DeviceKind::cpu) {
    hold(std::clamp(1.5 * queueing_ns_ * static_cast<double>(runs), least_hold_ns, most_hold_ns));
  }
  run_.clear();
  const auto begin = Clock::now();
  // Events of the others would come between the runs.
  struct Restored {
    bool& flag;
    ~Restored() { flag = true; }
  } records{records_events_};
  for (std::int64_t i = 0; i < runs; ++i) {
    records.flag = i == 0 || i + 1 == runs;
    enqueue();
  }
  queueing_ns_ = std::chrono::duration<double, std::nano>(Clock::now() - begin).count() /
                 static_cast<double>(runs);
  context_->check(clFinish(queue_.get()), "clFinish");
  return span_ns(run_);
}

std::optional<double> DevicePlan::time_device_runs(std::int64_t runs) {
  if (!records_events_) return std::nullopt;
  if (writes_nothing()) return 0;
  constexpr std::int64_t most_queued = 256;  // drivers' queues end somewhere
  // Shows how long queueing takes.
  if (queueing_ns_ == 0) time_queued(std::min<std::int64_t>(runs, 16));
  double total = 0;
  for (std::int64_t first = 0; first < runs; first += most_queued) {
    total += time_queued(std::min(most_queued, runs - first));
  }
  return total / static_cast<double>(runs);
}

void DevicePlan::download() {
  download_.clear();
  for (Copy& copy : copies_) {
    if (!is_written(copy.role) || copy.memory.bytes() == 0) continue;
    const View& view = bound_.at(copy.tensor);
    const bool is_staged = copy.staging.data() != nullptr;
    void* to = is_staged ? copy.staging.data() : view.data;
    enqueue_in(download_, "clEnqueueReadBuffer", [&](cl_event* event) {
      return clEnqueueReadBuffer(queue_.get(), now(copy.memory.get()), CL_FALSE, 0,
                                 copy.memory.bytes(), to, 0, nullptr, event);
    });
    context_->check(clFinish(queue_.get()), "clFinish");
    if (is_staged) open_gaps(view, static_cast<std::byte*>(to));
  }
}

std::vector<std::span<const std::byte>> DevicePlan::regions() const {
  std::vector<std::span<const std::byte>> all;
  const auto add = [&](const DeviceBuffer& memory) {
    if (memory.host().data() == nullptr || memory.bytes() == 0) return;
    all.emplace_back(static_cast<const std::byte*>(memory.host().data()), memory.bytes());
  };
  for (const Copy& copy : copies_) add(copy.memory);
  for (const DeviceBuffer& memory : packed_) add(memory);
  return all;
}

bool DevicePlan::turn_cold() {
  if (context_->info().kind == DeviceKind::cpu) return false;
  if (!cold_) {
    std::vector<const DeviceBuffer*> originals;
    for (const Copy& copy : copies_) originals.push_back(&copy.memory);
    for (const DeviceBuffer& memory : packed_) originals.push_back(&memory);
    cold_.emplace(*context_, queue_.get(), originals);
  }
  cold_->turn();
  return true;
}

PlanFacts DevicePlan::facts() const {
  PlanFacts facts;
  facts.device = context_->info().name;
  facts.driver = context_->info().driver;
  facts.tuning = tuning_;
  facts.path = path_;
  for (const DeviceBuffer& memory : workspace_) facts.workspace_bytes += memory.bytes();
  for (const Copy& copy : copies_) facts.workspace_bytes += copy.staging.bytes();
  for (const DeviceBuffer& memory : packed_) facts.packed_bytes += memory.bytes();
  return facts;
}

std::optional<DeviceTimes> DevicePlan::device_times() const {
  if (!records_events_) return std::nullopt;
  return DeviceTimes{.on_cpu = context_->info().kind == DeviceKind::cpu,
                     .h2d_ns = span_ns(upload_),
                     .kernel_ns = span_ns(run_),
                     .d2h_ns = span_ns(download_)};
}

double DevicePlan::span_ns(const Phase& phase) const {
  cl_ulong first = ~cl_ulong{0};
  cl_ulong last = 0;
  for (const Event& event : phase) {
    const auto [start, end] = context_->span_of(event);
    first = std::min(first, start);
    last = std::max(last, end);
  }
  return last > first ? static_cast<double>(last - first) : 0;
}

}  // namespace rooflane::opencl
