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

std::string Wgmma::macros(std::string_view name) const {
  const int count = columns / 2;
  const int of_a = a_in_registers ? 4 : 1;
  const auto placeholder = [](int i) { return fmt::format("%{}", i); };
  const std::string registers = list_of(count, placeholder);
  const std::string operands = list_of(
      count, [&](int i) { return fmt::format("\"+{}\"((d)[{}])", is_integer() ? 'r' : 'f', i); });
  const std::string types =
      is_integer() ? fmt::format("s32.{}.s8", a) : fmt::format("f32.{0}.{0}", a);
  // Floats have flags: neither operand is negated, and which of those in local memory lie across k.
  const std::string flags = is_integer()     ? ""
                            : a_in_registers ? fmt::format(", 1, 1, {:d}", b_wide)
                                             : fmt::format(", 1, 1, {:d}, {:d}", a_wide, b_wide);
  const std::string a_text =
      a_in_registers
          ? fmt::format("{{{}}}", list_of(of_a, [&](int i) { return placeholder(count + i); }))
          : placeholder(count);
  const std::string a_operands =
      a_in_registers ? list_of(of_a, [](int i) { return fmt::format("\"r\"((a)[{}])", i); })
                     : "\"l\"(a)";
  return fmt::format(
      "#define {name}(d, a, b, keep) asm volatile(\"{mark}{{ .reg .pred kept; setp.ne.u32 kept, "
      "%{keep}, 0; wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{types} {{{registers}}}, "
      "{a_text}, %{b}, kept{flags}; }}\" : {operands} : {a_operands}, \"l\"(b), \"r\"(keep) : "
      "\"memory\")\n"
      "#define {name}_FENCE(d) asm volatile(\"{mark}wgmma.fence.sync.aligned;\" : {operands} :: "
      "\"memory\")\n"
      "#define {name}_DONE(d) asm volatile(\"\" : {operands} :: \"memory\")\n",
      fmt::arg("name", name), fmt::arg("mark", sm_90a_mark), fmt::arg("columns", columns),
      fmt::arg("depth", is_integer() ? 32 : 16), fmt::arg("types", types),
      fmt::arg("registers", registers), fmt::arg("a_text", a_text), fmt::arg("b", count + of_a),
      fmt::arg("keep", count + of_a + 1), fmt::arg("flags", flags), fmt::arg("operands", operands),
      fmt::arg("a_operands", a_operands));
}

}  // namespace rooflane::opencl
