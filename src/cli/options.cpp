// Common options: threads, ISA targets, math, tunings, devices, libraries. Problems and variants
// are selected in selection.cpp.
#include "cli/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/cblas.hpp"
#include "backends/highway.hpp"
#include "cli/tuned_text.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"

namespace rooflane {
namespace {

std::pair<std::string, std::string> parse_tuning_argument(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0) {
    throw argument_error(fmt::format(
        "--tuning '{}' does not parse: write VARIANT:key=value,..., for example hwy:mc=96", text));
  }
  return {text.substr(0, colon), text.substr(colon + 1)};
}

std::string check_math(const std::string& math, const Catalogue& catalogue) {
  try {
    return catalogue.math(math);
  } catch (const Error& error) {
    throw Error(error.kind(), std::string("--math: ") + error.what());
  }
}

std::string check_isa(const std::string& name) {
  try {
    resolve_isa(name);
  } catch (const Error& error) {
    throw Error(error.kind(), std::string("--isa: ") + error.what());
  }
  return name;
}

}  // namespace

bool is_plain_name(std::string_view name) {
  return !name.empty() &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

std::string distribution_help(const std::string& usual) {
  std::vector<std::string> names;
  for (const Distribution* distribution : all_distributions()) {
    names.emplace_back(distribution->name);
  }
  return "distribution of the inputs: " + join(names, ", ") + "; " + usual;
}

const Distribution& read_distribution(const std::string& name) {
  try {
    return distribution_named(name);
  } catch (const Error& error) {
    throw Error(error.kind(), std::string("--distribution: ") + error.what());
  }
}

std::vector<int> default_threads(Many many) {
  const int cores = machine().physical_cores;
  if (many == Many::no || cores == 1) return {cores};
  return {1, cores};
}

std::int64_t parse_count(const std::string& option, const std::string& text, std::int64_t least,
                         std::int64_t most) {
  const auto value = parse_integer(text);
  if (!value || *value < least || *value > most) {
    throw argument_error(
        fmt::format("{} '{}': allowed is a whole number from {} to {}", option, text, least, most));
  }
  return *value;
}

double parse_seconds(const std::string& option, const std::string& text) {
  const auto value = parse_real(text);
  constexpr double most = 1e6;  // 11 days; its milliseconds fit an int, as poll takes them
  if (!value || !(*value > 0 && *value <= most)) {
    throw argument_error(fmt::format(
        "{} '{}': allowed is a number of seconds above 0, at most {:g}", option, text, most));
  }
  return *value;
}

std::vector<int> parse_threads(const std::vector<std::string>& pieces) {
  const int most = machine().logical_cpus;
  std::vector<int> threads;
  bool too_many = false;
  for (const std::string& piece : pieces) {
    const auto value = parse_integer(piece);
    if (!value || *value < 1) {
      throw argument_error(fmt::format(
          "--threads '{}': allowed is a whole number from 1 to {}, the CPUs of this machine", piece,
          most));
    }
    too_many = too_many || *value > most;
    const int count = static_cast<int>(std::min<std::int64_t>(*value, most));
    if (std::find(threads.begin(), threads.end(), count) == threads.end()) {
      threads.push_back(count);
    }
  }
  if (too_many) {
    throw unavailable_error(fmt::format("--threads {}: this machine has {} CPUs for this process",
                                        join(pieces, ","), most));
  }
  return threads;
}

std::string apply_blas(const std::vector<std::string>& values, Catalogue& catalogue) {
  std::vector<CatalogueEntry> blas;
  for (const CatalogueEntry& entry : catalogue.entries()) {
    if (entry.name == "blas") blas.push_back(entry);
  }
  std::string default_library;
  std::vector<std::string> seen;
  for (const std::string& value : values) {
    const std::size_t equals = value.find('=');
    const std::string before = value.substr(0, equals);
    const bool is_path = equals == std::string::npos || before.find('/') != std::string::npos;
    const std::string path = is_path ? value : value.substr(equals + 1);
    const std::string name = is_path ? "blas" : "blas-" + before;
    if (!is_path && !is_plain_name(before)) {
      throw argument_error(
          fmt::format("--blas '{}': a name consists of a-z, 0-9 and -: NAME=PATH", value));
    }
    if (path.empty()) throw argument_error(fmt::format("--blas '{}' lacks a path", value));
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      throw argument_error(fmt::format("--blas gives two libraries to '{}'", name));
    }
    seen.push_back(name);
    try {
      cblas::open(path);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("--blas {}: {}", value, error.what()));
    }
    if (is_path) default_library = path;
    for (const CatalogueEntry& entry : blas) catalogue.add({name, entry.variant, path});
  }
  return default_library;
}

