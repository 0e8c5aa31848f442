// A product on a unit (unit.hpp): everything that does not depend on the instruction. As the
// schedule says:
//   packed    a and b become micro-panels, blocks of which a macro-kernel multiplies
//             (packed_product.cpp). Threads share the micro-panels and pack them as they come to
//             need them: the first thread to need a piece packs it, others pack the next ones or
//             wait for it. There is no barrier.
//   unpacked  the same, but each share packs the columns of b that it uses into its own L2, or
//             reads them where they are stored. Either path may take a in these ways, too.
//   few_rows  few rows of a, rows of b as they are stored: each is read once (few_product.cpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/buffer.hpp"
#include "kernels/gemm/hwy_schedule.hpp"
#include "kernels/gemm/product.hpp"
#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

std::unique_ptr<Product> unit_product(const Problem& problem, const Schedule& schedule,
                                      const Environment& env, const Unit& unit,
                                      const ProductOperands& constants);

// What both paths have: operands, rows of op(a) as the unit takes them, memory.
class UnitProduct : public Product {
 public:
  UnitProduct(const Problem& problem, const Schedule& schedule, const Environment& env,
              const Unit& unit, bool shifts_a, const ProductOperands& constants);

  void bind(const ProductOperands& operands, const StoreJob& store) override;
  void run() override;
  PlanFacts facts() const override;
  std::span<const std::byte> kept() const override { return {kept_.get(), kept_bytes_}; }

 protected:
  static constexpr std::int64_t page_words = 1024, words_of_line = 16;

  virtual void run_batches(std::int64_t first, std::int64_t count) = 0;
  virtual const std::string& path() const = 0;

  bool quantised() const { return a_taken_ != nullptr && a_taken_ == unit_.a_quantised; }
  // a is packed 128 larger.
  bool needs_column_sums() const { return shifts_ || (quantised() && a_taken_ == &uint8); }

  // ---- memory

  Buffer workspace(std::int64_t words);
  // Batches that are packed together: as many as make 32 MiB. Starting a region costs nothing
  // beside packing that much.
  void pack_together(std::int64_t words_of_batch);
  // For each thread `sums_words` and rows of a that are converted; whole pages, so that threads
  // share none.
  void allocate_scratch(std::int64_t sums_words, std::int64_t rows_together);
  void keep_scale(const float* scale);
  // b of prepack=1, kept as it is stored, without gaps.
  MatrixView keep_as_stored(const ProductOperands& constants);
  // Keeps b of prepack=1: what another plan packed from `source`, if it is the same, else new
  // memory. pack(piece, to) packs one of `pieces` pieces; threads do so at once.
  void keep_packed(const std::byte* source, std::int64_t pieces, std::int64_t piece_bytes,
                   const std::function<void(std::int64_t piece, std::byte* to)>& pack);
  static std::uint32_t* at(const Buffer& buffer, std::int64_t place) {
    return static_cast<std::uint32_t*>(buffer.data()) + place;
  }
  std::uint32_t* scratch(int thread) const { return at(scratch_, thread * scratch_words_); }

  // Rows [first,first+count) of op(a) as the unit takes them: as they are, or converted.
  PackCall rows_of_a(std::int64_t batch, std::int64_t first, std::int64_t count, int thread) const;
  // Of the sums of a tile of the product formed.
  void store(const Rectangle& at, const std::uint32_t* sums, std::int64_t ld,
             const std::int32_t* column_sums) const;

  const Schedule s_;
  const Gemm g_;          // the product formed
  const bool prepacked_;  // b is
  const Environment env_;
  const Unit unit_;
  const DType a_type_, b_type_;  // of its operands
  const DType a_taken_;          // what a row of op(a) becomes before it is packed; null: nothing
  const bool shifts_;            // a is s8, packed as u8
  const StoreFunction store_tile_;
  const ConvertFunction convert_;
  const StoreJob* store_job_ = nullptr;
  MatrixView a_, b_;
  const float* b_scale_ = nullptr;
  std::shared_ptr<std::byte> kept_;  // b of prepack=1
  std::size_t kept_bytes_ = 0;
  std::vector<float> kept_scale_;
  std::size_t workspace_bytes_ = 0;
  std::int64_t together_ = 1;

 private:
  float* steps_of(std::int64_t batch, std::int64_t row) const {
    return quantised() ? steps_of_rows_.f32() + batch * g_.m + row : nullptr;
  }

  std::int64_t rows_at_ = 0, scratch_words_ = 0;
  Buffer scratch_, steps_of_rows_;
};

// packed_product.cpp, few_product.cpp.
std::unique_ptr<Product> packed_product(const Problem& problem, const Schedule& schedule,
                                        const Environment& env, const Unit& unit,
                                        const ProductOperands& constants);
std::unique_ptr<Product> few_product(const Problem& problem, const Schedule& schedule,
                                     const Environment& env, const Unit& unit,
                                     const ProductOperands& constants);

}  // namespace rooflane::gemm
