// Files of phases: what is accepted is written as a file that reads back as the same phases, and
// explains a row.
#include "io/explain_text.hpp"
#include "io/phases_file.hpp"
#include "tests/fuzz/input_file.hpp"

namespace rooflane::fuzz {
namespace {

std::string rewritten(const std::map<std::int64_t, PhaseProfile>& profiles, const InputFile& to) {
  PhasesWriter writer(to.path());
  for (const auto& [row, profile] : profiles) writer.append(row, profile);
  return to.text();
}

}  // namespace

void phases_target(std::string_view input) {
  const auto profiles = read_phases(InputFile(input).path());
  const InputFile copy(""), copy_of_copy("");
  const std::string text = rewritten(profiles, copy);
  require(rewritten(read_phases(copy.path()), copy_of_copy) == text);

  Row row;
  row.status = "PASSED";
  row.roof_pct = 60;
  row.roof_gflops = row.peak_gflops = 100;
  row.p50_ns = row.flops = 1000;
  row.threads = 2;
  for (const auto& [number, profile] : profiles) {
    const ExplainedRow explained[] = {{&row, &profile}};
    explain_text(explained, false);
  }
}

}  // namespace rooflane::fuzz
