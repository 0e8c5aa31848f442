// Reading x86-64 and aarch64 disassembly for loops. See hot_loop.hpp.
#include "judge/hot_loop.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "core/text.hpp"

namespace rooflane::judge {

namespace {

struct Instruction {
  std::uint64_t address = 0;
  std::string text;  // mnemonic and operands
  std::string mnemonic;
  std::uint64_t target = 0;  // of a jump
};

bool is_jump(const std::string& mnemonic) {
  if (mnemonic.starts_with("j")) return true;
  return mnemonic == "b" || mnemonic.starts_with("b.") || mnemonic.starts_with("cb") ||
         mnemonic.starts_with("tb");
}

bool is_call(const std::string& mnemonic) {
  return mnemonic.starts_with("call") || mnemonic == "bl" || mnemonic == "blr";
}

// "  1a40:\tvmovups (%rdi,%rax,1),%zmm0" with comments and symbols cut.
std::optional<Instruction> instruction_of(const std::string& line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string::npos || line.find('\t') == std::string::npos) return std::nullopt;
  char* end = nullptr;
  Instruction instruction;
  instruction.address = std::strtoull(line.c_str(), &end, 16);
  if (end != line.c_str() + colon) return std::nullopt;
  std::string text = line.substr(line.find('\t') + 1);
  text = text.substr(0, text.find('#'));
  std::istringstream words(text);
  words >> instruction.mnemonic;
  std::string operands;
  std::getline(words >> std::ws, operands);
  while (operands.ends_with(' ')) operands.pop_back();
  if (is_jump(instruction.mnemonic)) {
    const std::size_t comma = operands.rfind(", ");  // aarch64: cbz x0, 1a40
    const std::string place = comma == std::string::npos ? operands : operands.substr(comma + 2);
    instruction.target = std::strtoull(place.c_str(), nullptr, 16);
  }
  instruction.text =
      operands.empty() ? instruction.mnemonic : instruction.mnemonic + " " + operands;
  return instruction;
}

int width_of(const std::string& text) {
  if (text.find("%zmm") != std::string::npos) return 512;
  if (text.find("%ymm") != std::string::npos) return 256;
  if (text.find("%xmm") != std::string::npos) return 128;
  for (const char* const lanes : {".4s", ".2d", ".8h", ".16b"}) {
    if (text.find(lanes) != std::string::npos) return 128;
  }
  return 0;
}

// Whether it computes on packed elements; scalar instructions use the same registers.
bool is_packed(const std::string& mnemonic) {
  const bool scalar = mnemonic.ends_with("ss") || mnemonic.ends_with("sd") ||
                      mnemonic.starts_with("cvt") || mnemonic.starts_with("vcvtsi") ||
                      mnemonic == "vmovd" || mnemonic == "vmovq";
  return !scalar;
}

// The function in "call 1060 <expf@plt>", if it is one that computes a number.
std::string math_called_by(const Instruction& instruction) {
  constexpr std::string_view functions[] = {
      "acos", "asin",      "atan",  "cbrt", "ceil",  "cos",  "cosh", "erf",   "erfc", "exp",
      "exp2", "expm1",     "floor", "fma",  "fmax",  "fmin", "fmod", "hypot", "log",  "log1p",
      "log2", "nearbyint", "pow",   "rint", "round", "sin",  "sinh", "sqrt",  "tan",  "tanh"};
  const std::size_t begin = instruction.text.find('<'), end = instruction.text.find("@plt");
  if (!is_call(instruction.mnemonic) || begin == std::string::npos || end == std::string::npos) {
    return {};
  }
  const std::string name = instruction.text.substr(begin + 1, end - begin - 1);
  std::string plain = name.substr(name.rfind('_') + 1);  // libmvec: _ZGVdN8v_expf
  if (plain.ends_with('f') && plain != "erf") plain.pop_back();
  const bool known =
      std::find(std::begin(functions), std::end(functions), plain) != std::end(functions);
  return known ? name : "";
}

HotLoop loop_from(const std::string& function, const Instruction* first, const Instruction* last) {
  HotLoop loop;
  loop.function = function;
  for (const Instruction* i = first; i <= last; ++i) {
    loop.instructions.push_back(i->text);
    if (is_packed(i->mnemonic)) loop.width_bits = std::max(loop.width_bits, width_of(i->text));
    const bool stack = i->text.find("(%rsp") != std::string::npos ||
                       i->text.find("(%rbp") != std::string::npos ||
                       i->text.find("[sp") != std::string::npos;
    if (stack && i->mnemonic.find("mov") != std::string::npos && width_of(i->text) > 0) {
      ++loop.spills;
    }
    loop.gathers += i->mnemonic.find("gather") != std::string::npos ||
                    i->mnemonic.find("scatter") != std::string::npos;
    loop.calls += is_call(i->mnemonic);
    if (loop.calls_math.empty()) loop.calls_math = math_called_by(*i);
  }
  return loop;
}

// Vector instructions count by their width; a loop without any by its length, but little. A
// mathematical function takes as long as dozens of them. What lies in another loop runs more often.
double weight_of(const HotLoop& loop) {
  constexpr double of_function = 100;
  double weight = 0.01 * static_cast<double>(loop.instructions.size());
  for (const std::string& text : loop.instructions) {
    const std::string mnemonic = text.substr(0, text.find(' '));
    if (is_packed(mnemonic)) weight += width_of(text) / 128.0;
  }
  if (!loop.calls_math.empty()) weight += of_function;
  return weight * std::exp2(std::min(loop.depth, 4));
}

// Loops are jumps backwards; innermost: no other lies within.
void look_for_loops(const std::string& function, const std::vector<Instruction>& code,
                    std::optional<HotLoop>& best) {
  struct Range {
    std::size_t first, last;
    bool holds(const Range& other) const { return first <= other.first && other.last < last; }
  };
  std::vector<Range> loops;
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (!is_jump(code[i].mnemonic) || code[i].target > code[i].address) continue;
    const auto begin =
        std::lower_bound(code.begin(), code.end(), code[i].target,
                         [](const Instruction& x, std::uint64_t at) { return x.address < at; });
    if (begin == code.end() || begin->address != code[i].target) continue;
    loops.push_back({static_cast<std::size_t>(begin - code.begin()), i});
  }
  for (const Range& range : loops) {
    const auto within = [&](const Range& other) { return range.holds(other); };
    if (std::any_of(loops.begin(), loops.end(), within)) continue;
    HotLoop loop = loop_from(function, &code[range.first], &code[range.last]);
    loop.depth = static_cast<int>(std::count_if(
        loops.begin(), loops.end(), [&](const Range& other) { return other.holds(range); }));
    if (!best || weight_of(loop) > weight_of(*best)) best = std::move(loop);
  }
}

}  // namespace

