// Elements shared among threads. See elements.hpp.
#include "kernels/common/elements.hpp"

#include <algorithm>
#include <utility>

#include "hwy/cache_control.h"
#include "kernels/common/rows.hpp"
#include "kernels/common/rows_schedule.hpp"

namespace rooflane::common {
namespace {

// Pieces begin at multiples of so many elements: a page of float32, so that threads write lines of
// their own and whole vectors.
constexpr std::int64_t together = 1024;
// A thread's pieces, so that one that was held up is helped out.
constexpr std::int64_t most_pieces = 8;

}  // namespace

std::vector<Tuning> element_tunings(const Problem& problem, const Environment& env) {
  const int threads = useful_threads(env.threads, problem.size("rows"), problem.size("cols"));
  const auto written = static_cast<double>(
      problem.dtype("type")->bytes(problem.size("rows") * problem.size("cols")));
  const bool stream = worth_streaming(operand_bytes(problem) - written, written, threads, env);
  return {{{"stream", stream}}, {{"stream", !stream}}};
}

ElementsPlan::ElementsPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           std::string second, std::int64_t least_share)
    : Plan(problem),
      rows_(problem.size("rows")),
      cols_(problem.size("cols")),
      element_bytes_(static_cast<std::int64_t>(size_of(problem.dtype("type")))),
      pool_(env.pool),
      tuning_(tuning),
      second_name_(std::move(second)) {
  const std::int64_t elements = rows_ * cols_;
  threads_ = static_cast<int>(
      std::clamp<std::int64_t>(elements / least_share, 1, std::max(env.threads, 1)));
  const std::int64_t most = std::max(elements / least_share, std::int64_t{threads_});
  pieces_ = std::min(most, most_pieces * threads_);
}

void ElementsPlan::on_bind(const Operands& operands) {
  const auto rows_of = [&](const View& view) {
    const std::int64_t stride = view.rank == 1 ? 0 : view.strides[0];
    return Rows{static_cast<std::byte*>(view.data), stride * element_bytes_};
  };
  x_ = rows_of(operands.at("x"));
  y_ = rows_of(operands.at("y"));
  second_ = second_name_.empty() ? Rows{} : rows_of(operands.at(second_name_));
  const std::int64_t dense = cols_ * element_bytes_;
  const bool is_dense =
      x_.stride == dense && y_.stride == dense && (second_name_.empty() || second_.stride == dense);
  length_ = is_dense ? rows_ * cols_ : cols_;
  // In place the line is in cache already, and an ordinary store costs no further read.
  stream_ = tuning_.get("stream", 0) != 0 && x_.at != y_.at;
}

void ElementsPlan::run() {
  const std::int64_t elements = rows_ * cols_;
  if (elements == 0) return;
  const auto start = [&](std::int64_t piece) {
    return piece == pieces_ ? elements : elements / together * piece / pieces_ * together;
  };
  parallel_for_static(pool_, threads_, pieces_,
                      [&](std::int64_t piece, int) { work(start(piece), start(piece + 1)); });
}

// Elements [begin,end) of all, row after row.
void ElementsPlan::work(std::int64_t begin, std::int64_t end) const {
  std::int64_t row = begin / length_;
  for (std::int64_t col = begin % length_; begin < end; ++row, col = 0) {
    const std::int64_t count = std::min(end - begin, length_ - col);
    const auto at = [&](const Rows& rows) {
      return rows.at == nullptr ? nullptr : rows.at + row * rows.stride + col * element_bytes_;
    };
    compute({at(x_), at(second_), at(y_), static_cast<std::size_t>(count), stream_});
    begin += count;
  }
  if (stream_) hwy::FlushStream();
}

}  // namespace rooflane::common
