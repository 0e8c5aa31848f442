// What the values of an int32 tensor may be: ids of rows or segments, or how many of something are
// in use. Seeds keep to it, `run` of the command line checks it, plans may assume it.
#pragma once

#include <cstdint>
#include <string>

namespace rooflane {

class Problem;
struct TensorSpec;
struct View;

// N is the value of the size parameter `size`, at most 2^31 - 1. Counts from a seed are all N.
struct IntegerDomain {
  // any: the format's whole range. ids: 0 to N-1. counts: 0 to N.
  enum class Kind { any, ids, counts };
  Kind kind = Kind::any;
  const char* size = "";
  bool ascending = false;  // row-major, each value at least the one before

  bool limited() const { return kind != Kind::any; }
};

// One past the largest value that the tensor of a complete problem may hold. Needs a limited
// domain.
std::int64_t domain_end(const Problem& problem, const TensorSpec& tensor);

// Throws Error(argument) when N is too large, or when the tensor has elements but no value is
// allowed (ids below 0). Nothing where the domain is not limited.
void check_domain(const Problem& problem, const TensorSpec& tensor);

// Throws Error(argument) naming the first element of an int32 view that is outside the domain or,
// in an ascending one, smaller than the element before it. Nothing where the domain is not limited.
void require_in_domain(const Problem& problem, const TensorSpec& tensor, const View& view);

// An element by its row-major place, as NumPy writes it: "ids[3]", "ids[0,3]".
std::string element_name(const std::string& tensor, const View& view, std::int64_t index);

}  // namespace rooflane
