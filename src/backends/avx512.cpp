// What the CPU says of itself. See avx512.hpp.
#include "backends/avx512.hpp"

namespace rooflane::avx512 {

namespace {

std::optional<std::string> absent_reason(const std::string&) {
  if (!missing_instruction(true) || !missing_instruction(false)) return std::nullopt;
  return missing_instruction(false);
}

}  // namespace

const Backend backend = {.name = "avx512", .absent_reason = absent_reason};

// The names include that the system saves the registers.
std::optional<std::string> missing_instruction(bool bfloat16) {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return "this CPU lacks AVX-512 (F, BW, DQ, VL)";
  }
  if (bfloat16 && !__builtin_cpu_supports("avx512bf16")) {
    return "this CPU lacks vdpbf16ps (AVX512_BF16)";
  }
  if (!bfloat16 && !__builtin_cpu_supports("avx512vnni")) {
    return "this CPU lacks vpdpbusd (AVX512_VNNI)";
  }
  return std::nullopt;
}

}  // namespace rooflane::avx512
