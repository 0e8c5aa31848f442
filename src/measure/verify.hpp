// Checks a variant's output: compares with the double-precision reference within the kernel's
// bound; in full up to 2e8 FLOPs and 4e7 elements, above it on all edges, 64 seeded rows and
// columns (fewer columns of outputs with more than 6e5 rows: 4e7 elements at most; 256 where the
// kernel has a whole-output check that does not apply to the problem), that check where it does,
// and a scan for non-finite values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.hpp"
#include "core/kernel.hpp"
#include "core/status.hpp"

namespace rooflane {

inline constexpr double full_comparison_flops = 2e8;
// Elements of one output, whatever few flops they take: value and bounds of each are 24 bytes.
inline constexpr double full_comparison_elements = 4e7;

// Expected values and bounds for chosen regions of a problem's outputs. The bounds hold the
// rounding to the output's format.
struct Reference {
  struct Part {
    std::string tensor;
    Region region;
    std::vector<double> value;  // rows.size() × cols.size()
    std::vector<double> bound;
    std::vector<double> plain_bound;
  };
  std::vector<Part> parts;
  bool complete = false;  // covers every element
};

// Operands that own their memory, in `problem`'s shapes; what is read is filled from the seed.
// Outputs are filled with ones, NaN in every float format, so that an untouched element fails.
// Every page is first touched by the pool's threads.
class OwnedOperands {
 public:
  OwnedOperands(const Problem& problem, const InputSeed& seed, int threads);
  // What a plan is bound to.
  const Operands& all() const { return all_; }
  // What a reference takes: of updated tensors what they held before the run.
  const Operands& inputs() const { return inputs_; }
  // The only output; for the many kernels that have one.
  const View& output() const { return all_.at(outputs_.front().name); }
  // Makes outputs as they are before a first run; only those that are read as well.
  void poison_output();
  void reset_updated();
  // Whether an element of a float output still is what poison_output() made it.
  bool holds_poison() const;
  // False when something wrote into the guard zones before and behind an output.
  bool guards_intact() const;
  // Checksums: of the read-only tensors, to prove that a run left them alone; of all outputs.
  std::uint64_t input_hash() const;
  std::uint64_t output_hash() const;
  // Puts NaN, or in integers -1 or the largest of their domain, into everything that is read, and
  // back what the seed gives.
  void spoil_inputs();
  void restore_inputs();
  // Other contents, those of another seed, until they are restored.
  void change_inputs();

 private:
  void fill_inputs(const InputSeed& seed);

  struct Output {
    std::string name;
    GuardedBuffer memory;
    bool updated = false;
  };
  Problem problem_;
  InputSeed seed_;
  int threads_;
  std::vector<TensorSpec> tensors_;
  std::vector<Buffer> buffers_;
  std::vector<Output> outputs_;
  Operands all_;
  Operands inputs_;
};

// Throws Error(unavailable) naming the bytes when the problem's operands (times `copies`) exceed
// the memory that is available. Call before anything is allocated.
void require_memory(const Problem& problem, double copies);

// The same tensors as float32, those of other formats as copies: what kernels' references take.
// int32 ones stay, since float32 does not hold all ids.
class Float32Copies {
 public:
  explicit Float32Copies(const Operands& operands);
  const Operands& operands() const { return operands_; }

 private:
  View copy(const View& view);

  std::vector<Buffer> buffers_;
  Operands operands_;
};

// The exact values of a region of one output, for inputs of any format.
std::vector<double> reference_values(const Problem& problem, const Operands& inputs,
                                     const TensorSpec& output, const Region& region);
// Whether stored elements of a region of one output are within the bound that plain sums keep.
bool right_elements(const Problem& problem, const Operands& inputs, const InputSeed& seed,
                    const Math& math, const TensorSpec& output, Region region,
                    std::span<const std::byte> stored);
// The reference of every output, for inputs of the seed's distribution. Uses all physical cores.
Reference compute_reference(const Problem& problem, const Operands& inputs, const InputSeed& seed,
                            const Math& math = fp32);

// Checksum of bytes, going on from `hash`, that of the bytes before them.
std::uint64_t hash_bytes(std::uint64_t hash, std::span<const std::byte> bytes);

// One of outputs, which JSON carries as a positive number.
inline std::uint64_t hash_of_output(std::uint64_t hash) { return hash >> 1 | 1; }

struct Verification {
  // passed; inaccurate: beyond the bound, within what plain sums may lose; else failed.
  Status status = Status::failed;
  std::string metric = "error_over_bound";  // max over elements of |error| / bound
  double value = 0;
  double threshold = 1;
  double max_abs_error = 0;
  std::string reason;  // unless passed: which element, expected, got
  // Checksum of the outputs that were compared; 0: not known.
  std::uint64_t output_hash = 0;

  bool passed() const { return status == Status::passed; }
  // Right enough to be timed.
  bool usable() const { return status == Status::passed || status == Status::inaccurate; }
};

// Compares the outputs among `operands` with the reference.
Verification verify_output(const Problem& problem, const Operands& operands,
                           const Reference& reference, const InputSeed& seed,
                           const Math& math = fp32);

}  // namespace rooflane
