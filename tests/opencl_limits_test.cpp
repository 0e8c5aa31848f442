// What an OpenCL device cannot do, and what becomes of a plan then: kernels too large for it,
// memory that it does not have, contexts that are lost. Devices that fail as a whole:
// opencl_faults_test.py.
#include <doctest/doctest.h>

#include <regex>
#include <set>
#include <string>
#include <vector>

#include "backends/opencl_cold.hpp"
#include "backends/opencl_features.hpp"
#include "backends/opencl_plan.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "kernels/attention/opencl_tiles.hpp"
#include "opencl_device.hpp"

using namespace rooflane;
using test::has_device;

namespace {

const Catalogue& catalogue() {
  static const Catalogue built_in = Catalogue::built_in();
  return built_in;
}

Problem problem_of(const std::string& text) { return parse_problem(text, catalogue().kernels()); }

// A plan with a kernel that has a local array of KIB and is built with OPTIONS.
class GreedyPlan final : public opencl::DevicePlan {
 public:
  GreedyPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : DevicePlan(problem, tuning, env) {
    constexpr const char* source = R"(
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void greedy(__global float* y) {
  __local float tile[KIB * 256];
  for (int i = get_local_id(0); i < KIB * 256; i += ITEMS) tile[i] = y[i % 4];
  barrier(CLK_LOCAL_MEM_FENCE);
  y[get_local_id(0)] = tile[KIB * 256 - 1 - get_local_id(0)];
})";
    call_ = kernel(source, opencl::defines(tuning), "greedy");
  }

 private:
  void enqueue() override {}
  opencl::KernelCall call_;
};

// Twice what the device has: PoCL claims a share of the last cache, which may be hundreds of MiB.
std::int64_t too_many_kib() {
  return static_cast<std::int64_t>(opencl::features(0).static_local_bytes / 1024 * 2);
}

// PoCL 5 and 6 answer 0 bytes for a kernel's own local arrays: nothing shows that they do not fit,
// and PoCL takes them from the heap.
bool driver_tells_local_arrays() {
  const auto context = opencl::Context::open(0, 0);
  const opencl::KernelCall call(
      *context,
      context->program("__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void told("
                       "__global float* y) {"
                       "  __local float tile[64]; tile[(int)y[0] & 63] = y[1];"
                       "  barrier(CLK_LOCAL_MEM_FENCE); y[0] = tile[(int)y[2] & 63]; }",
                       ""),
      "told");
  cl_ulong bytes = 0;
  context->check(clGetKernelWorkGroupInfo(call.get(), context->device(), CL_KERNEL_LOCAL_MEM_SIZE,
                                          sizeof bytes, &bytes, nullptr),
                 "clGetKernelWorkGroupInfo");
  return bytes >= 64 * sizeof(float);
}

std::vector<Tuning> greedy_tunings(const Problem&, const Environment&) {
  return {{{"kib", too_many_kib()}, {"items", 4}},
          {{"kib", too_many_kib() / 2 + 1}, {"items", 4}},
          {{"kib", 4}, {"items", 4}},
          {{"kib", 1}, {"items", 4}}};
}

std::unique_ptr<Plan> greedy_plan(const Problem& problem, const Tuning& tuning,
                                  const Environment& env, const Operands&);

constexpr Tunable greedy_tunables[] = {{"kib", "KiB of local memory", 1, 1 << 22},
                                       {"items", "work-items of a group", 1, 1024}};

Variant greedy() {
  return {.name = "greedy",
          .kernel = catalogue().kernels().front(),
          .backend = &opencl::backend,
          .threads = Threads::device,
          .tunables = greedy_tunables,
          .unsupported = nullptr,
          .tunings = greedy_tunings,
          .plan = greedy_plan};
}

std::unique_ptr<Plan> greedy_plan(const Problem& problem, const Tuning& tuning,
                                  const Environment& env, const Operands&) {
  return std::make_unique<GreedyPlan>(problem, complete_tuning(greedy(), problem, env, tuning),
                                      env);
}

}  // namespace

TEST_CASE("of the default list the first tuning whose local memory the device has is planned") {
  if (!has_device()) return;
  const Problem problem = problem_of("softmax:rows=2,cols=8");
  Environment env;
  env.threads = 0;
  const auto plan = make_plan(greedy(), problem, {}, env, {});
  CHECK(plan->facts().tuning.get("kib", 0) == (driver_tells_local_arrays() ? 4 : too_many_kib()));
}

