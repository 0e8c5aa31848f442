// Products of short numbers: linear layers rewritten to bfloat16 or int8 weights and the arithmetic
// that goes with them, and where such weights come from.
#pragma once

#include <memory>
#include <string>

#include "model/instance.hpp"
#include "model/weights.hpp"

namespace rooflane::model {

// Every product by a float32 weight that products alone read, with the weight in `dtype` and by
// `math` (empty: the chain's), where kernel and format allow it: bfloat16 by bf16 rounds
// activations where they are read; int8_per_channel, only with trans_b=1, has a float32 scale for
// each column in a weight NAME.scale, and int8-dynamic gives each row of activations one where it
// is read.
Instance with_products_in(const Instance& instance, DType dtype, const std::string& math);

// Products by unchanged weights get this math where their formats allow it.
Instance with_math(const Instance& instance, const std::string& math);

// The weights of such an instance from a source of the plain one's: rounded once, or quantised with
// the scale max|w| / 127 of a column, and its scales. The source must outlive it.
std::unique_ptr<WeightSource> converted_weights(const Instance& plain, const Instance& converted,
                                                const WeightSource& source);

}  // namespace rooflane::model
