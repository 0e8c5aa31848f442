// What hwy.cpp takes from rows-inl.h: the loops over an element type, for a target.
#pragma once

#include <cstdint>

#include "kernels/common/row_plan.hpp"
#include "kernels/common/rows.hpp"
#include "kernels/softmax/softmax.hpp"

namespace rooflane::softmax {

struct Loops {
  // Whole rows [begin,end) of cols elements. `scratch`: room for the terms of two rows, or null.
  // `resident`: a row stays in L2.
  void (*rows)(const common::AnyRows&, std::int64_t begin, std::int64_t end, std::int64_t cols,
               float* scratch, bool resident, const common::RowAccess&);
  // What is known of a part of a row. `stays`: it stays in L2. `keeps`: y takes its terms.
  Partial (*part)(const common::AnyRows&, std::int64_t row, const common::Slice&, bool stays,
                  bool keeps, bool pages);
  // Its result. `kept`: y has its terms.
  void (*finish)(const common::AnyRows&, std::int64_t row, const common::Slice&,
                 const Partial& part, const Partial& whole, bool kept, bool stream);
};

}  // namespace rooflane::softmax