TEST_CASE("a tuning that was asked for and does not fit is an error with both sizes") {
  if (!has_device()) return;
  const Problem problem = problem_of("softmax:rows=2,cols=8");
  Environment env;
  env.threads = 0;
  try {
    make_plan(greedy(), problem, {{"kib", too_many_kib()}}, env, {});
    CHECK_FALSE(driver_tells_local_arrays());
  } catch (const UnfitTuning& error) {
    const std::string message = error.what();
    INFO(message);
    CHECK(message.find("greedy") != std::string::npos);
    const bool of_ours =
        message.find(std::to_string(too_many_kib() * 1024)) != std::string::npos &&
        message.find(std::to_string(opencl::features(0).static_local_bytes)) != std::string::npos;
    const std::regex of_ptxas(R"(\(0x[0-9a-f]+ bytes, 0x[0-9a-f]+ max\))");
    CHECK((of_ours || std::regex_search(message, of_ptxas)));
  }
}

TEST_CASE("a program that is wrong is no matter of tunings: the first of the list is the error") {
  if (!has_device()) return;
  const Problem problem = problem_of("softmax:rows=2,cols=8");
  Environment env;
  env.threads = 0;
  CHECK_THROWS_AS(make_plan(greedy(), problem, {{"items", 0}}, env, {}), BuildError);
}

TEST_CASE("memory that this process holds counts, before anything is allocated, until given back") {
  if (!has_device()) return;
  const auto context = opencl::Context::open(0, 0);
  const opencl::DeviceInfo& info = opencl::device(0);
  const std::size_t before = opencl::available_bytes(info);
  {
    const opencl::DeviceBuffer some(*context, 1 << 20);
    CHECK(opencl::available_bytes(info) == before - (1 << 20));
    opencl::HeldBytes rest(info, opencl::available_bytes(info));
    CHECK(opencl::available_bytes(info) == 0);
    CHECK_THROWS_AS(opencl::DeviceBuffer(*context, 4), opencl::DeviceError);
    const Problem problem = problem_of("softmax:rows=2,cols=8");
    Environment env;
    env.threads = 0;
    const auto reason = opencl::unsupported_anywhere(problem, env, 0);
    REQUIRE(reason);
    CHECK(reason->find("128 bytes of device memory exceed the 0 bytes that are free") !=
          std::string::npos);
    opencl::HeldBytes moved = std::move(rest);
    CHECK(opencl::available_bytes(info) == 0);
    moved = opencl::HeldBytes();
    CHECK(opencl::available_bytes(info) == before - (1 << 20));
  }
  CHECK(opencl::available_bytes(info) == before);
}

TEST_CASE("a lost context is replaced at the next opening, and the status says what it means") {
  if (!has_device()) return;
  for (const cl_int status : {CL_OUT_OF_RESOURCES, CL_INVALID_COMMAND_QUEUE, -9999}) {
    const auto lost = opencl::Context::open(0, 0);
    CHECK(lost == opencl::Context::open(0, 0));
    try {
      lost->check(status, "clFinish");
      FAIL("no error");
    } catch (const opencl::DeviceError& error) {
      const std::string message = error.what();
      CHECK(message.find("(" + std::to_string(status) + ")") != std::string::npos);
      CHECK(message.find(lost->info().name) != std::string::npos);
    }
    const auto fresh = opencl::Context::open(0, 0);
    CHECK(fresh != lost);
    CHECK(fresh->queue(false).get() != nullptr);
  }
  CHECK(opencl::context_was_lost());
}

TEST_CASE("an allocation that fails loses no context") {
  if (!has_device()) return;
  const auto context = opencl::Context::open(0, 0);
  CHECK_THROWS_AS(context->check(CL_MEM_OBJECT_ALLOCATION_FAILURE, "clCreateBuffer"),
                  opencl::DeviceError);
  CHECK(context == opencl::Context::open(0, 0));
}

TEST_CASE("features of a device without inline PTX name why its code path is the portable one") {
  if (!has_device()) return;
  const opencl::Features& features = opencl::features(0);
  CHECK(features.static_local_bytes >= opencl::device(0).local_bytes);
  CHECK(features.missing.empty() == features.nvidia_code_path());
  CHECK(&features == &opencl::features(0));
  CHECK_FALSE(opencl::plain_kernel_failure(0));
  CHECK_THROWS_AS(opencl::features(1000), Error);
  opencl::Features some;
  some.missing = "cp.async: does not build";
  some.inline_ptx = true;
  some.static_local_bytes = 48 * 1024;
  CHECK(opencl::print_features(some) ==
        "portable code path only: cp.async: does not build (has inline PTX); local arrays up to 48 "
        "KiB");
  some.shuffle = some.copy_async = some.mma_tf32 = some.mma_f16 = some.wgmma = true;
  some.static_local_bytes = 224 * 1024;
  some.missing = "";
  CHECK(
      opencl::print_features(some) ==
      "code path nvidia: inline PTX, shuffles, cp.async, tensor cores tf32 f16 wgmma; local arrays "
      "up to 224 KiB");
  some.wgmma = false;
  some.no_wgmma = "gives -1 at work-item 0, expected 992";
  CHECK(
      opencl::print_features(some) ==
      "code path nvidia: inline PTX, shuffles, cp.async, tensor cores tf32 f16; no wgmma: gives -1 "
      "at work-item 0, expected 992; local arrays up to 224 KiB");
}