std::optional<HotLoop> hot_loop_in(const std::string& disassembly) {
  std::optional<HotLoop> best;
  std::string function;
  std::vector<Instruction> code;
  std::istringstream lines(disassembly);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with(">:")) {
      look_for_loops(function, code, best);
      code.clear();
      const std::size_t name = line.find('<');
      function = line.substr(name + 1, line.size() - name - 3);
    } else if (auto instruction = instruction_of(line)) {
      code.push_back(std::move(*instruction));
    }
  }
  look_for_loops(function, code, best);
  return best;
}

std::string clock_defined_in(const std::string& disassembly) {
  for (const std::string_view clock :
       {"clock_gettime", "gettimeofday", "std::chrono::_V2::steady_clock::now()",
        "std::chrono::_V2::system_clock::now()"}) {
    if (disassembly.find(" <" + std::string(clock) + ">:\n") != std::string::npos) {
      return std::string(clock);
    }
  }
  return {};
}

std::string disassembly_of(jail::Kind kind, const std::string& folder) {
  constexpr std::size_t most_bytes = 8 << 20;
  jail::Settings settings;
  settings.kind = kind;
  settings.folder = folder;
  settings.environment = {{"PATH", "/usr/bin:/bin"}, {"LC_ALL", "C.UTF-8"}};
  settings.command = {"objdump", "-d", "--no-show-raw-insn", "-C",
                      jail::inside(settings) + "/judged.so"};
  settings.limits = {std::uint64_t{4} << 30, 16, std::uint64_t{256} << 20, 20};
  settings.output_path = folder + "/disassembly.txt";
  if (jail::run(settings, 20).status != 0) return {};
  std::ifstream file(settings.output_path);
  std::string text(most_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(most_bytes));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace rooflane::judge
