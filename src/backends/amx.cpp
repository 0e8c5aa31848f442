// What the CPU reports, and the permission that a process must ask Linux for once. See amx.hpp.
#include "backends/amx.hpp"

#include <cpuid.h>

#include <cerrno>
#include <cstring>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace rooflane::amx {

namespace {

// Intel's Software Developer's Manual, CPUID leaf 7, register EDX.
constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25;

std::optional<std::string> lacking() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned wanted = amx_bf16 | amx_tile | amx_int8;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & wanted) != wanted) {
    return "this CPU lacks AMX (AMX-TILE, AMX-BF16, AMX-INT8)";
  }
  return std::nullopt;
}

// Tiles are 8 KB of state per thread, which Linux saves for processes that asked for them.
std::optional<std::string> denied() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  constexpr int tile_data = 18;               // the state's number in XCR0
  if (syscall(SYS_arch_prctl, request_permission, tile_data) == 0) return std::nullopt;
  return std::string("the system refuses AMX (ARCH_REQ_XCOMP_PERM): ") + std::strerror(errno);
#else
  return "AMX needs Linux's permission (ARCH_REQ_XCOMP_PERM)";
#endif
}

std::optional<std::string> absent_reason(const std::string&) {
  static const std::optional<std::string> reason = [] {
    auto found = lacking();
    return found ? found : denied();
  }();
  return reason;
}

}  // namespace

const Backend backend = {.name = "amx", .absent_reason = absent_reason};

}  // namespace rooflane::amx
