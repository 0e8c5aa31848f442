// Verification catches every way to cheat, for every kernel: the output of a right variant passes,
// and each spoiled one fails.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/float16.hpp"
#include "measure/reference_file.hpp"

using namespace rooflane;

namespace {

constexpr std::uint64_t seed = 3;

// Complete comparisons, and one per kernel beyond full_comparison_flops.
const char* const small_problems[] = {
    "gemm:m=65,n=70,k=130", "softmax:rows=40,cols=300", "layernorm:rows=40,cols=300",
    "attention:batch=1,heads=4,kv_heads=2,q_len=30,kv_len=50,head_dim=40,causal=1"};
const char* const large_problems[] = {
    "gemm:m=520,n=530,k=400", "softmax:rows=5000,cols=8100", "layernorm:rows=5000,cols=5800",
    "attention:batch=1,heads=2,q_len=1000,kv_len=1000,head_dim=64,causal=1"};

// The fastest variant there is computes; the reference judges.
void compute(const Catalogue& catalogue, const Problem& problem, const Operands& operands) {
  Environment env;
  env.threads = 2;
  const auto plan =
      catalogue.variant(problem.kernel(), "hwy").variant->plan(problem, {}, env, operands);
  plan->bind(operands);
  plan->run();
}

// 10 explicit mantissa bits, as TF32 has.
float to_tf32(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x1000u) & ~std::uint32_t{0x1fff});
}

struct Case {
  Problem problem;
  OwnedOperands operands;
  Reference reference;

  Case(const Catalogue& catalogue, const char* text)
      : problem(parse_problem(text, catalogue.kernels())),
        operands(problem, seed, 2),
        reference(compute_reference(problem, operands.all(), seed)) {
    compute(catalogue, problem, operands.all());
  }
  Status status() const { return verify_output(problem, operands.all(), reference, seed).status; }
  bool passes() const { return status() == Status::passed; }
  std::int64_t cols() const { return operands.output().shape[operands.output().rank - 1]; }
  std::int64_t rows() const { return operands.output().elements() / cols(); }
  float* row(std::int64_t r) const { return operands.output().f32() + r * cols(); }
};

void each_case(const std::function<void(const Catalogue&, Case&)>& body) {
  const Catalogue catalogue = Catalogue::built_in();
  for (const auto& list : {small_problems, large_problems}) {
    for (const char* text : std::span(list, 4)) {
      INFO(std::string(text));
      Case c(catalogue, text);
      REQUIRE(c.reference.complete == (list == small_problems));
      body(catalogue, c);
    }
  }
}

}  // namespace

TEST_CASE("a right output passes, in full and in samples") {
  each_case([](const Catalogue&, Case& c) { CHECK(c.passes()); });
}

TEST_CASE("zeros fail") {
  each_case([](const Catalogue&, Case& c) {
    std::fill_n(c.operands.output().f32(), c.operands.output().elements(), 0.0F);
    CHECK_FALSE(c.passes());
  });
}

TEST_CASE("an output left as it was fails") {
  each_case([](const Catalogue&, Case& c) {
    c.operands.poison_output();
    CHECK_FALSE(c.passes());
  });
}

TEST_CASE("the output of other inputs fails") {
  each_case([](const Catalogue& catalogue, Case& c) {
    OwnedOperands other(c.problem, seed + 1, 2);
    compute(catalogue, c.problem, other.all());
    std::copy_n(other.output().f32(), other.output().elements(), c.operands.output().f32());
    CHECK_FALSE(c.passes());
  });
}

TEST_CASE("swapped rows fail") {
  each_case([](const Catalogue&, Case& c) {
    std::swap_ranges(c.row(0), c.row(1), c.row(c.rows() - 1));
    CHECK_FALSE(c.passes());
  });
}

TEST_CASE("inputs rounded to TF32 fail") {
  each_case([](const Catalogue& catalogue, Case& c) {
    OwnedOperands rounded(c.problem, seed, 2);
    for (const auto& [name, view] : rounded.all().all()) {
      if (view.data == rounded.output().data) continue;
      std::transform(view.f32(), view.f32() + view.elements(), view.f32(), to_tf32);
    }
    compute(catalogue, c.problem, rounded.all());
    std::copy_n(rounded.output().f32(), rounded.output().elements(), c.operands.output().f32());
    CHECK(c.status() == Status::failed);
  });
}

TEST_CASE("inputs rounded to bfloat16 fail") {
  each_case([](const Catalogue& catalogue, Case& c) {
    OwnedOperands rounded(c.problem, seed, 2);
    for (const auto& [name, view] : rounded.inputs().all()) {
      std::transform(view.f32(), view.f32() + view.elements(), view.f32(),
                     [](float x) { return static_cast<float>(BFloat16(x)); });
    }
    compute(catalogue, c.problem, rounded.all());
    std::copy_n(rounded.output().f32(), rounded.output().elements(), c.operands.output().f32());
    CHECK(c.status() == Status::failed);
  });
}

