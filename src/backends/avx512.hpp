// AVX-512's instructions for short operands, vdpbf16ps and vpdpbusd: whether this CPU has them.
#pragma once

#include <optional>
#include <string>

#include "core/backend.hpp"

namespace rooflane::avx512 {

// A CPU serves with one of both.
extern const Backend backend;

// Why code with vdpbf16ps, or else vpdpbusd, cannot run here; nothing when it can.
std::optional<std::string> missing_instruction(bool bfloat16);

}  // namespace rooflane::avx512
