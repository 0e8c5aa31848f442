// See unit_product.hpp.
#include "kernels/gemm/unit_product.hpp"

#include <atomic>
#include <cstring>

#include "backends/highway.hpp"
#include "core/parallel.hpp"
#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/kept_matrices.hpp"
#include "kernels/gemm/unit_schedule.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

DType taken(const Problem& problem, const Environment& env, const Unit& unit) {
  const DType a = problem.dtype("a_type"), to = unit.a_converted;
  if (env.math == math_int8_dynamic.name && unit.a_quantised != nullptr) return unit.a_quantised;
  // float32 is taken along k, from where it lies if it lies so.
  return a == to && !(to == &float32 && problem.flag("trans_a")) ? nullptr : to;
}

}  // namespace

UnitProduct::UnitProduct(const Problem& problem, const Schedule& schedule, const Environment& env,
                         const Unit& unit, bool shifts_a, const ProductOperands& constants)
    : s_(schedule),
      g_(formed_by_unit(schedule, Gemm(problem))),
      prepacked_(problem.flag("prepack")),
      env_(env),
      unit_(schedule.transposed ? *unit.swapped : unit),
      a_type_(problem.dtype(schedule.transposed ? "b_type" : "a_type")),
      b_type_(problem.dtype(schedule.transposed ? "a_type" : "b_type")),
      a_taken_(taken(problem, env, unit)),
      shifts_(shifts_a && a_type_ == &int8),
      store_tile_(store_function(resolve_isa(unit.isa))),
      convert_(convert_function(resolve_isa(unit.isa))) {
  if (prepacked_ && !g_.prepack) (s_.transposed ? a_ : b_) = keep_as_stored(constants);
}

void UnitProduct::bind(const ProductOperands& operands, const StoreJob& store) {
  (s_.transposed ? b_ : a_) = operands.a;
  if (!prepacked_) (s_.transposed ? a_ : b_) = operands.b, b_scale_ = operands.b_scale;
  store_job_ = &store;
}

void UnitProduct::run() {
  for (int64_t first = 0; first < g_.batch; first += together_) {
    run_batches(first, std::min(together_, g_.batch - first));
  }
}

PlanFacts UnitProduct::facts() const {
  PlanFacts facts;
  facts.isa = unit_.isa;
  facts.path = path();
  facts.tuning = tuning_of(s_);
  facts.packed_bytes = kept_bytes_;
  facts.workspace_bytes = workspace_bytes_;
  return facts;
}

Buffer UnitProduct::workspace(int64_t words) {
  Buffer buffer = Buffer::in_huge_pages(static_cast<std::size_t>(words * word_bytes));
  workspace_bytes_ += buffer.bytes();
  return buffer;
}

void UnitProduct::pack_together(int64_t words_of_batch) {
  const int64_t bytes = std::max<int64_t>(words_of_batch * word_bytes, 1);
  together_ = std::clamp<int64_t>((int64_t{32} << 20) / bytes, 1, std::max<int64_t>(g_.batch, 1));
}

void UnitProduct::allocate_scratch(int64_t sums_words, int64_t rows_together) {
  rows_at_ = sums_words + store_slack;
  const auto bytes = a_taken_ != nullptr ? static_cast<int64_t>(size_of(a_taken_)) : 0;
  const int64_t of_rows = div_up(rows_together * g_.k * bytes, word_bytes);
  scratch_words_ = round_up(rows_at_ + of_rows, page_words);
  scratch_ = workspace(scratch_words_ * s_.threads);
  if (quantised()) steps_of_rows_ = workspace(g_.batch * g_.m);
}

void UnitProduct::keep_scale(const float* scale) {
  if (scale == nullptr) return;
  kept_scale_.assign(scale, scale + (s_.transposed ? g_.m : g_.n));
  b_scale_ = kept_scale_.data();
  workspace_bytes_ += kept_scale_.size() * sizeof(float);
}

MatrixView UnitProduct::keep_as_stored(const ProductOperands& constants) {
  const MatrixView& b = constants.b;
  keep_scale(constants.b_scale);
  const bool along_k = s_.transposed ? !g_.trans_a : g_.trans_b;
  const int64_t columns = s_.transposed ? g_.m : g_.n;
  const int64_t rows = along_k ? columns : g_.k, length = along_k ? g_.k : columns;
  const auto bytes = static_cast<int64_t>(b.type->bytes(length));
  keep_packed(b.data, g_.batch * rows, bytes, [&](int64_t piece, std::byte* to) {
    const int64_t batch = piece / rows, row = piece % rows;
    std::copy_n(along_k ? b.at(batch, row) : b.at(batch, 0, row), bytes, to);
  });
  return {contiguous_view(kept_.get(), Shape{g_.batch, rows, length}, b.type), along_k};
}

