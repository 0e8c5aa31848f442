// float32 by Highway's multiply-adds: a product of driver.cpp with loops and schedules of its own.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/gemm/hwy_schedule.hpp"
#include "kernels/gemm/product.hpp"

namespace rooflane::gemm {

MicroTile micro_tile_at(std::int64_t target);

// A tuning that names all fields is a schedule; else the best one that agrees, with what it names.
// `g` as as_row() leaves it.
Schedule float_schedule(const Gemm& g, const Environment& env, const Tuning& tuning);

// With a float_schedule() of the problem, which is legal.
std::unique_ptr<Product> float_product(const Problem& problem, const Schedule& schedule,
                                       const Environment& env, const ProductOperands& constants);

}  // namespace rooflane::gemm
