// Options that several verbs share: variants, threads, ISA targets, libraries, problems. Converts
// text to values; errors go to Complaints.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench.hpp"
#include "cli/arguments.hpp"
#include "cli/cli.hpp"
#include "core/catalogue.hpp"
#include "core/status.hpp"
#include "core/tuned.hpp"

namespace rooflane {

// How many values --threads and --isa take: a list for verify and bench, one for run.
enum class Many { no, yes };

struct CommonOptions {
  std::vector<std::string> variants;  // as named by -v; empty: all
  std::vector<int> threads;           // default: 1 and all physical cores; run: all
  std::vector<std::string> isas;      // empty: the best of this CPU
  std::string math = "fp32";
  std::vector<std::pair<std::string, std::string>> tunings;  // variant, "key=value,..."
  std::string library;                                       // of --blas PATH
  int device = 0;
  std::optional<double> timeout;  // seconds
  std::uint64_t seed = 1;
  std::shared_ptr<const TunedSchedules> tuned;  // never null
  bool tuned_named = false;                     // by --tuned FILE
};

void declare_common(Arguments& arguments, Many many);
// Adds the libraries of --blas to the catalogue.
CommonOptions read_common(const Arguments& arguments, Catalogue& catalogue, Many many,
                          Complaints& complaints);

void declare_blas(Arguments& arguments);
// --blas NAME=PATH adds blas-NAME, --blas PATH replaces the library behind blas, for every kernel
// with a blas variant. Returns the latter's path. Throws Error for a file that is not a CBLAS.
std::string apply_blas(const std::vector<std::string>& values, Catalogue& catalogue);

void declare_device(Arguments& arguments);
int read_device(const Arguments& arguments);

// What libraries, plugins and other builds may be called: letters a-z, digits and '-'.
bool is_plain_name(std::string_view name);

// The help of --distribution, and a value of it. Throws Error naming the option.
std::string distribution_help(const std::string& usual);
const Distribution& read_distribution(const std::string& name);

// A whole number in [least, most], or Error naming the option.
std::int64_t parse_count(const std::string& option, const std::string& text, std::int64_t least,
                         std::int64_t most);
// A number of seconds above 0, at most 10^6.
double parse_seconds(const std::string& option, const std::string& text);
// 1 and all physical cores; for one number: all of them.
std::vector<int> default_threads(Many many);
// "1,2": each at least 1 (argument), none above this machine's logical CPUs (unavailable).
std::vector<int> parse_threads(const std::vector<std::string>& pieces);

// One kernel by one variant.
struct Target {
  const Kernel* kernel;
  const CatalogueEntry* entry;
};
struct Selection {
  std::vector<Target> targets;
  std::vector<AbsentVariant> absent;  // not named, and left out; each variant once
};
// The variants that -v names (each must exist for one of the kernels at least), or all that this
// machine can run. `hwy` selects another build's `hwy@NAME` too; `guests` take part whatever is
// named.
Selection select_targets(const Catalogue& catalogue, const std::vector<const Kernel*>& kernels,
                         const std::vector<std::string>& names, Complaints& complaints,
                         const std::vector<std::string>& guests = {});
// One note for all: "absent variants: amx: this CPU lacks AMX; clblast, opencl: no OpenCL device".
void note_absent(const std::vector<AbsentVariant>& absent);
// Every --tuning must name a selected variant and be valid for it on each selected kernel.
void check_tunings(const std::vector<std::pair<std::string, std::string>>& tunings,
                   const std::vector<Target>& targets);

// Every tuning given must serve every problem of its variant. Throws Error for the first that does
// not.
void check_planned_tunings(const Suite& suite);

// The problems of a shipped preset, random:N[:SEED], or a file of shapes.
std::vector<BenchProblem> problems_of_preset(const std::string& preset,
                                             std::span<const Kernel* const> kernels);

void declare_kernels(Arguments& arguments);
// The kernels that -k names; empty without it.
std::vector<const Kernel*> read_kernels(const Arguments& arguments, const Catalogue& catalogue,
                                        Complaints& complaints);
void declare_problems(Arguments& arguments);
// What -k, --shape and --preset select: a shape selects its kernel; kernels without a shape or
// preset of theirs, named by -k or, without any selection, all, take the default preset.
std::vector<BenchProblem> read_problems(const Arguments& arguments, const Catalogue& catalogue,
                                        const std::string& default_preset, Complaints& complaints);
// The kernels of these problems, in the catalogue's order.
std::vector<const Kernel*> kernels_of(const std::vector<BenchProblem>& problems,
                                      const Catalogue& catalogue);

// The options of a run with what all verbs share filled in.
BenchOptions bench_options(const CommonOptions& common, const std::vector<BenchProblem>& problems,
                           const std::vector<Target>& targets, const Catalogue& catalogue,
                           const CliSettings& settings);

// The program's status: a bad case is 1; a variant named by -v that has no case, or only
// UNSUPPORTED ones, is 3.
using StatusesByVariant = std::map<std::string, std::set<Status>>;
int exit_status_of(const StatusesByVariant& seen, const std::vector<std::string>& named);

}  // namespace rooflane
