// The arguments of `model`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/options.hpp"
#include "model/instance.hpp"
#include "model/swaps.hpp"

namespace rooflane {

struct ModelArguments {
  CommonOptions common;
  model::ModelText text;
  std::string size;
  model::Settings settings;
  DType weight_type = &float32;        // of matrices; null: each as the file has it
  std::vector<std::string> preferred;  // variants, the first that serves a step
  std::vector<model::Change> swaps;    // of the chain as it is
  std::vector<model::Change> what_if;  // predicted and proven
  bool fuse = false;
  bool levels = false;
  bool dry_run = false;
  bool resume = false, phases = false;
  double max_time = 10, ceilings_time = 10, interval_pct = 1;
  std::string weights, ceilings, csv, save;  // files, a folder; empty: none
};

// Files beside that of --csv.
std::string swaps_path(const std::string& csv);
std::string memory_path(const std::string& csv);
std::string levels_path(const std::string& csv);

void declare_model(Arguments& arguments);
// Throws Error for the first argument that is wrong, else for the first that cannot be served.
ModelArguments read_model_arguments(const Arguments& arguments, Catalogue& catalogue);

}  // namespace rooflane
