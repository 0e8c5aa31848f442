// The text of PTX. See opencl_ptx.hpp.
#include "backends/opencl_ptx.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace rooflane::opencl {
namespace {

// "a, b, c" with `name_of` each number below `count`.
template <class NameOf>
std::string list_of(int count, NameOf name_of) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + name_of(i);
  return text;
}

}  // namespace

std::string uncovered_ptx(std::string_view ptx) {
  constexpr std::string_view target = ".target sm_90";
  std::string text(ptx.substr(0, ptx.find('\0')));
  const std::size_t at = text.find(target);
  const std::size_t end = at + target.size();
  if (at == std::string::npos || (end < text.size() && text[end] != ',' && text[end] != '\n')) {
    throw BuildError("the driver's binary is not PTX for sm_90: instructions of sm_90a need it");
  }
  text.insert(end, "a");
  std::size_t mark = text.find(sm_90a_mark, end);
  if (mark == std::string::npos) {
    throw BuildError("the driver's PTX has lost the marked instructions of sm_90a");
  }
  for (; mark != std::string::npos; mark = text.find(sm_90a_mark, mark)) {
    text.erase(mark, sm_90a_mark.size());
  }
  text += '\0';  // ends the driver's own PTX too
  return text;
}

std::string Wgmma::name() const {
  return fmt::format("wgmma.m64n{}k{}.{}", columns, is_integer() ? 32 : 16, a);
}

std::string Wgmma::macros() const {
  const int count = columns / 2;
  const std::string registers = list_of(count, [](int i) { return fmt::format("%{}", i); });
  const std::string operands = list_of(
      count, [&](int i) { return fmt::format("\"+{}\"((d)[{}])", is_integer() ? 'r' : 'f', i); });
  const std::string types =
      is_integer() ? fmt::format("s32.{}.s8", a) : fmt::format("f32.{0}.{0}", a);
  // Floats have flags: neither operand is negated, and which of them lie across k.
  const std::string flags = is_integer() ? "" : fmt::format(", 1, 1, {:d}, {:d}", a_wide, b_wide);
  return fmt::format(
      "#define WGMMA(d, a, b) asm volatile(\"{mark}{{ .reg .pred one; setp.eq.u32 one, 0, 0; "
      "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{types} {{{registers}}}, %{count}, "
      "%{next}, "
      "one{flags}; }}\" : {operands} : \"l\"(a), \"l\"(b) : \"memory\")\n"
      "#define WGMMA_FENCE(d) asm volatile(\"{mark}wgmma.fence.sync.aligned;\" : {operands} :: "
      "\"memory\")\n"
      "#define WGMMA_DONE(d) asm volatile(\"\" : {operands} :: \"memory\")\n",
      fmt::arg("mark", sm_90a_mark), fmt::arg("columns", columns),
      fmt::arg("depth", is_integer() ? 32 : 16), fmt::arg("types", types),
      fmt::arg("registers", registers), fmt::arg("count", count), fmt::arg("next", count + 1),
      fmt::arg("flags", flags), fmt::arg("operands", operands));
}

}  // namespace rooflane::opencl
