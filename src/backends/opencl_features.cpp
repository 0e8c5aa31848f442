// Probes: each feature is a program of its own, in a context apart from those that plans share, so
// that one which faults takes nothing with it.
#include "backends/opencl_features.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>

#include "backends/opencl.hpp"
#include "backends/opencl_ptx.hpp"
#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane::opencl {
namespace {

constexpr int items = 32;

// Every probe fills `out`, one int per work-item of one group (of its first 32), from `in` = 0, 1,
// … 31.
constexpr char plain_source[] = R"(
__kernel void probe(__global const int* in, __global int* out) {
  out[get_local_id(0)] = in[get_local_id(0)] + 7;
})";

constexpr char inline_ptx_source[] = R"(
__kernel void probe(__global const int* in, __global int* out) {
  int y;
  asm volatile("add.s32 %0, %1, 7;" : "=r"(y) : "r"(in[get_local_id(0)]));
  out[get_local_id(0)] = y;
})";

constexpr char shuffle_source[] = R"(
__kernel void probe(__global const int* in, __global int* out) {
  int y;
  asm volatile("shfl.sync.bfly.b32 %0, %1, 5, 31, 0xffffffff;" : "=r"(y) : "r"(in[get_local_id(0)]));
  out[get_local_id(0)] = y;
})";

constexpr char copy_async_source[] = R"(
__kernel void probe(__global const int* in, __global int* out) {
  __local int tile[32] __attribute__((aligned(16)));
  const int i = get_local_id(0);
  if (i < 8)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"((uint)(size_t)(tile + 4 * i)), "l"((size_t)(in + 4 * i)), "r"(16) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  barrier(CLK_LOCAL_MEM_FENCE);
  out[i] = tile[31 - i];
})";

// a is 16×8 of ones, b 8×8 with column j all j: every element of column j of the product is 8j.
constexpr char mma_tf32_source[] = R"(
__kernel void probe(__global const int* in, __global int* out) {
  const int lane = get_local_id(0);
  const uint one = 0x3f800000u + (uint)(in[lane] - lane);
  const uint b = as_uint((float)(lane / 4));
  float c0, c1, c2, c3;
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%6,%6,%6,%6};"
               : "=f"(c0), "=f"(c1), "=f"(c2), "=f"(c3) : "r"(one), "r"(b), "f"(0.0f));
  out[lane] = (int)(c0 + 100.0f * c1 + 10000.0f * (c2 - c0) + 10000.0f * (c3 - c1));
})";

constexpr char mma_f16_source[] = R"(
__kernel void probe(__global const int* in, __global int* out) {
  const int lane = get_local_id(0);
  const uint one = 0x3c003c00u + (uint)(in[lane] - lane);
  float c0, c1, c2, c3;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%6,%6,%6,%6};"
               : "=f"(c0), "=f"(c1), "=f"(c2), "=f"(c3) : "r"(one), "r"(lane / 4 % 2 ? one : 0u), "f"(0.0f));
  out[lane] = (int)(c0 + 100.0f * c1 + 10000.0f * (c2 - c0) + 10000.0f * (c3 - c1));
})";

