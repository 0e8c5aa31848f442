// FILE.csv.resume of a model's run: the measurements of a killed run, so that --resume can
// continue.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/csv.hpp"
#include "measure/ceilings.hpp"
#include "model/rounds.hpp"

namespace rooflane {

// What must be equal for rounds to be added to those of an earlier part: problems and variants of
// every step, in the order in which their rounds are kept.
nlohmann::json model_request(const std::vector<model::ChainSwaps>& chains);

class ModelResume {
 public:
  // An empty path: nothing is kept. Where a run `goes_on`, reads the file that it left, without
  // half a line at the end; without one it starts again. Throws Error(argument) that names the
  // difference when the file is of another request, build or machine, or is not such a file.
  ModelResume(const std::string& csv, bool goes_on, nlohmann::json request);

  const std::optional<Ceilings>& ceilings() const { return ceilings_; }
  const std::vector<model::Round>& rounds() const { return rounds_; }

  // Starts the file with its first line, or brings it to whole lines.
  void begin(const Ceilings& ceilings);
  void add(const model::Round& round);  // one line with one call
  void finish();                        // the results are written: there is nothing to resume

 private:
  void read();

  std::string path_;
  nlohmann::json request_;
  std::string kept_;  // whole lines of the earlier part
  std::optional<Ceilings> ceilings_;
  std::vector<model::Round> rounds_;
  std::optional<LineFile> file_;
};

}  // namespace rooflane
