// What the tests of attention share: every way to compute a problem, inputs that a test changes row
// by row, shapes that reach every path.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "absent_variants.hpp"
#include "all_threads.hpp"
#include "backends/highway.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "kernels/attention/attention.hpp"
#include "measure/verify.hpp"
#include "part_of_cases.hpp"

namespace rooflane::test {

inline constexpr std::uint64_t seed = 7;
inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

inline const Catalogue& catalogue() {
  static const Catalogue built_in = Catalogue::built_in();
  return built_in;
}

inline Problem problem_of(const std::string& shape) {
  return parse_problem("attention:" + shape, catalogue().kernels());
}

// One way to compute: a variant, with `step=I` a rung of its ladder, with `path=I` one of opencl's
// kernels; for hwy at one ISA target.
struct Way {
  const Variant* variant;
  std::string isa;
  Tuning tuning = {};
};

// The kernels of opencl's NVIDIA code path in portable form, keys split in two. One small tuning
// each, and only for the head_dims of path_shapes, since every program takes a device's compiler
// seconds.
inline std::vector<Tuning> portable_paths(const Problem& problem) {
  const attention::Sizes s(problem);
  std::vector<Tuning> found;
  if (s.type != &float32) return found;
  if (s.head_dim != 20 && s.head_dim != 64 && s.head_dim != 17 && s.head_dim != 35) return found;
  const std::int64_t splits = s.kv_len > 64 ? 2 : 1;
  found.push_back({{"path", 1},
                   {"code_path", 0},
                   {"w", 16},
                   {"bq", 16},
                   {"bk", 16},
                   {"tm", 4},
                   {"cd", 8},
                   {"cn", 8},
                   {"stages", 3},
                   {"unroll", 4},
                   {"splits", splits}});
  if (s.q_len * s.group() <= 8 && s.head_dim != 64) {
    found.push_back({{"path", 2},
                     {"code_path", 0},
                     {"w", 8},
                     {"lanes", 4},
                     {"nb", 2},
                     {"stages", 3},
                     {"splits", splits},
                     {"fused", 0}});
  }
  return found;
}

// Compute units of the device that opencl plans for.
inline int device_units() {
  for (const Backend* backend : all_backends()) {
    if (backend->devices != nullptr) return backend->devices->facts(0).compute_units;
  }
  return 0;
}

inline std::vector<Way> ways(const Problem& problem) {
  std::vector<Way> found;
  skip_absent(catalogue(), problem.kernel());
  // A program for each option and head_dim would take a device's compiler minutes: a prefill and a
  // decode of path_shapes are enough, and on opencl's paths for NVIDIA all options at once.
  const attention::Sizes s(problem);
  const bool own_program =
      s.mask || s.softcap != 0 || s.lengths || s.v_dim != s.head_dim || s.type != &float32;
  const bool rare_program = own_program && s.head_dim != 20 && s.head_dim != 35;
  const bool few_programs = !own_program || (s.mask && s.softcap != 0 && s.lengths);
  for (const CatalogueEntry* entry : catalogue().variants(problem.kernel())) {
    const Variant& variant = *entry->variant;
    if (refusal(variant, problem, {})) continue;
    const bool plain = !attention::option_refusal(problem);  // the only ones that rungs take
    if (rare_program && variant.backend->name == std::string("opencl")) continue;
    if (variant.backend->name != std::string("highway")) {
      found.push_back({&variant, ""});
      if (few_programs && variant.backend->name == std::string("opencl")) {
        for (const Tuning& path : portable_paths(problem)) found.push_back({&variant, "", path});
      }
      continue;
    }
    for (const std::string& isa : isa_targets()) {
      found.push_back({&variant, isa});
      if (!plain) continue;
      for (const Tuning& step : step_tunings(variant)) found.push_back({&variant, isa, step});
    }
  }
  REQUIRE(found.size() > 1);
  return found;
}

inline const Variant& scalar_variant(const Problem& problem) {
  for (const CatalogueEntry* entry : catalogue().variants(problem.kernel())) {
    if (entry->variant->name == std::string("scalar")) return *entry->variant;
  }
  throw std::logic_error("no scalar variant");
}

// Inputs from the seed, changed by `change`; o in reach by query.
class Trial {
 public:
  explicit Trial(const std::string& shape)
      : problem(problem_of(shape)),
        sizes(problem),
        operands(problem, seed, 1),
        all(operands.all()) {}

  float* row(const char* tensor, std::int64_t batch, std::int64_t head, std::int64_t i) {
    const attention::Heads heads(all.at(tensor));
    return heads.matrix(batch, head) + i * heads.row_stride;
  }
  void fill_row(const char* tensor, std::int64_t head, std::int64_t i, float value) {
    for (std::int64_t batch = 0; batch < sizes.batch; ++batch) {
      std::fill_n(row(tensor, batch, head, i), all.at(tensor).cols(), value);
    }
  }
  void run(const Way& way, int threads) {
    Environment env;
    env.isa = way.isa;
    env.threads = threads_of(*way.variant, way.tuning) == Threads::many ? threads : 1;
    operands.poison_output();
    const auto plan =
        make_plan(*way.variant, problem, on_all_threads(*way.variant, way.tuning, env), env, {});
    plan->bind(all);
    plan->upload();
    plan->run();
    plan->download();
  }
  // Runs every way with 1 and 3 threads and compares with the reference, then calls `check`.
  void run_all(const std::function<void()>& check = [] {}) {
    const Reference reference = compute_reference(problem, all, seed);
    const std::vector<Way> tried = ways(problem);
    for (const Way& way : tried) {
      for (int threads : {1, 3}) {
        const bool is_last = &way == &tried.back() && threads == 3;  // callers look at its output
        if (!takes_next_case() && !is_last) continue;
        INFO(problem.text(), " ", way.variant->name, " ", way.isa, " threads=", threads, " ",
             way.tuning.text());
        run(way, threads);
        const Verification result = verify_output(problem, all, reference, seed);
        CHECK_MESSAGE(result.passed(), result.reason);
        check();
      }
    }
  }

  Problem problem;
  attention::Sizes sizes;
  OwnedOperands operands;
  Operands all;
};

inline bool bits_equal(const float* x, const float* y, std::int64_t count) {
  return std::memcmp(x, y, static_cast<std::size_t>(count) * sizeof(float)) == 0;
}

// Shapes that reach every path: Q micro-panels with edges, decoding with whole and with partial
// vectors, grouped heads, keys split among threads.
inline constexpr const char* path_shapes[] = {
    "batch=1,heads=2,q_len=70,kv_len=70,head_dim=20",
    "batch=1,heads=4,kv_heads=2,q_len=50,kv_len=300,head_dim=64",
    "batch=1,heads=2,q_len=90,kv_len=33,head_dim=17",
    "batch=1,heads=4,kv_heads=1,q_len=1,kv_len=1500,head_dim=80",
    "batch=1,heads=2,kv_heads=1,q_len=3,kv_len=700,head_dim=35",
};

}  // namespace rooflane::test