// Plans that read one matrix with many rows of a and with few keep it once. The address says where
// to look. The bytes decide, piece by piece, as the caller may have changed what lies there.
void UnitProduct::keep_packed(const std::byte* source, int64_t pieces, int64_t piece_bytes,
                              const std::function<void(int64_t, std::byte*)>& pack) {
  static KeptMatrices matrices;
  const auto size = static_cast<std::size_t>(piece_bytes);
  kept_bytes_ = static_cast<std::size_t>(pieces) * size;
  const auto for_pieces = [&](const auto& body) {
    parallel_for(env_.pool, s_.threads, pieces, body);
  };
  // A unit may leave out columns that are not there.
  const auto pack_whole = [&](int64_t piece, std::byte* to) {
    std::fill_n(to, size, std::byte{0});
    pack(piece, to);
  };
  for (const KeptMatrices::Memory& known : matrices.packed_from(source, kept_bytes_)) {
    const Buffer repeated(size * static_cast<std::size_t>(s_.threads));
    std::atomic<bool> same = true;
    for_pieces([&](int64_t piece, int thread) {
      if (!same) return;
      auto* const to = static_cast<std::byte*>(repeated.data()) + thread * piece_bytes;
      pack_whole(piece, to);
      if (std::memcmp(to, known.get() + piece * piece_bytes, size) != 0) same = false;
    });
    if (!same) continue;
    kept_ = known;
    return;
  }
  kept_ = matrices.allocate(kept_bytes_);
  for_pieces([&](int64_t piece, int) { pack_whole(piece, kept_.get() + piece * piece_bytes); });
  matrices.add(source, kept_bytes_, kept_);
}

PackCall UnitProduct::rows_of_a(int64_t batch, int64_t first, int64_t count, int thread) const {
  PackCall call{};
  call.k = g_.k;
  call.count = count;
  call.xor_mask = shifts_ ? 0x80808080u : 0;
  if (a_taken_ == nullptr) {
    call.type = a_.type, call.from = a_.at(batch, first);
    call.outer = a_.outer, call.inner = a_.inner;
    return call;
  }
  auto* const rows = reinterpret_cast<std::byte*>(scratch(thread) + rows_at_);
  convert_({a_.type, a_.at(batch, first), a_.outer, a_.inner, count, g_.k, a_taken_, rows,
            steps_of(batch, first)});
  call.type = a_taken_, call.from = rows;
  call.outer = g_.k, call.inner = 1;
  return call;
}

void UnitProduct::store(const Rectangle& at, const std::uint32_t* sums, int64_t ld,
                        const std::int32_t* column_sums) const {
  const auto store_part = [&](const Rectangle& part, const std::uint32_t* from, int64_t step) {
    store_tile_(*store_job_,
                {part, from, step, unit_.integers, column_sums, steps_of(part.batch, part.row),
                 b_scale_ != nullptr ? b_scale_ + part.col : nullptr});
  };
  if (!s_.transposed) return store_part(at, sums, ld);
  if (at.rows == 1) return store_part({at.batch, at.col, at.row, at.cols, 1}, sums, 1);
  // In pieces that stay in L1.
  constexpr int64_t words = 1024;
  std::uint32_t piece[words + store_slack];
  const int64_t most = words / at.rows;
  for (int64_t first = 0; first < at.cols; first += most) {
    const int64_t cols = std::min(most, at.cols - first);
    for (int64_t i = 0; i < at.rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) piece[j * at.rows + i] = sums[i * ld + first + j];
    }
    std::fill_n(piece + cols * at.rows, store_slack, 0u);
    store_part({at.batch, at.col + first, at.row, cols, at.rows}, piece, at.rows);
  }
}

std::unique_ptr<Product> unit_product(const Problem& problem, const Schedule& schedule,
                                      const Environment& env, const Unit& unit,
                                      const ProductOperands& constants) {
  const auto make = schedule.path == Path::few_rows ? few_product : packed_product;
  return make(problem, schedule, env, unit, constants);
}

}  // namespace rooflane::gemm
