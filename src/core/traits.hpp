// What this machine was measured to be, as far as predicting a kernel's time asks: `rooflane
// calibrate` measures it (measure/calibrate.hpp), a file keeps it, and without one it is derived
// from what the system reports. Traits describe; ceilings (core/ceilings.hpp) limit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/machine.hpp"
#include "core/model_constants.hpp"

namespace rooflane {

// Memory levels, as indices of Rates::read and write.
enum Level : int { in_l1, in_l2, in_l3, in_memory };
inline constexpr int levels = 4;

// Copies, as indices of Rates::copy: from memory past the caches, one place after the other or four
// places side by side, which a core's prefetchers may follow further in all; and by plain stores
// within L3, where what L2 evicts meets what is read.
enum Copy : int { in_order, in_four, within_l3 };
inline constexpr int copies = 3;

struct Traits {
  // The rates of one thread.
  struct Rates {
    double fma = 0;             // flop/s, float32, at the ISA target
    double read[levels] = {};   // bytes/s loaded from a level
    double write[levels] = {};  // bytes/s stored to a level by plain stores
    double stream = 0;          // bytes/s stored past the caches
    double copy[copies] = {};   // bytes/s read and stored, together; 0: not measured
  };

  // Operations/s of one thread at work in registers, alone and with all others.
  struct Peak {
    double one = 0, many = 0;
  };

  int lanes = 1;              // float32 elements of a vector at the ISA target
  std::string origin;         // "measured 2026-01-31 12:00:00 UTC", or "derived"
  std::int64_t l1_bytes = 0;  // of one core
  std::int64_t l2_bytes = 0;  // of one core
  // As far as all threads together find the last level fast: what a machine reports may belong to
  // other tenants.
  std::int64_t l3_bytes = 0;
  int threads = 1;       // what `many` counts
  Rates one, many;       // a thread alone, and each of `threads` at work at once
  double transpose = 0;  // bytes/s read by a transposed copy of float32 in L2, one thread
  double region = 0;     // s to start and join a parallel region of `threads`; 0 for one
  double task = 0;       // s to hand out one task dynamically
  // How much later than their mean the last of `threads` ends equal work, as a part of that work:
  // cores that others share are slower. 0 for one.
  double jitter = 0;
  // How many pages of 4 KiB the TLB translates without a walk, and the seconds of a walk, if rows
  // in these pages are read one after the other.
  double pages = 0, page_walk = 0;
  // Units for short operands that this CPU has, by instruction: as calibrated.
  std::map<std::string, Peak> units;
  // What was learned on this machine, else what is shipped.
  ModelConstants constants;

  // Operations/s of each of one or several threads with this instruction. Derived from float32's
  // multiply-adds if the instruction was not measured.
  double rate(std::string_view instruction, bool several) const;
};

// The traits of this machine at an ISA target (its Highway name) and number of threads: from the
// file that traits_file() names, which is read once, or derived. The reference stays valid.
// Thread-safe, never throws for a broken file: traits_source() says what is wrong with it.
const Traits& traits(std::string_view isa, int threads);

// From the reported sizes and the clock; every constant has its derivation in traits.cpp.
Traits derived_traits(const Machine& machine, std::string_view isa, int threads);

// What a calibration found, for all ISA targets: the contents of a file.
struct MeasuredTraits {
  std::string machine;  // machine_key of where it was measured
  std::string date;     // "2026-01-31 12:00:00 UTC"
  std::string isa;      // the target at which all but the peaks was measured: the best
  std::map<std::string, Traits::Peak> fma;  // by ISA target
  Traits at_isa;                            // at `isa`; its origin is empty
};

// At another target or number of threads than measured; how is said in traits.cpp.
Traits traits_of(const MeasuredTraits& measured, const Machine& machine, std::string_view isa,
                 int threads);

// One `key value…` a line. parse_traits throws Error(argument) naming the line and what is allowed.
std::string print_traits(const MeasuredTraits& measured);
MeasuredTraits parse_traits(std::string_view text);

// CPU, caches and logical CPUs as one line: a file serves only the machine that it names.
std::string machine_key(const Machine& machine);

// Where traits are kept: $ROOFLANE_TRAITS, or a file of this machine's in cache_folder(). Empty:
// none, since ROOFLANE_TRAITS is empty or `none`, or there is no such folder.
std::filesystem::path traits_file();

// A file's traits, or why there are none. Both empty: there is no file.
struct TraitsSource {
  std::filesystem::path file;
  std::optional<MeasuredTraits> measured;
  std::string problem;  // one line
};
TraitsSource read_traits(const std::filesystem::path& file);
const TraitsSource& traits_source();  // of traits_file(), read once

// Replaces the traits that traits_source() found; nullopt restores those. References to traits stay
// valid and show the new ones. For comparing models: no plan may be made meanwhile.
void use_traits(std::optional<MeasuredTraits> measured);
// How often that was done: what was planned by other traits is no longer what would be.
int traits_uses();

// Replaces the file when complete; makes its folder. Throws Error(argument) naming it.
void write_traits(const std::filesystem::path& file, const MeasuredTraits& measured);

}  // namespace rooflane
