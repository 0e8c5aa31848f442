// The reference of a problem, computed once for inputs of the same values however many ways to
// compute it a test tries: in double precision it takes longer than the ways themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "measure/verify.hpp"

namespace rooflane::test {

// The problem and all values that are read, as bytes.
inline std::string reference_key(const Problem& problem, const Operands& operands,
                                 const InputSeed& seed, const Math& math) {
  std::string key =
      problem.text() + ' ' + std::to_string(seed.number) + ' ' + std::string(math.name) + ' ';
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    if (!is_read(tensor.role)) continue;
    const View& view = operands.at(tensor.name);
    if (view.empty()) continue;
    for (std::int64_t row = 0; row < view.rows(); ++row) {
      key.append(reinterpret_cast<const char*>(view.row(row)), view.dtype->bytes(view.cols()));
    }
  }
  return key;
}

// Valid until the thread's next call. Forgets all that it knows when that fills `most_bytes`.
inline const Reference& known_reference(const Problem& problem, const Operands& operands,
                                        const InputSeed& seed, const Math& math = fp32) {
  constexpr std::size_t most_bytes = std::size_t{256} << 20;
  static thread_local std::map<std::string, Reference> known;
  static thread_local std::size_t bytes = 0;
  std::string key =
      reference_key(problem, operands, seed, math) + std::string(seed.distribution->name);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  if (bytes > most_bytes) {
    known.clear();
    bytes = 0;
  }
  Reference reference = compute_reference(problem, operands, seed, math);
  bytes += key.size();
  for (const Reference::Part& part : reference.parts) {
    bytes += (part.value.size() + part.bound.size() + part.plain_bound.size()) * sizeof(double);
  }
  return known.emplace(std::move(key), std::move(reference)).first->second;
}

}  // namespace rooflane::test
