// The plan that every opencl variant derives from: device copies of the operands, upload, launches
// with events, download. A room adds its kernels, their arguments and sizes.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/opencl.hpp"
#include "backends/opencl_cold.hpp"
#include "core/variant.hpp"

namespace rooflane::opencl {

// Why no plan for this problem can work on env's device: no such device, a number of threads it
// cannot give, a math that these kernels lack, or operands plus `workspace_bytes` larger than its
// memory (in bytes). Rooms call it first in `unsupported`.
std::optional<std::string> unsupported_anywhere(const Problem& problem, const Environment& env,
                                                double workspace_bytes);

// Work-items: total and per group in one dimension. Rooms flatten their grids, since some drivers
// take no more than 65535 groups in the second and third dimension.
struct Launch {
  std::size_t groups;
  std::size_t group_items;
};

// " -DTM=8 -DTV=3": every tunable as a macro in capitals.
std::string defines(const Tuning& tuning);

class DevicePlan : public Plan {
 public:
  // Copies every input except constants; waits for the last one.
  void upload() final;
  // Launches the room's kernels and waits. Reads and writes the device copies.
  void run() final;
  void download() final;
  // On a CPU device the device copies; on others nothing, since no host access evicts their caches.
  std::vector<std::span<const std::byte>> regions() const final;
  // By turning to other copies of the operands or by displacing what the device's caches hold
  // (opencl_cold.hpp). False on a CPU device.
  bool turn_cold() final;
  PlanFacts facts() const override;
  // Recorded on every device but a CPU, where `device_timer` asks for it: a few µs per launch
  // there, which steady rows would carry.
  std::optional<DeviceTimes> device_times() const final;
  // From the first run's start to the last one's end. They are queued while the device is held up,
  // as by a host that runs ahead of it: the time contains no queueing, except on CPU devices.
  std::optional<double> time_device_runs(std::int64_t runs) final;

 protected:
  // Makes a device copy for every tensor but constants. Throws Error, DeviceError.
  DevicePlan(const Problem& problem, const Tuning& tuning, const Environment& env);

  Context& context() { return *context_; }
  const Tuning& tuning() const { return tuning_; }
  // Throws UnfitTuning when the device has too few registers or too little local memory for a group
  // of the size that the kernel names by reqd_work_group_size; BuildError, DeviceError.
  KernelCall kernel(const char* source, const std::string& options, const char* name);
  // The device copy of a tensor that is not a constant. In cold runs kernels get other copies in
  // its place: `launch` replaces arguments that were set before.
  cl_mem copy_of(std::string_view tensor) const;
  // The same of a tensor that is a constant in some problems: then it is kept as it lies among
  // `constants`, counted as packed; waits.
  cl_mem copy_of(std::string_view tensor, const Operands& constants);
  // Device memory beside the copies; counted in workspace_bytes.
  cl_mem workspace(std::size_t bytes);
  // The same, all bytes 0; waits.
  cl_mem zeroed_workspace(std::size_t bytes);
  // A constant packed while planning; counted in packed_bytes and evicted with the operands.
  cl_mem packed(std::size_t bytes);
  // Writes a view of host memory without gaps into device memory; waits. For constants.
  void write_now(cl_mem target, const View& view);
  // What stands for a device copy or packed constant now: in cold runs it changes.
  cl_mem now(cl_mem memory) const { return cold_ ? cold_->at(memory) : memory; }
  // What a run launches, in order.
  void add_step(KernelCall call, std::int64_t groups, std::int64_t items);
  // The same of a kernel of one work-item that writes down addresses of operands (tensor maps): a
  // run launches it if the operands are others than last time.
  void add_description(KernelCall call, const std::array<cl_mem, 3>& operands);
  // Arguments that are sizes: int of a kernel.
  template <class... Sizes>
  void add_sizes(KernelCall& call, Sizes... sizes) {
    call.add_args(context(), static_cast<cl_int>(sizes)...);
  }
  // Enqueues one kernel; does nothing for zero groups. `wait_now` is for packing while planning.
  void launch(const KernelCall& kernel, const Launch& size);
  void wait_now();

  // Enqueues what a library offers: `call` gets the queue and where to put its last event, and
  // returns a status. The library's other kernels count too: a marker notes where they start.
  void enqueue_call(const char* name, FunctionRef<cl_int(cl_command_queue*, cl_event*)> call);

  // Enqueues every kernel of one run with `launch`: the steps, unless a room does it itself. Not
  // called when the output is empty.
  virtual void enqueue();
  void on_bind(const Operands& operands) override;

  std::string path_;  // PlanFacts has it

 private:
  struct Step {
    KernelCall call;
    Launch size;
    bool describes = false;
    std::array<cl_mem, 3> operands{}, described{};
  };
  struct Copy {
    std::string tensor;
    Role role;
    DeviceBuffer memory;
    PinnedBuffer staging;  // only while the bound view has gaps
  };
  // The events of the last upload, run or download. They are read when somebody asks, so that
  // `run` only pays for recording them.
  using Phase = std::vector<Event>;
  // First start to last end, nanoseconds.
  double span_ns(const Phase& phase) const;
  double time_queued(std::int64_t runs);
  // Keeps the device busy for at least so long, by one item.
  void hold(double ns);
  bool writes_nothing() const;
  // Enqueues a command of the phase: `command` gets where to put its event, null for none, and
  // returns its status.
  template <class Command>
  void enqueue_in(Phase& phase, const char* call, Command command);

  std::shared_ptr<Context> context_;
  Tuning tuning_;
  bool records_events_;
  double queueing_ns_ = 0;  // what queueing a run took the host
  Queue queue_;
  std::vector<Copy> copies_;
  std::vector<DeviceBuffer> workspace_;
  std::vector<DeviceBuffer> packed_;
  std::vector<Step> steps_;
  std::optional<ColdCopies> cold_;
  Phase upload_, run_, download_;
};

}  // namespace rooflane::opencl