// -1 if the copy never arrives. `in` as a map of 128-byte rows (all but the first lie beyond its
// edge and read as zero) is copied to local memory as b, 8 columns along k; a is 64 rows of ones.
// Column 0 of the product is the sum of `in`, the others are zero. The map is kept in `out` until
// then.
constexpr char wgmma_source[] = R"(
#define SET(field) asm volatile("//sm_90a tensormap.replace.tile." field :: "l"(out) : "memory")
__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void probe(__global const int* in,
                                                                     __global int* out) {
  __local uint a[64 * 32] __attribute__((aligned(1024)));
  __local uint b[8 * 32] __attribute__((aligned(1024)));
  __local ulong arrived[1];
  const int lid = get_local_id(0);
  const uint full = (uint)(size_t)arrived;
  for (int i = lid; i < 64 * 32; i += 128) a[i] = 0x01010101;
  if (lid == 0) {
    for (int i = 0; i < 32; ++i) out[i] = 0;
    asm volatile("//sm_90a tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;"
                 :: "l"(out), "l"(in) : "memory");
    SET("rank.global.b1024.b32 [%0], 1;");
    SET("box_dim.global.b1024.b32 [%0], 0, 128;");
    SET("box_dim.global.b1024.b32 [%0], 1, 8;");
    SET("global_dim.global.b1024.b32 [%0], 0, 128;");
    SET("global_dim.global.b1024.b32 [%0], 1, 1;");
    SET("global_stride.global.b1024.b64 [%0], 0, 128;");
    SET("element_stride.global.b1024.b32 [%0], 0, 1;");
    SET("element_stride.global.b1024.b32 [%0], 1, 1;");
    SET("elemtype.global.b1024.b32 [%0], 0;");
    SET("interleave_layout.global.b1024.b32 [%0], 0;");
    SET("swizzle_mode.global.b1024.b32 [%0], 3;");
    SET("fill_mode.global.b1024.b32 [%0], 0;");
    asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(out) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full) : "memory");
  }
  asm volatile("fence.proxy.async;" ::: "memory");
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lid == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" :: "r"(full) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %2}], [%3];"
                 :: "r"((uint)(size_t)b), "l"(out), "r"(0), "r"(full) : "memory");
  }
  // Some tenths of a second of tests; the copy takes a microsecond.
  int has_arrived = 0;
  for (int i = 0; i < (1 << 22) && !has_arrived; ++i) {
    asm volatile("{\n\t.reg .pred over;\n\t"
                 "mbarrier.test_wait.parity.shared::cta.b64 over, [%1], 0;\n\t"
                 "selp.s32 %0, 1, 0, over;\n\t}"
                 : "=r"(has_arrived) : "r"(full) : "memory");
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong layout = ((ulong)1 << 62) | ((ulong)64 << 32);
  int sum[4] = {0, 0, 0, 0};
  WGMMA_FENCE(sum);
#pragma unroll
  for (int s = 0; s < 4; ++s)
    WGMMA(sum, (layout | ((uint)(size_t)a >> 4)) + 2 * s, (layout | ((uint)(size_t)b >> 4)) + 2 * s,
          1);
  asm volatile("//sm_90a wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("//sm_90a wgmma.wait_group.sync.aligned 0;" ::: "memory");
  WGMMA_DONE(sum);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lid < 32) out[lid] = has_arrived ? sum[0] + 1000 * sum[1] + sum[2] + 1000 * sum[3] : -1;
})";

// An array of BYTES is written at both ends and in between, and read by other items.
constexpr char local_source[] = R"(
__kernel void probe(__global const int* in, __global int* out) {
  __local int tile[BYTES / 4];
  const int i = get_local_id(0);
  const int stride = (BYTES / 4 - 1) / 31;
  for (int j = i; j < BYTES / 4; j += 32) tile[j] = -1;
  barrier(CLK_LOCAL_MEM_FENCE);
  tile[i * stride] = in[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  out[i] = tile[(31 - i) * stride];
})";

using Expected = int (*)(int lane);

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The compiler's own words: they follow the line that names status, device and options.
std::string first_line_of_log(const std::string& message) {
  const std::size_t log =
      message.find_first_not_of('\n', std::min(message.find('\n'), message.size()));
  return log == std::string::npos ? first_line(message) : first_line(message.substr(log));
}

// Runs probes one after the other in a context that nobody else holds; after a fault in the next
// one.
class Prober {
 public:
  explicit Prober(const DeviceInfo& info) : info_(info) {}

  // Nothing when the program builds, runs and gives what is expected; else what it did instead.
  std::optional<std::string> failure(const char* source, const std::string& options,
                                     Expected expected, std::size_t group_items = items) {
    try {
      if (context_ == nullptr) context_ = Context::fresh(info_.index);
      return wrong_answer(source, options, expected, group_items);
    } catch (const BuildError& error) {
      return "does not build: " + first_line_of_log(error.what());
    } catch (const DeviceError& error) {
      context_.reset();
      return error.what();
    }
  }

 private:
  std::optional<std::string> wrong_answer(const char* source, const std::string& options,
                                          Expected expected, std::size_t size) {
    constexpr std::size_t bytes = items * sizeof(int);
    const DeviceBuffer in(*context_, bytes);
    const DeviceBuffer out(*context_, bytes);
    KernelCall call(*context_, context_->program(source, options), "probe");
    call.set_args(*context_, in.get(), out.get());
    const Queue queue = context_->queue(false);
    std::array<int, items> values;
    std::iota(values.begin(), values.end(), 0);
    context_->check(clEnqueueWriteBuffer(queue.get(), in.get(), CL_TRUE, 0, bytes, values.data(), 0,
                                         nullptr, nullptr),
                    "clEnqueueWriteBuffer");
    context_->check(clEnqueueNDRangeKernel(queue.get(), call.get(), 1, nullptr, &size, &size, 0,
                                           nullptr, nullptr),
                    "clEnqueueNDRangeKernel");
    context_->check(clEnqueueReadBuffer(queue.get(), out.get(), CL_TRUE, 0, bytes, values.data(), 0,
                                        nullptr, nullptr),
                    "clEnqueueReadBuffer");
    for (int lane = 0; lane < items; ++lane) {
      const int value = values[static_cast<std::size_t>(lane)];
      if (value == expected(lane)) continue;
      return fmt::format("gives {} at work-item {}, expected {}", value, lane, expected(lane));
    }
    return std::nullopt;
  }

