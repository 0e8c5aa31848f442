// How a plan forms its product: float32's loops (hwy_floats.cpp), micro-panels of a unit
// (packed_product.cpp), or few rows (few_product.cpp). What is the same for all of them is the plan
// of driver.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "core/variant.hpp"
#include "kernels/gemm/matrix_view.hpp"
#include "kernels/gemm/store.hpp"

namespace rooflane::gemm {

// op(a), and op(b) with its scales of columns: of prepack=1 at planning, else before each run.
struct ProductOperands {
  MatrixView a, b;
  const float* b_scale = nullptr;
};

class Product {
 public:
  Product() = default;
  virtual ~Product() = default;
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  // What the next runs multiply and where they store it; `store` outlives them. b is not read where
  // it was packed beforehand.
  virtual void bind(const ProductOperands& operands, const StoreJob& store) = 0;
  virtual void run() = 0;
  // Instruction, tuning and memory.
  virtual PlanFacts facts() const = 0;
  // b that was packed beforehand.
  virtual std::span<const std::byte> kept() const = 0;
};

// `constants`: b of prepack=1.
using MakeProduct =
    std::function<std::unique_ptr<Product>(const Problem&, const ProductOperands& constants)>;

}  // namespace rooflane::gemm
