// Tuned schedules: tunings that a search found faster than the variants' own choices, kept in a
// file (docs/tuning.md) of one machine. Here: reading such files, which of them is in use, and the
// entry that serves a problem. Whoever plans without a tuning asks (make_plan); nobody else does.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "machine.hpp"
#include "variant.hpp"

namespace rooflane {

// Where a plan's tuning came from, in the words of rows.
inline constexpr std::string_view from_model = "model";  // the variant's own choice
inline constexpr std::string_view from_store = "store";  // an entry of tuned schedules
inline constexpr std::string_view from_user = "given";

struct TunedEntry {
  std::string kernel, variant, math, isa, device;  // as rows have them
  int threads = 1;                                 // 0: a whole device
  std::string tuning;                              // "path=4,mr=6,..."
  bool cold = false;                               // its operands were in memory when it was timed
  bool exact = false;                              // serves its own problem only
  std::string time;                                // "2026-01-31T12:00:00Z"; empty: not known
  std::optional<Problem> problem;                  // nothing: a kernel that this build lacks
};

struct TunedSchedules {
  std::string machine;  // machine_key of where they were timed
  std::vector<TunedEntry> entries;
};

// The contents of a file. Throws Error(argument) naming the entry and what is allowed.
TunedSchedules parse_tuned(std::string_view text, std::span<const Kernel* const> kernels);

// A file and its schedules, or the problem with it. Neither: there is no file.
struct TunedSource {
  std::filesystem::path file;
  bool named = false;  // by a person; else it is the machine's own store
  std::optional<TunedSchedules> schedules;
  std::string problem;  // one line
};
// A named file must exist, and may be of another machine.
TunedSource read_tuned(const std::filesystem::path& file, bool named);

// Where this machine's own schedules are kept, in cache_folder(). Empty: there is no such folder.
std::filesystem::path tuned_store();
// The file of $ROOFLANE_TUNED, or of tuned_store(); read when first asked for. The file is empty
// where none is in use, since ROOFLANE_TUNED is empty or `none`.
const TunedSource& tuned_source();
// Reads it again, since another process has written to it; plans that are made from then on see
// what it holds now. Thread-safe: what tuned_source() returned before stays valid.
void reread_tuned();
// Its schedules; none where the store is broken. Throws Error(argument) where ROOFLANE_TUNED names
// a file that is.
const TunedSchedules& tuned_schedules();
const TunedSchedules& no_tuned_schedules();

// How far a problem is from a tuned one: the largest |log2(size ratio)| over all sizes. Nothing
// where they differ in anything but sizes, or a size is 0 in one only.
std::optional<double> tuned_distance(const Problem& tuned, const Problem& wanted);
// Entries farther away serve nothing: each size is at most doubled or halved.
inline constexpr double most_tuned_distance = 1;

// Whether a program that runs such a problem on a CPU finds its weights in memory: those that a
// plan keeps (prepack=1) are as a rule of one layer among many, which evict one another, and up to
// 16 rows (a language model's tokens) take less time to compute than to read.
bool usually_cold(const Problem& problem);

struct TunedChoice {
  Tuning tuning;  // complete
  const TunedEntry* entry;
  double distance;  // 0: of the problem itself
};
// The entry of the variant `name` in this environment with a tuning that is legal for the problem:
// one that was timed as a program would usually find the operands, else one of the other state of
// the caches; of these the nearest; the first of equals. Nothing where there is none: the variant
// chooses then.
std::optional<TunedChoice> find_tuned(const TunedSchedules& schedules, std::string_view name,
                                      const Variant& variant, const Problem& problem,
                                      const Environment& env);

}  // namespace rooflane
