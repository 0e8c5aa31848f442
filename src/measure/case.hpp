// A case: everything that identifies a measurement, as one line of text from which another process
// rebuilds it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/catalogue.hpp"
#include "core/distribution.hpp"

namespace rooflane {

enum class CacheMode { warm, cold };
enum class Timer { steady, event };

struct Case {
  Problem problem;
  std::string variant;  // as users name it: hwy, blas, blas-mkl
  Tuning tuning;        // as given, may be incomplete; empty: the variant's own choice
  bool stored = false;  // `tuning` is an entry of tuned schedules (core/tuned.hpp)
  std::string math = "fp32";
  int threads = 1;  // 0: a whole OpenCL device
  // As core/placement.hpp takes it; empty: the run's, for which its ceilings are measured.
  std::string placement;
  std::string isa;      // as given; empty: the variant's default
  std::string library;  // path of the CBLAS library; empty: default search
  int device = 0;
  CacheMode cache = CacheMode::warm;
  Timer timer = Timer::steady;
  std::uint64_t seed = 1;
  const Distribution* distribution = &uniform;

  // "gemm:m=8,n=8,k=8 variant=hwy threads=2 seed=1"; fields at their default left out; spaces,
  // '%' and control characters in values are percent-encoded.
  std::string text() const;
  // Looks no tuning up: who made the case did, so that every process runs the same.
  Environment environment() const;
  InputSeed inputs() const { return {seed, *distribution}; }
  // The record of `math`; fp32's where the kernel has no such math, which every variant refuses.
  const Math& math_record() const;
};

// Where the tuning of a case of this variant comes from: `model`, `store` or `given`; empty for a
// variant without tunables.
std::string_view tuning_source_of(const Case& c, const Variant& variant);

std::string_view name_of(CacheMode mode);  // "warm", "cold"
std::string_view name_of(Timer timer);     // "steady", "event"

// Throws Error for anything that `text` does not print.
Case parse_case(std::string_view text, const Catalogue& catalogue);

// The entry and the variant of a case. `blas-mkl` with a library is found in a catalogue that knows
// only `blas`: a worker is not told of --blas NAME=PATH. Throw Error as Catalogue::variant does.
const CatalogueEntry& entry_of(const Case& c, const Catalogue& catalogue);
const Variant& variant_of(const Case& c, const Catalogue& catalogue);

}  // namespace rooflane