TEST_CASE("an exp that errs by 1e-4 fails") {
  const Catalogue catalogue = Catalogue::built_in();
  // exp(x) with an error, up or down by x's last bit.
  const auto erring = [](double x) {
    const bool up = std::bit_cast<std::uint32_t>(static_cast<float>(x)) & 1;
    return std::exp(x) * (up ? 1 + 1e-4 : 1 - 1e-4);
  };
  for (const char* text : {"softmax:rows=5,cols=7", "softmax:rows=50,cols=8100"}) {
    Case c(catalogue, text);
    const float* x = c.operands.all().at("x").f32();
    for (std::int64_t r = 0; r < c.rows(); ++r, x += c.cols()) {
      const double max = *std::max_element(x, x + c.cols());
      double sum = 0;
      for (std::int64_t j = 0; j < c.cols(); ++j) sum += erring(x[j] - max);
      for (std::int64_t j = 0; j < c.cols(); ++j) {
        c.row(r)[j] = static_cast<float>(erring(x[j] - max) / sum);
      }
    }
    CHECK(c.status() == Status::failed);
  }
  // Few keys: over many the errors of random sign would cancel in the sum that is compared.
  Case c(catalogue, "attention:batch=1,heads=1,q_len=9,kv_len=5,head_dim=16");
  const float* q = c.operands.all().at("q").f32();
  const float* k = c.operands.all().at("k").f32();
  const float* v = c.operands.all().at("v").f32();
  for (int i = 0; i < 9; ++i) {
    double sum = 0, total[16] = {};
    for (int j = 0; j < 5; ++j) {
      double score = 0;
      for (int d = 0; d < 16; ++d) score += double{q[i * 16 + d]} * k[j * 16 + d] / 4;
      const double weight = erring(score);
      sum += weight;
      for (int d = 0; d < 16; ++d) total[d] += weight * v[j * 16 + d];
    }
    for (int d = 0; d < 16; ++d) c.row(i)[d] = static_cast<float>(total[d] / sum);
  }
  CHECK(c.status() == Status::failed);
}

TEST_CASE("one element left unwritten fails wherever it is") {
  each_case([](const Catalogue&, Case& c) {
    const std::int64_t at = c.operands.output().elements() * 5 / 7;
    c.operands.output().f32()[at] = std::numeric_limits<float>::quiet_NaN();
    CHECK_FALSE(c.passes());
  });
}

TEST_CASE("a gemm that forgets one inner block fails although no sampled line crosses it") {
  const Catalogue catalogue = Catalogue::built_in();
  Case c(catalogue, large_problems[0]);
  const Region& rows = c.reference.parts.at(0).region;
  const Region& cols = c.reference.parts.at(1).region;
  const auto sampled = [](const std::vector<std::int64_t>& lines, std::int64_t line) {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  int spoiled = 0;
  for (std::int64_t r = 100; r < 116; ++r) {
    for (std::int64_t col = 200; col < 216; ++col) {
      if (sampled(rows.rows, r) || sampled(cols.cols, col)) continue;
      c.row(r)[col] = 0;
      ++spoiled;
    }
  }
  REQUIRE(spoiled > 0);
  CHECK_FALSE(c.passes());
}

TEST_CASE("changed inputs change their hash") {
  const Catalogue catalogue = Catalogue::built_in();
  for (const char* text : small_problems) {
    const Problem problem = parse_problem(text, catalogue.kernels());
    OwnedOperands operands(problem, seed, 1);
    const std::uint64_t before = operands.input_hash();
    CHECK(OwnedOperands(problem, seed, 2).input_hash() == before);
    for (const auto& [name, view] : operands.all().all()) {
      if (view.data == operands.output().data) continue;
      float& element = view.f32()[view.elements() / 2];
      const float kept = element;
      element = std::nextafter(kept, 2.0F);
      CHECK(operands.input_hash() != before);
      element = kept;
    }
    CHECK(operands.input_hash() == before);
  }
}

TEST_CASE("the first wrong element is named with what was expected") {
  const Catalogue catalogue = Catalogue::built_in();
  Case c(catalogue, small_problems[0]);
  c.row(3)[7] += 1;
  const Verification result = verify_output(c.problem, c.operands.all(), c.reference, seed);
  CHECK_FALSE(result.passed());
  CHECK(result.reason.find("element [3,7] is ") == 0);
  CHECK(result.value > 1);
}

TEST_CASE("a reference survives its file, and a spoiled file is refused") {
  const Catalogue catalogue = Catalogue::built_in();
  const Case c(catalogue, large_problems[0]);
  const std::string path =
      (std::filesystem::temp_directory_path() / "rooflane_verify_test.ref").string();
  write_reference(c.reference, path);
  const Reference back = read_reference(path);
  REQUIRE(back.parts.size() == c.reference.parts.size());
  CHECK(back.complete == c.reference.complete);
  for (std::size_t i = 0; i < back.parts.size(); ++i) {
    CHECK(back.parts[i].region.rows == c.reference.parts[i].region.rows);
    CHECK(back.parts[i].region.cols == c.reference.parts[i].region.cols);
    CHECK(back.parts[i].value == c.reference.parts[i].value);
    CHECK(back.parts[i].bound == c.reference.parts[i].bound);
    CHECK(back.parts[i].plain_bound == c.reference.parts[i].plain_bound);
    CHECK(back.parts[i].tensor == c.reference.parts[i].tensor);
  }
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 9);
  CHECK_THROWS_AS(read_reference(path), Error);
  std::ofstream(path) << "rubbish";
  CHECK_THROWS_AS(read_reference(path), Error);
  std::filesystem::remove(path);
  CHECK_THROWS_AS(read_reference(path), Error);
  CHECK_THROWS_AS(write_reference(c.reference, "/nonexistent/folder/x.ref"), Error);
}

TEST_CASE("a problem larger than memory is refused before anything is allocated") {
  const Catalogue catalogue = Catalogue::built_in();
  const Problem problem = parse_problem("gemm:m=10000000,n=10000000,k=1", catalogue.kernels());
  try {
    require_memory(problem, 1);
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unavailable);
    CHECK(std::string(error.what()).find("MiB available") != std::string::npos);
  }
}
