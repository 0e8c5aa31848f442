// Is a variant's output right? Compares with the double-precision reference within the kernel's
// bound; in full up to 2e8 FLOPs, above it on all edges, 64 seeded rows and columns, the kernel's
// whole-output check, and a scan for non-finite values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/buffer.hpp"
#include "core/kernel.hpp"

namespace rooflane {

inline constexpr double full_comparison_flops = 2e8;

// Expected values and bounds for chosen regions of a problem's output.
struct Reference {
  struct Part {
    Region region;
    std::vector<double> value;  // rows.size() × cols.size()
    std::vector<double> bound;
  };
  std::vector<Part> parts;
  bool complete = false;  // covers every element
};

// Operands that own their memory, in `problem`'s shapes; inputs filled from the seed. Outputs are
// filled with a signalling pattern (NaN) so that an untouched element fails.
// Every page is first touched by the pool's threads.
class OwnedOperands {
 public:
  OwnedOperands(const Problem& problem, std::uint64_t seed, int threads);
  const Operands& all() const { return all_; }
  const View& output() const { return output_; }
  void poison_output();
  // False when something wrote into the guard zones before and behind the output.
  bool guards_intact() const { return guarded_output_.guards_intact(); }
  // A checksum of all inputs, to prove that a run left them alone.
  std::uint64_t input_hash() const;

 private:
  std::vector<Buffer> buffers_;
  GuardedBuffer guarded_output_;
  Operands all_;
  View output_;
  std::vector<View> inputs_;
  int threads_;
};

// Throws Error(unavailable) naming the bytes when the problem's operands (times `copies`) exceed
// the memory that is available. Call before anything is allocated.
void require_memory(const Problem& problem, double copies);

// Uses all physical cores.
Reference compute_reference(const Problem& problem, const Operands& inputs, std::uint64_t seed);

struct Verification {
  bool passed = false;
  std::string metric = "error_over_bound";  // max over elements of |error| / bound
  double value = 0;
  double threshold = 1;
  double max_abs_error = 0;
  std::string reason;  // on failure: which element, expected, got
};

Verification verify_output(const Problem& problem, const Operands& inputs, const View& output,
                           const Reference& reference, std::uint64_t seed);

}  // namespace rooflane