TEST_CASE("a queue that was let go of is given out again, and one in use is not") {
  if (!has_device()) return;
  const auto context = opencl::Context::fresh(0);
  opencl::Queue queue = context->queue(false);
  const opencl::Queue other = context->queue(false), profiling = context->queue(true);
  cl_command_queue const first = queue.get();
  CHECK(other.get() != first);
  queue.reset();
  CHECK(context->queue(true).get() != first);
  CHECK(context->queue(false).get() == first);
}

TEST_CASE("large operands rotate over copies of several caches' size that hold the same") {
  if (!has_device()) return;
  const auto context = opencl::Context::open(0, 0);
  const opencl::Queue queue = context->queue(false);
  constexpr std::size_t bytes = 1 << 16;
  const opencl::DeviceBuffer x(*context, bytes), y(*context, bytes), other(*context, 4);
  const auto fill = [&](cl_mem memory, float value) {
    context->check(clEnqueueFillBuffer(queue.get(), memory, &value, sizeof value, 0, bytes, 0,
                                       nullptr, nullptr),
                   "clEnqueueFillBuffer");
  };
  const auto last_of = [&](cl_mem memory) {
    float value = 0;
    context->check(clEnqueueReadBuffer(queue.get(), memory, CL_TRUE, bytes - sizeof value,
                                       sizeof value, &value, 0, nullptr, nullptr),
                   "clEnqueueReadBuffer");
    return value;
  };
  fill(x.get(), 1);
  fill(y.get(), 2);
  const opencl::DeviceBuffer* const originals[] = {&x, &y};
  // Four times 256 KiB in sets of 128 KiB.
  opencl::ColdCopies cold(*context, queue.get(), originals, 256 * 1024);
  CHECK_FALSE(cold.displaces());
  REQUIRE(cold.count() == 8);
  std::set<cl_mem> seen;
  for (int turn = 0; turn < 8; ++turn) {
    seen.insert({cold.at(x.get()), cold.at(y.get())});
    CHECK(last_of(cold.at(x.get())) == 1);
    CHECK(last_of(cold.at(y.get())) == 2);
    CHECK(cold.at(other.get()) == other.get());
    cold.turn();
  }
  CHECK(seen.size() == 16);
  CHECK(cold.at(x.get()) == x.get());
}

TEST_CASE("small operands stay where they are and are displaced") {
  if (!has_device()) return;
  const auto context = opencl::Context::open(0, 0);
  const opencl::Queue queue = context->queue(false);
  const opencl::DeviceBuffer x(*context, 1024);
  const opencl::DeviceBuffer* const originals[] = {&x};
  opencl::ColdCopies cold(*context, queue.get(), originals, 1 << 20);
  CHECK(cold.displaces());
  cold.turn();
  CHECK(cold.at(x.get()) == x.get());
}

TEST_CASE(
    "attention: tiles are found for every length, fit the device and leave no split without keys") {
  opencl::DeviceInfo info;
  info.compute_units = 132;
  info.max_work_group = 1024;
  opencl::Features found;
  found.inline_ptx = found.shuffle = found.copy_async = true;
  found.static_local_bytes = 232448;
  const common::Device device(info, found);
  const Variant& variant = *catalogue().variant(catalogue().kernel("attention"), "opencl").variant;
  for (std::int64_t q_len : {1, 3, 61, 1021, 70000}) {
    for (std::int64_t kv_len : {0, 1, 197, 5003}) {
      for (const char* rest :
           {"batch=1,heads=2,head_dim=1", "batch=3,heads=8,kv_heads=2,head_dim=80",
            "batch=1,heads=16,head_dim=256", "batch=0,heads=1,head_dim=64"}) {
        for (const char* causal : {"0", "1"}) {
          const std::string text = std::string(rest) + ",q_len=" + std::to_string(q_len) +
                                   ",kv_len=" + std::to_string(kv_len) + ",causal=" + causal;
          INFO(text);
          const attention::Sizes s(problem_of("attention:" + text));
          const std::vector<common::Guess> list = attention::tiles_guesses(s, device);
          CHECK_FALSE(list.empty());
          for (const common::Guess& guess : list) {
            const auto t = common::read_tuning<attention::Tiles>(variant.tunables, guess.tuning);
            CHECK_FALSE(t.defect(s, device));
            CHECK(t.resident(device, s.head_dim) * t.local_bytes(s.head_dim) <= 233472);
            // A split beyond the last tile of keys would have nothing to do.
            CHECK(t.splits >= 1);
            const std::int64_t tiles = attention::ceil_div(kv_len, t.splits * t.bk);
            CHECK((t.splits - 1) * tiles * t.bk < std::max<std::int64_t>(kv_len, 1));
          }
        }
      }
    }
  }
}