int read_device(const Arguments& arguments) {
  const auto text = arguments.value("--cl-device");
  if (!text) return 0;
  const auto index = static_cast<int>(parse_count("--cl-device", *text, 0, 9999));
  for (const Backend* backend : all_backends()) {
    if (backend->devices == nullptr) continue;
    backend->devices->facts(index);  // throws when there is none
    return index;
  }
  throw unavailable_error(fmt::format("--cl-device {}: built without OpenCL", index));
}

void declare_blas(Arguments& arguments) {
  arguments.repeatable(
      "--blas", "[NAME=]PATH",
      "another CBLAS library for blas; with a name: for an added variant blas-NAME");
}

void declare_device(Arguments& arguments) {
  arguments.option("--cl-device", "I", "OpenCL device, numbered as `rooflane doctor` prints them");
}

void declare_common(Arguments& arguments, Many many) {
  const bool list = many == Many::yes;
  if (list) {
    arguments.repeatable("-v,--variant", "V,...", "variants; default: all");
    arguments.repeatable("--threads", "N,...", "thread counts; default: 1 and all physical cores");
    arguments.repeatable("--isa", "TARGET,...", "Highway targets; default: the CPU's best");
  } else {
    arguments.option("-v,--variant", "V", "the variant");
    arguments.option("--threads", "N", "threads; default: all physical cores");
    arguments.option("--isa", "TARGET", "Highway target; default: the CPU's best");
  }
  arguments.option("--math", "MATH",
                   "arithmetic; default: fp32 (strict float32); some variants have 3xtf32, bf16, "
                   "f16, int8 or int8-dynamic");
  arguments.repeatable("--tuning", "V:key=value,...", "tunables of a variant");
  arguments.option("--tuned", "FILE|none",
                   "tuned schedules for variants without --tuning; default: $ROOFLANE_TUNED, or "
                   "this machine's store");
  declare_device(arguments);
  declare_blas(arguments);
  arguments.option("--timeout", "SECONDS", "abandon a variant after this time");
  arguments.option("--seed", "N", "seed of inputs and order; default: 1");
}

CommonOptions read_common(const Arguments& arguments, Catalogue& catalogue, Many many,
                          Complaints& complaints) {
  CommonOptions common;
  common.library =
      complaints.check([&] { return apply_blas(arguments.values("--blas"), catalogue); });
  common.variants = complaints.check([&] { return arguments.list("--variant"); });
  common.threads = complaints.check(
      [&] {
        const std::vector<std::string> pieces = arguments.list("--threads");
        if (many == Many::no && pieces.size() > 1) {
          throw argument_error("--threads takes one number here");
        }
        return pieces.empty() ? default_threads(many) : parse_threads(pieces);
      },
      {1});
  common.isas = complaints.check([&] {
    std::vector<std::string> names = arguments.list("--isa");
    if (many == Many::no && names.size() > 1) throw argument_error("--isa takes one target here");
    Complaints each;
    for (const std::string& name : names) each.check([&] { return check_isa(name); });
    each.raise();
    return names;
  });
  common.math = complaints.check(
      [&] { return check_math(arguments.value("--math").value_or("fp32"), catalogue); }, "fp32");
  for (const std::string& text : arguments.values("--tuning")) {
    complaints.check([&] {
      common.tunings.push_back(parse_tuning_argument(text));
      return true;
    });
  }
  common.tuned_named = arguments.value("--tuned").value_or("none") != "none";
  common.tuned = complaints.check([&] { return tuned_of(arguments.value("--tuned"), catalogue); },
                                  std::make_shared<const TunedSchedules>());
  common.device = complaints.check([&] { return read_device(arguments); });
  common.timeout = complaints.check([&]() -> std::optional<double> {
    const auto text = arguments.value("--timeout");
    return text ? std::optional(parse_seconds("--timeout", *text)) : std::nullopt;
  });
  common.seed = complaints.check(
      [&] {
        const std::string text = arguments.value("--seed").value_or("1");
        return static_cast<std::uint64_t>(
            parse_count("--seed", text, 0, std::numeric_limits<std::int64_t>::max()));
      },
      1);
  return common;
}

}  // namespace rooflane