  const DeviceInfo& info_;
  std::shared_ptr<Context> context_;
};

Features probe(const DeviceInfo& info) {
  Features found;
  found.static_local_bytes = info.local_bytes;
  // Other compilers take PTX for their own assembler's text, and one of them dies of it.
  if (info.vendor.find("NVIDIA") == std::string::npos) {
    found.missing = "not an NVIDIA device";
    return found;
  }
  Prober prober(info);
  const auto has = [&](const char* what, const char* source, Expected expected, bool needed) {
    const auto failure = prober.failure(source, "", expected);
    if (failure && needed && found.missing.empty()) {
      found.missing = fmt::format("{}: {}", what, *failure);
    }
    return !failure;
  };
  found.inline_ptx = has(
      "inline PTX", inline_ptx_source, [](int lane) { return lane + 7; }, true);
  if (!found.inline_ptx) return found;
  found.shuffle = has(
      "shuffles", shuffle_source, [](int lane) { return lane ^ 5; }, true);
  found.copy_async = has(
      "cp.async", copy_async_source, [](int lane) { return 31 - lane; }, true);
  // Columns of an item: 2·(lane mod 4) and the next one.
  found.mma_tf32 = has(
      "mma tf32", mma_tf32_source,
      [](int lane) {
        const int column = 2 * (lane % 4);
        return 8 * column + 100 * 8 * (column + 1);
      },
      false);
  found.mma_f16 = has(
      "mma f16", mma_f16_source, [](int) { return 100 * 16; }, false);
  if (found.mma_f16 && found.copy_async) {
    const std::string source = Wgmma{.columns = 8, .a = "s8"}.macros() + wgmma_source;
    constexpr auto warpgroup = std::size_t{4} * items;
    const auto failure = prober.failure(
        source.c_str(), "", [](int lane) { return lane % 4 == 0 ? 2 * 496 : 0; }, warpgroup);
    found.wgmma = !failure;
    found.no_wgmma = failure.value_or("");
  }
  for (const std::size_t kilobytes : {96, 160, 224}) {
    const std::size_t bytes = kilobytes * 1024;
    if (prober.failure(local_source, fmt::format("-DBYTES={}", bytes),
                       [](int lane) { return 31 - lane; })) {
      break;
    }
    found.static_local_bytes = std::max(found.static_local_bytes, bytes);
  }
  return found;
}

}  // namespace

const Features& features(int index) {
  const DeviceInfo& info = device(index);
  static std::mutex& mutex = *new std::mutex;
  static auto& known = *new std::map<int, Features>;
  const std::scoped_lock lock(mutex);
  const auto [place, is_new] = known.try_emplace(info.index);
  if (is_new) place->second = probe(info);
  return place->second;
}

std::string print_features(const Features& features) {
  std::vector<std::string> parts;
  const auto add = [&](bool has, const char* what) {
    if (has) parts.emplace_back(what);
  };
  add(features.inline_ptx, "inline PTX");
  add(features.shuffle, "shuffles");
  add(features.copy_async, "cp.async");
  const std::string cores =
      fmt::format("tensor cores{}{}{}", features.mma_tf32 ? " tf32" : "",
                  features.mma_f16 ? " f16" : "", features.wgmma ? " wgmma" : "");
  add(features.mma_tf32 || features.mma_f16, cores.c_str());
  const std::string local = "local arrays up to " + print_bytes(features.static_local_bytes);
  if (features.nvidia_code_path()) {
    const std::string no_wgmma =
        features.no_wgmma.empty() ? "" : "; no wgmma: " + features.no_wgmma;
    return fmt::format("code path nvidia: {}{}; {}", join(parts, ", "), no_wgmma, local);
  }
  std::string text = "portable code path only: " + features.missing;
  if (!parts.empty()) text += fmt::format(" (has {})", join(parts, ", "));
  return text + "; " + local;
}

std::optional<std::string> plain_kernel_failure(int index) {
  return Prober(device(index)).failure(plain_source, "", [](int lane) { return lane + 7; });
}

}  // namespace rooflane::opencl
