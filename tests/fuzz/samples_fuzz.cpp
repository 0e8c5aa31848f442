// Files of samples: what is accepted is written as a file that reads back as the same samples.
#include "io/csv.hpp"
#include "tests/fuzz/input_file.hpp"

namespace rooflane::fuzz {
namespace {

std::string rewritten(const std::vector<Sample>& samples, const InputFile& to) {
  SamplesWriter writer(to.path());
  for (const Sample& sample : samples) writer.append(sample);
  return to.text();
}

}  // namespace

void samples_target(std::string_view input) {
  const std::vector<Sample> samples = read_samples(InputFile(input).path());
  const InputFile copy(""), copy_of_copy("");
  const std::string text = rewritten(samples, copy);
  require(rewritten(read_samples(copy.path()), copy_of_copy) == text);
}

}  // namespace rooflane::fuzz
