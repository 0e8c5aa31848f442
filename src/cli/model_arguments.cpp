// Reading the arguments of `model`. See model_arguments.hpp.
#include "cli/model_arguments.hpp"

#include <fmt/format.h>

#include "core/text.hpp"
#include "io/csv.hpp"
#include "io/files.hpp"
#include "model/library.hpp"

namespace rooflane {
namespace {

// Whole numbers for symbols; what they mean is checked with the model.
model::Settings read_settings(const Arguments& arguments) {
  model::Settings settings;
  for (const std::string& text : arguments.values("--set")) {
    for (const auto& [name, value] : parse_key_values(text)) {
      const auto number = parse_integer(value);
      constexpr std::int64_t most = std::int64_t{1} << 53;
      if (!number || *number < 0 || *number > most) {
        throw argument_error(
            fmt::format("--set {}={}: allowed is a whole number from 0 to {}", name, value, most));
      }
      for (const auto& [known, other] : settings) {
        if (known == name) throw argument_error(fmt::format("--set gives '{}' twice", name));
      }
      settings.emplace_back(name, *number);
    }
  }
  return settings;
}

std::vector<model::Change> read_changes(const Arguments& arguments, const std::string& option) {
  std::vector<model::Change> changes;
  for (const std::string& text : arguments.values(option)) {
    try {
      for (model::Change& change : model::parse_changes(text)) changes.push_back(std::move(change));
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", option, error.what()));
    }
  }
  return changes;
}

std::string writable_file(const Arguments& arguments, const std::string& option,
                          const std::vector<std::string (*)(const std::string&)>& beside) {
  const std::string path = arguments.value(option).value_or("");
  if (path.empty()) return path;
  try {
    require_writable(path);
    for (const auto& name : beside) require_writable(name(path));
  } catch (const Error& error) {
    throw Error(error.kind(), option + ": " + error.what());
  }
  return path;
}

// Null: as the file has them.
DType read_weight_type(const Arguments& arguments) {
  const auto name = arguments.value("--weight-type");
  if (!name) return &float32;
  if (*name == "file") {
    if (!arguments.value("--weights")) {
      throw argument_error("--weight-type file needs --weights FILE.gguf");
    }
    return nullptr;
  }
  std::vector<std::string> names = {"file"};
  for (const DType dtype : {&float32, &float16, &bfloat16, &q8_0, &q4_0, &q4_1}) {
    if (*name == dtype->short_name) return dtype;
    names.emplace_back(dtype->short_name);
  }
  throw argument_error("--weight-type: " + unknown_name("format", *name, names));
}

void read_times(const Arguments& arguments, ModelArguments& read, Complaints& complaints) {
  const auto seconds = [&](const std::string& option, double& value) {
    complaints.check([&] {
      if (const auto text = arguments.value(option)) value = parse_seconds(option, *text);
      return true;
    });
  };
  seconds("--max-time", read.max_time);
  seconds("--ceilings-time", read.ceilings_time);
  complaints.check([&] {
    const auto text = arguments.value("--interval");
    if (!text) return true;
    const auto value = parse_real(*text);
    if (!value || !(*value > 0 && *value <= 100)) {
      throw argument_error(fmt::format(
          "--interval '{}': allowed is a number of per cent above 0, at most 100", *text));
    }
    read.interval_pct = *value;
    return true;
  });
}

}  // namespace

std::string swaps_path(const std::string& csv) { return csv + ".swaps.csv"; }
std::string memory_path(const std::string& csv) { return csv + ".memory.csv"; }
std::string levels_path(const std::string& csv) { return csv + ".levels.csv"; }

void declare_model(Arguments& arguments) {
  arguments.positional("NAME", "a model: " + join(model::model_names(), ", ") + "; or FILE.txt");
  arguments.option("--size", "NAME", "one of the model's sizes; default: its symbols' defaults");
  arguments.repeatable("--set", "symbol=N,...", "values of symbols; they override the size");
  arguments.option("--weights", "FILE.gguf", "read weights by name; default: from the seed");
  arguments.option("--weight-type", "T",
                   "format of the float32 matrices: f16, bf16, q8_0, q4_0, q4_1, or file for the "
                   "format in --weights; default: f32");
  arguments.repeatable("--swap", "STEP=VARIANT,...", "use this variant for the step");
  arguments.repeatable("--what-if", "K=VARIANT,...",
                       "predict and measure the gain of other variants; K is a step or a kernel");
  arguments.flag("--fuse", "fuse products with the operations that follow, and sums with norms");
  arguments.flag("--levels",
                 "measure scalar, blas, hwy, fused, bf16, int8 and the format of --weights: time, "
                 "memory, error, growth");
  declare_common(arguments, Many::no);
  arguments.option("--max-time", "SECONDS", "limit for all rounds; default 10");
  arguments.option("--interval", "PERCENT",
                   "rounds end when the medians of the whole are known to ± this; default 1");
  arguments.option("--ceilings", "FILE", "read the ceilings from a file of `ceilings --json FILE`");
  arguments.option("--ceilings-time", "SECONDS",
                   "otherwise, limit for measuring them first; default 10");
  arguments.option("--csv", "FILE",
                   "write rows to FILE, and FILE.swaps.csv, FILE.memory.csv, FILE.levels.csv");
  arguments.flag("--resume", "continue the interrupted run of --csv FILE");
  arguments.option("--save", "FOLDER", "write inputs, weights and outputs as .npy, without timing");
  arguments.flag("--phases", "record the phases of each step: bytes, packing, waiting");
  arguments.flag("--dry-run", "print the steps and their problems");
  arguments.examples({"rooflane model block --dry-run",
                      "rooflane model block --size tiny --max-time 0.2 --ceilings-time 0.5 "
                      "--what-if gemm=scalar,softmax=scalar --csv block.csv"});
}

ModelArguments read_model_arguments(const Arguments& arguments, Catalogue& catalogue) {
  Complaints complaints;
  ModelArguments read;
  read.common = read_common(arguments, catalogue, Many::no, complaints);
  complaints.check([&] {
    const auto name = arguments.value("NAME");
    if (!name) {
      throw argument_error("NAME is missing; valid: " + join(model::model_names(), ", ") +
                           "; or a file: NAME.txt");
    }
    read.text = model::read_model(*name);
    return true;
  });
  read.size = arguments.value("--size").value_or("");
  read.settings = complaints.check([&] { return read_settings(arguments); });
  read.swaps = complaints.check([&] { return read_changes(arguments, "--swap"); });
  read.what_if = complaints.check([&] { return read_changes(arguments, "--what-if"); });
  read.fuse = arguments.has("--fuse");
  read.levels = arguments.has("--levels");
  read.dry_run = arguments.has("--dry-run");
  read_times(arguments, read, complaints);
  read.weights = arguments.value("--weights").value_or("");
  read.weight_type = complaints.check([&] { return read_weight_type(arguments); });
  read.ceilings = arguments.value("--ceilings").value_or("");
  read.csv = complaints.check([&] {
    return writable_file(arguments, "--csv", {samples_path, swaps_path, memory_path, levels_path});
  });
  read.save = arguments.value("--save").value_or("");
  read.resume = arguments.has("--resume");
  read.phases = arguments.has("--phases");
  complaints.check([&] {
    if (read.resume && read.csv.empty()) {
      throw argument_error("--resume needs --csv FILE, the file of the interrupted run");
    }
    return true;
  });
  // The fastest first; a step takes the first that its kernel has and that this machine can run.
  const std::vector<std::string> all = {"hwy", "blas", "scalar"};
  read.preferred = read.common.variants.empty() ? all : read.common.variants;
  complaints.check([&] {
    if (read.levels && !read.what_if.empty()) {
      throw argument_error("--levels cannot be combined with --what-if");
    }
    for (const std::string& name : read.common.variants) {
      const std::vector<std::string> names = catalogue.variant_names();
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        throw argument_error(unknown_name("variant", name, names));
      }
    }
    return true;
  });
  complaints.raise();
  return read;
}

}  // namespace rooflane
