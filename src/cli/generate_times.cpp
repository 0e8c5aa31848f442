// See generate_times.hpp.
#include "cli/generate_times.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "backends/highway.hpp"
#include "backends/unit_loops.hpp"
#include "cli/terminal.hpp"
#include "core/text.hpp"
#include "io/json.hpp"
#include "measure/fma_peak.hpp"
#include "measure/process_usage.hpp"
#include "measure/unit_peak.hpp"

namespace rooflane {
namespace {

// How fast the tokens of the prompt, or of the text, were computed, beside the machine's limits.
struct TokenRate {
  std::int64_t tokens;
  double seconds, bytes, operations;
  std::string instruction;
  double read_gb_s, peak;

  double tokens_s() const { return static_cast<double>(tokens) / seconds; }
  double gb_s() const { return bytes / seconds * 1e-9; }
  double g_operations_s() const { return operations / seconds * 1e-9; }
  double read_pct() const { return 100 * gb_s() / read_gb_s; }
  double peak_pct() const { return 100 * g_operations_s() / peak; }
  // Below half of both limits neither explains the time: threads wait, or steps are small.
  std::string bound() const {
    if (std::max(read_pct(), peak_pct()) < 50) return "neither";
    return read_pct() >= peak_pct() ? "memory" : instruction;
  }
  std::string text() const {
    return fmt::format(
        "{} tokens, {:.1f} tokens/s, {:.1f} GB/s ({:.0f} % of reading), {:.0f} G operations/s "
        "({:.0f} % of {}), bound by {}",
        tokens, tokens_s(), gb_s(), read_pct(), g_operations_s(), peak_pct(), instruction, bound());
  }
  nlohmann::ordered_json json() const {
    return {{"tokens", tokens},       {"seconds", seconds},         {"tokens_s", tokens_s()},
            {"gb_s", gb_s()},         {"read_pct", read_pct()},     {"gops", g_operations_s()},
            {"peak_pct", peak_pct()}, {"instruction", instruction}, {"bound", bound()}};
  }
};

std::string name_of_unit(const std::string& instruction) {
  return instruction.empty() ? "fma" : instruction;
}

}  // namespace

double best_read_gb_s(StreamBench& bench, std::size_t bytes) {
  double gb_s = 0;
  for (const int streams : {1, 4, 8}) {
    StreamTrial trial{{.streams = streams}, /*turns=*/false};
    bench.begin(reading, bytes);
    bench.repeat(reading, trial);
    gb_s = std::max(gb_s, trial.gb_s);
  }
  return gb_s;
}

double peak_g_operations_s(const std::string& instruction, int threads) {
  constexpr double seconds = 0.02;
  for (const UnitLoop& unit : unit_loops()) {
    if (instruction == unit.path) return measure_unit_gflops(unit, threads, seconds);
  }
  return measure_fma_gflops(resolve_isa(""), threads, seconds);
}

void report_times(const TimesRequest& request, const generate::LanguageModel& model,
                  const generate::DecoderCounts& counts, std::int64_t prompt, int threads,
                  bool drafts) {
  const std::int64_t memory = peak_resident_bytes(getpid());  // the limits need some of their own
  const auto bytes = static_cast<std::size_t>(model.decode_bytes(0));
  StreamBench bench(threads, bytes);
  const double read = best_read_gb_s(bench, bytes);
  const auto rate = [&](std::int64_t tokens, double seconds, double read_bytes, double operations,
                        const std::string& instruction) {
    const std::string unit = name_of_unit(instruction);
    return TokenRate{
        tokens, seconds, read_bytes, operations, unit, read, peak_g_operations_s(unit, threads)};
  };
  const TokenRate of_prompt = rate(prompt, counts.prompt_seconds, model.decode_bytes(prompt - 1),
                                   model.prefill_operations(0), model.prefill_instruction());
  // They grow by the same with each token.
  const double operations =
      static_cast<double>(counts.tokens) * model.decode_operations(prompt + counts.tokens / 2);
  const TokenRate of_text =
      rate(counts.tokens, counts.seconds, counts.bytes, operations, model.decode_instruction());
  const bool has_text = counts.tokens > 0;
  if (request.note) {
    std::string text = "prompt: " + of_prompt.text();
    if (has_text) text += "; then " + of_text.text();
    text += fmt::format("; {} of memory", print_bytes(static_cast<std::size_t>(memory)));
    if (drafts) {
      text += fmt::format("; drafts: {} tokens, {} of them right, {} passes of the model",
                          counts.drafted, counts.accepted, counts.passes);
      if (counts.differs) text += ", no more since passes of several tokens computed other bits";
    }
    print_note(text);
  }
  if (request.json.empty()) return;
  nlohmann::ordered_json document = {{"schema_version", 1},        {"threads", threads},
                                     {"prompt", of_prompt.json()}, {"text", nullptr},
                                     {"read_gb_s", read},          {"memory_bytes", memory},
                                     {"passes", counts.passes},    {"drafts", nullptr}};
  if (has_text) document["text"] = of_text.json();
  if (drafts) {
    document["drafts"] = {
        {"drafted", counts.drafted}, {"accepted", counts.accepted}, {"same_bits", !counts.differs}};
  }
  write_json(request.json, document);
}

}  // namespace rooflane
