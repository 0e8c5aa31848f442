// See row_pieces.hpp.
#include "generate/row_pieces.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/distribution.hpp"
#include "core/seeds.hpp"
#include "model/rewrite.hpp"

namespace rooflane::generate {
namespace {

std::string_view kernel_of(const model::Call& call) { return call.problem.kernel().name; }

// Rows [begin, begin + count) of a product. c0, c and the like have rows as a has; what else there
// is belongs to columns.
model::Call product_of(const model::Call& call, std::int64_t begin, std::int64_t count,
                       const std::vector<model::Tensor>& tensors) {
  constexpr std::size_t rows_axis = 1;
  model::Views views = model::views_of(call);
  for (auto& [name, view] : views) {
    if (name != "a" && name != "c" && name != "c0" && name != "residual") continue;
    view.offset += begin * view.strides[rows_axis];
    view.shape[rows_axis] = count;
  }
  return model::call_of(model::without(call.problem, "m"), views, tensors);
}

// The query number `row` alone.
model::Call attention_of(const model::Call& call, std::int64_t row,
                         const std::vector<model::Tensor>& tensors) {
  constexpr std::size_t length_axis = 2;
  const std::int64_t unseen = call.problem.size("q_len") - 1 - row;
  model::Views views = model::views_of(call);
  for (auto& [name, view] : views) {
    if (name == "k" || name == "v") {
      view.shape[length_axis] -= unseen;
    } else {
      view.offset += row * view.strides[length_axis];
      view.shape[length_axis] = 1;
    }
  }
  return model::call_of(model::without(model::without(call.problem, "q_len"), "kv_len"), views,
                        tensors);
}

// The call in pieces of so many rows.
std::vector<model::Call> pieces_of(const model::Call& call, std::int64_t rows,
                                   const std::vector<model::Tensor>& tensors) {
  const bool is_product = kernel_of(call) == "gemm";
  const std::int64_t all = call.problem.size(is_product ? "m" : "q_len");
  std::vector<model::Call> pieces;
  for (std::int64_t begin = 0; begin < all; begin += rows) {
    pieces.push_back(is_product ? product_of(call, begin, std::min(rows, all - begin), tensors)
                                : attention_of(call, begin, tensors));
    pieces.back().math = call.math;
  }
  return pieces;
}

// Tries products on the model's own weights and buffers.
class Trial {
 public:
  Trial(const StoredCaches& model, std::size_t phase, const model::Memory& memory,
        const Catalogue& catalogue, const RunnerSettings& settings, const PhaseRunner& packed)
      : phase_(phase),
        memory_(memory),
        catalogue_(catalogue),
        settings_(settings),
        packed_(packed) {
    alone_.instance.phases.resize(phase + 1);
    alone_.stores.resize(phase + 1);
    alone_.instance.phases[phase].tensors = model.instance.phases[phase].tensors;
    alone_.instance.phases[phase].steps = {{"product", nullptr, 0, {}}};
  }

  // The most rows of a piece with which the product's rows are those of single ones.
  std::int64_t largest_piece(const model::Call& call) {
    fill(call);
    const std::vector<float> wanted = result_of(call, 1);
    for (const std::int64_t rows :
         {call.problem.size("m"), std::int64_t{4}, std::int64_t{3}, std::int64_t{2}}) {
      if (rows > call.problem.size("m")) continue;
      const std::vector<float> found = result_of(call, rows);
      // Bits: zeros of both signs differ later, and a NaN is what it is.
      if (std::memcmp(found.data(), wanted.data(), found.size() * sizeof(float)) == 0) return rows;
    }
    return 1;
  }

 private:
  void fill(const model::Call& call) const {
    for (const TensorSpec& spec : call.problem.kernel().tensors(call.problem)) {
      const model::Strided& view = model::find_operand(call, spec.name)->view;
      if (!is_read(spec.role) || is_weight(view)) continue;
      fill_from_seed(1, call.problem, spec, memory_.view(phase_, view), settings_.threads);
    }
  }
  bool is_weight(const model::Strided& view) const {
    return alone_.instance.phases[phase_].tensors[view.tensor].kind == model::Tensor::Kind::weight;
  }
  std::vector<float> result_of(const model::Call& call, std::int64_t rows) {
    model::Phase& phase = alone_.instance.phases[phase_];
    phase.calls = pieces_of(call, rows, phase.tensors);
    for (model::Call& piece : phase.calls) piece.step = 0;
    PhaseRunner(memory_, phase_, alone_, alone_, catalogue_, settings_, &packed_, nullptr, nullptr)
        .run(0);
    const View c = memory_.view(phase_, call.operands.back().view);
    std::vector<float> result;
    for (std::int64_t row = 0; row < c.rows(); ++row) {
      const auto* const from = reinterpret_cast<const float*>(c.row(row));
      result.insert(result.end(), from, from + c.cols());
    }
    return result;
  }

  StoredCaches alone_;  // the call that is tried, and no other
  std::size_t phase_;
  const model::Memory& memory_;
  const Catalogue& catalogue_;
  const RunnerSettings& settings_;
  const PhaseRunner& packed_;
};

// `sizes`: rows of a piece of each call; 0: it stays whole.
void part(StoredCaches& model, std::size_t number, const std::vector<std::int64_t>& sizes) {
  model::Phase& phase = model.instance.phases[number];
  std::vector<model::NamedCall> parted;
  std::vector<std::size_t> last;  // piece of each call
  const std::vector<model::NamedCall> calls = model::named_calls(phase);
  for (std::size_t c = 0; c < calls.size(); ++c) {
    if (sizes[c] == 0) {
      parted.push_back(calls[c]);
    } else {
      for (model::Call& piece : pieces_of(calls[c].call, sizes[c], phase.tensors)) {
        parted.push_back({std::move(piece), calls[c].step, calls[c].line});
      }
    }
    last.push_back(parted.size() - 1);
  }
  model::set_calls(phase, std::move(parted));
  for (CacheStore& store : model.stores[number]) store.call = last[store.call];
}

}  // namespace

void part_rows(StoredCaches& first, StoredCaches& next, std::size_t phase,
               const model::Memory& memory, const Catalogue& catalogue,
               const RunnerSettings& settings, const PhaseRunner& packed) {
  Trial trial(first, phase, memory, catalogue, settings, packed);
  std::map<std::string, std::int64_t> known;  // layers repeat their problems
  std::vector<std::int64_t> sizes;
  for (const model::Call& call : first.instance.phases[phase].calls) {
    if (kernel_of(call) == "attention") {
      sizes.push_back(1);
    } else if (kernel_of(call) == "gemm") {
      const auto [size, is_new] = known.emplace(call.math + " " + call.problem.text(), 0);
      if (is_new) {
        const std::int64_t rows = trial.largest_piece(call);
        size->second = rows == call.problem.size("m") ? 0 : rows;
      }
      sizes.push_back(size->second);
    } else {
      sizes.push_back(0);
    }
  }
  part(first, phase, sizes);
  part(next, phase, sizes);
}

}  // namespace rooflane::generate
