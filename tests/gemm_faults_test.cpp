// Does verification find what kernels with short numbers and epilogues get wrong? Faults known from
// real kernels are planted in random problems; each must be found, and what is right must pass.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "bench/random_problems.hpp"
#include "generated_catalogue.hpp"
#include "kernels/gemm/gemm.hpp"
#include "measure/verify.hpp"

using namespace rooflane;

namespace {

constexpr std::uint64_t seed = 71;
constexpr int problems_drawn = 1200;
constexpr std::int64_t largest_size = 100;  // three blocks of k, and a reference in microseconds

class Trial {
 public:
  explicit Trial(const Problem& problem)
      : g_(problem),
        problem_(problem),
        math_(*find_math(gemm::kernel, math_for(problem, "fp32"))),
        operands_(problem, seed, 1),
        reference_(compute_reference(problem, operands_.inputs(), seed, math_)) {}

  const gemm::Gemm& gemm() const { return g_; }
  const Problem& problem() const { return problem_; }
  DType type(const char* name) const { return problem_.dtype(name); }

  bool can_run() { return variant() != nullptr; }
  void run() {
    const auto plan = make_plan(*variant(), problem_, {}, environment(), operands_.all());
    plan->bind(operands_.all());
    plan->run();
  }
  // Runs with one input as `spoil` leaves it, which is put back before anybody judges.
  void run_with(const char* name, const std::function<void(std::span<std::byte>)>& spoil) {
    const std::span<std::byte> bytes = bytes_of(name);
    const std::vector<std::byte> kept(bytes.begin(), bytes.end());
    spoil(bytes);
    run();
    std::copy(kept.begin(), kept.end(), bytes.begin());
  }
  bool passes() {
    return verify_output(problem_, operands_.all(), reference_, seed, math_).status ==
           Status::passed;
  }
  std::span<std::byte> bytes_of(const char* name) const {
    const View& view = operands_.all().at(name);
    return {static_cast<std::byte*>(view.data), view.dtype->bytes(view.elements())};
  }
  template <class T>
  std::span<T> numbers(const char* name) const {
    const std::span<std::byte> bytes = bytes_of(name);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  std::vector<double> output() const {
    const View& c = operands_.output();
    std::vector<double> values(static_cast<std::size_t>(c.elements()));
    for (std::int64_t row = 0; row < c.rows(); ++row) {
      read_row(c, row, 0, std::span(values).subspan(row * c.cols(), c.cols()));
    }
    return values;
  }

 private:
  Environment environment() const {
    Environment env;
    env.math = math_.name;
    env.threads = 1;
    return env;
  }
  // Plain loops where they take the problem.
  const Variant* variant() const {
    for (const Variant* const variant : {&gemm::scalar, &gemm::hwy}) {
      if (!refusal(*variant, problem_, environment())) return variant;
    }
    return nullptr;
  }

  gemm::Gemm g_;
  Problem problem_;
  const Math& math_;
  OwnedOperands operands_;
  Reference reference_;
};

// Where blocks of b have 4-bit values, the number of bytes before these.
std::size_t head_of(DType format) { return format == &q4_1 ? 4 : 2; }

// Every block of b with its place in the tensor.
void for_each_block(DType format, std::span<std::byte> b,
                    const std::function<void(std::span<std::byte>, std::int64_t)>& change) {
  const std::size_t size = format->block_bytes;
  for (std::size_t at = 0; at + size <= b.size(); at += size) {
    change(b.subspan(at, size), static_cast<std::int64_t>(at / size));
  }
}

bool has_blocks(const Trial& t) { return t.type("b_type")->block > 1; }
bool has_nibbles(const Trial& t) { return t.type("b_type") == &q4_0 || t.type("b_type") == &q4_1; }

struct Fault {
  const char* name;
  bool (*applies)(const Trial&);
  void (*run)(Trial&);  // leaves the wrong result in c
};

void each_scale_from_the_next_block(Trial& t) {
  t.run_with("b", [&](std::span<std::byte> b) {
    const std::vector<std::byte> from(b.begin(), b.end());
    for_each_block(t.type("b_type"), b, [&](std::span<std::byte> block, std::int64_t at) {
      const std::size_t next = (static_cast<std::size_t>(at) + 1) * block.size() % from.size();
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(next), 2, block.begin());
    });
  });
}

void no_minimum(Trial& t) {
  t.run_with("b", [](std::span<std::byte> b) {
    for_each_block(&q4_1, b, [](std::span<std::byte> block, std::int64_t) {
      std::fill_n(block.begin() + 2, 2, std::byte{0});
    });
  });
}

void last_block_left_out(Trial& t) {
  t.run_with("b", [&](std::span<std::byte> b) {
    const std::int64_t of_row = t.gemm().k / 32;
    for_each_block(t.type("b_type"), b, [&](std::span<std::byte> block, std::int64_t at) {
      if (at % of_row == of_row - 1) std::fill(block.begin(), block.end(), std::byte{0});
    });
  });
}

void swapped_nibbles(Trial& t) {
  t.run_with("b", [&](std::span<std::byte> b) {
    const std::size_t head = head_of(t.type("b_type"));
    for_each_block(t.type("b_type"), b, [&](std::span<std::byte> block, std::int64_t) {
      for (std::byte& byte : block.subspan(head)) byte = byte << 4 | byte >> 4;
    });
  });
}

void scale_of_the_next_column(Trial& t) {
  t.run_with("b_scale", [&](std::span<std::byte>) {
    const std::span<float> scale = t.numbers<float>("b_scale");
    std::rotate(scale.begin(), scale.begin() + 1, scale.end());
  });
}

void bias_twice(Trial& t) {
  t.run_with("bias", [&](std::span<std::byte>) {
    for (float& x : t.numbers<float>("bias")) x *= 2;
  });
}

void residual_left_out(Trial& t) {
  t.run_with("residual", [](std::span<std::byte> residual) {
    std::fill(residual.begin(), residual.end(), std::byte{0});
  });
}

void last_of_k_left_out(Trial& t) {
  t.run_with("a", [&](std::span<std::byte> a) {
    const gemm::Gemm& g = t.gemm();
    const std::int64_t size = static_cast<std::int64_t>(size_of(t.type("a_type")));
    for (std::int64_t row = 0; row < g.batch * g.m; ++row) {
      const std::int64_t batch = row / g.m, i = row % g.m;
      const std::int64_t at = g.trans_a ? (batch * g.k + g.k - 1) * g.m + i : (row + 1) * g.k - 1;
      std::fill_n(a.begin() + at * size, size, std::byte{0});
    }
  });
}

// Integers: a pair of products added in 16 bits that saturate, as vpmaddubsw does.
void saturating_pairs(Trial& t) {
  const gemm::Gemm& g = t.gemm();
  const auto element_of_a = [&](std::int64_t batch, std::int64_t i, std::int64_t p) {
    const std::int64_t at = g.trans_a ? (batch * g.k + p) * g.m + i : (batch * g.m + i) * g.k + p;
    return t.type("a_type") == &uint8 ? std::int32_t{t.numbers<std::uint8_t>("a")[at]}
                                      : std::int32_t{t.numbers<std::int8_t>("a")[at]};
  };
  const auto element_of_b = [&](std::int64_t batch, std::int64_t p, std::int64_t j) {
    const std::int64_t at = g.trans_b ? (batch * g.n + j) * g.k + p : (batch * g.k + p) * g.n + j;
    return std::int32_t{t.numbers<std::int8_t>("b")[at]};
  };
  const std::span<std::int32_t> c = t.numbers<std::int32_t>("c");
  for (std::int64_t row = 0; row < g.batch * g.m; ++row) {
    for (std::int64_t j = 0; j < g.n; ++j) {
      std::int32_t sum = 0;
      for (std::int64_t p = 0; p < g.k; p += 2) {
        std::int32_t pair = 0;
        for (std::int64_t q = p; q < std::min(g.k, p + 2); ++q) {
          pair += element_of_a(row / g.m, row % g.m, q) * element_of_b(row / g.m, q, j);
        }
        sum += std::clamp<std::int32_t>(pair, std::numeric_limits<std::int16_t>::min(),
                                        std::numeric_limits<std::int16_t>::max());
      }
      c[row * g.n + j] = sum;
    }
  }
}

// s8 operands taken as u8, 128 larger, and one column's sum of b not taken off again.
void missing_compensation(Trial& t) {
  t.run();
  const gemm::Gemm& g = t.gemm();
  const std::span<const std::int8_t> b = t.numbers<std::int8_t>("b");
  std::int32_t sum = 0;
  for (std::int64_t p = 0; p < g.k; ++p) sum += b[g.trans_b ? p : p * g.n];
  for (std::int64_t i = 0; i < g.m; ++i) t.numbers<std::int32_t>("c")[i * g.n] += 128 * sum;
}

const Fault faults[] = {
    {"each scale from the next block", has_blocks, each_scale_from_the_next_block},
    {"no minimum", [](const Trial& t) { return t.type("b_type") == &q4_1; }, no_minimum},
    {"last block left out", has_blocks, last_block_left_out},
    {"swapped nibbles", has_nibbles, swapped_nibbles},
    {"scale of the next column",
     [](const Trial& t) { return t.type("b_type") == &int8_per_channel; },
     scale_of_the_next_column},
    {"bias twice", [](const Trial& t) { return t.gemm().epilogue.has(gemm::Epilogue::Op::bias); },
     bias_twice},
    {"residual left out",
     [](const Trial& t) { return t.gemm().epilogue.has(gemm::Epilogue::Op::add); },
     residual_left_out},
    {"last of k left out", [](const Trial&) { return true; }, last_of_k_left_out},
    {"pairs that saturate", [](const Trial& t) { return t.type("c_type") == &int32; },
     saturating_pairs},
    {"missing compensation",
     [](const Trial& t) { return t.type("c_type") == &int32 && t.type("a_type") == &int8; },
     missing_compensation},
};

// Whether an element moved by more than what the formats of inputs and output may lose: a bias that
// a clamp hides, for example, is not a fault.
bool matters(const Trial& t, const std::vector<double>& right, const std::vector<double>& wrong) {
  if (t.type("c_type") == &int32) return right != wrong;
  double largest = 0, moved = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    largest = std::max(largest, std::abs(right[i]));
    moved = std::max(moved, std::abs(right[i] - wrong[i]));
  }
  return moved > largest * (t.type("c_type") == &float32 ? 0x1p-10 : 0x1p-5);
}

}  // namespace

TEST_CASE("planted faults are found in random problems, and what is right passes") {
  std::map<std::string, int> planted;
  for (const Problem& problem : random_problems(
           gemm::kernel,
           {.count = problems_drawn, .seed = seed, .largest = largest_size, .formats = true})) {
    Trial trial(problem);
    const gemm::Gemm& g = trial.gemm();
    if (g.empty() || !g.reads_ab() || !trial.can_run()) continue;
    INFO(problem.text());
    trial.run();
    REQUIRE(trial.passes());
    const std::vector<double> right = trial.output();
    for (const Fault& fault : faults) {
      if (!fault.applies(trial)) continue;
      INFO(fault.name);
      fault.run(trial);
      if (!matters(trial, right, trial.output())) continue;
      ++planted[fault.name];
      CHECK_FALSE(trial.passes());
    }
  }
  for (const Fault& fault : faults) {
    INFO(fault.name);
    CHECK(planted[fault.name] >= 5);
  }
}
