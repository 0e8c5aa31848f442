// What is particular to attention: masking, special values, grouped heads, cost, workspace; for
// each variant on a CPU and each ISA target. Shapes and memory layouts: conformance_test.cpp; mask,
// window and the width of v: attention_options_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attention_trial.hpp"

using namespace rooflane;
using namespace rooflane::test;

TEST_CASE("attention: causal masking is aligned to the end, whichever of q and kv is longer") {
  for (const char* shape : {"batch=2,heads=2,q_len=100,kv_len=37,head_dim=24,causal=1",
                            "batch=1,heads=3,q_len=37,kv_len=200,head_dim=24,causal=1",
                            "batch=1,heads=4,kv_heads=2,q_len=5,kv_len=3,head_dim=32,causal=1",
                            "batch=1,heads=4,kv_heads=1,q_len=2,kv_len=900,head_dim=64,causal=1",
                            "batch=1,heads=1,q_len=300,kv_len=300,head_dim=16,causal=1"}) {
    Trial trial(shape);
    trial.run_all([&] {
      // Queries that see no key give zeros, bit for bit.
      const std::vector<float> zeros(static_cast<std::size_t>(trial.sizes.head_dim));
      for (std::int64_t i = 0; i < trial.sizes.q_len - trial.sizes.kv_len; ++i) {
        CHECK(bits_equal(trial.row("o", 0, 0, i), zeros.data(), trial.sizes.head_dim));
      }
    });
  }
}

TEST_CASE("attention: any number of queries, from decoding to panels, at any head_dim") {
  // Around half and whole vectors of rows, where vectors along head_dim give way to vectors along
  // rows; whole vectors of head_dim in fours, twos and ones, and ends of every length.
  for (std::int64_t q_len : {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 33, 49}) {
    for (std::int64_t head_dim : {1, 16, 19, 40, 112, 240}) {
      for (std::int64_t heads : {1, 3}) {
        Trial trial("batch=1,heads=" + std::to_string(heads) +
                    ",kv_heads=1,q_len=" + std::to_string(q_len) +
                    ",kv_len=83,head_dim=" + std::to_string(head_dim) + ",causal=1");
        trial.run_all();
      }
    }
  }
}

TEST_CASE("attention: keys and values larger than L2, several tiles and parts of tiles") {
  for (const char* shape : {"batch=1,heads=2,q_len=70,kv_len=2100,head_dim=128,causal=1",
                            "batch=1,heads=2,kv_heads=1,q_len=13,kv_len=4500,head_dim=64,causal=0",
                            "batch=1,heads=4,kv_heads=1,q_len=3,kv_len=2300,head_dim=128,causal=1",
                            "batch=1,heads=1,q_len=1,kv_len=2300,head_dim=128,causal=0",
                            "batch=1,heads=1,q_len=1,kv_len=2300,head_dim=60,causal=0"}) {
    Trial(shape).run_all();
  }
}

TEST_CASE("attention: a query head reads the kv head of its group") {
  Trial trial("batch=2,heads=6,kv_heads=3,q_len=9,kv_len=12,head_dim=16");
  for (std::int64_t kv_head = 0; kv_head < 3; ++kv_head) {
    for (std::int64_t j = 0; j < 12; ++j) {
      trial.fill_row("v", kv_head, j, static_cast<float>(kv_head + 1));
    }
  }
  trial.run_all([&] {
    for (std::int64_t head = 0; head < 6; ++head) {
      CHECK(trial.row("o", 1, head, 8)[15] ==
            doctest::Approx(static_cast<double>(head / 2 + 1)).epsilon(1e-6));
    }
  });
}

TEST_CASE("attention: no keys give zeros, and empty outputs are a success") {
  Trial no_keys("batch=2,heads=2,q_len=3,kv_len=0,head_dim=5");
  no_keys.run_all([&] { CHECK(no_keys.row("o", 1, 1, 2)[4] == 0); });
  Trial no_queries("batch=2,heads=2,q_len=0,kv_len=3,head_dim=5");
  no_queries.run_all();
  Trial no_batch("batch=0,heads=2,q_len=3,kv_len=3,head_dim=5");
  no_batch.run_all();
}

TEST_CASE("attention: keys that a query may not see have no influence, NaN and infinity included") {
  for (const char* shape : path_shapes) {
    Trial clean(std::string(shape) + ",causal=1");
    const std::int64_t head_dim = clean.sizes.head_dim, kv_len = clean.sizes.kv_len;
    // The last query sees all, the one before all but the last: from there on everything is seen.
    const std::int64_t poisoned = clean.sizes.q_len > 1 ? std::min<std::int64_t>(kv_len, 3) : 0;
    for (const Way& way : ways(clean.problem)) {
      for (int threads : {1, 3}) {
        INFO(clean.problem.text(), " ", way.variant->name, " ", way.isa, " threads=", threads, " ",
             way.tuning.text());
        clean.run(way, threads);
        for (float poison : {not_a_number, infinity, -infinity}) {
          Trial dirty(std::string(shape) + ",causal=1");
          for (std::int64_t head = 0; head < dirty.sizes.kv_heads; ++head) {
            for (std::int64_t j = kv_len - poisoned; j < kv_len; ++j) {
              dirty.fill_row("k", head, j, poison);
              dirty.fill_row("v", head, j, poison);
            }
          }
          dirty.run(way, threads);
          for (std::int64_t head = 0; head < dirty.sizes.heads; ++head) {
            for (std::int64_t i = 0; i < dirty.sizes.q_len; ++i) {
              const float* got = dirty.row("o", 0, head, i);
              const bool sees_poison = dirty.sizes.end_key(i) > kv_len - poisoned;
              INFO("head ", head, " query ", i);
              if (sees_poison) {
                CHECK(std::isnan(got[0]));
              } else {
                // Other orders of summation are allowed, other values are not.
                const float* expected = clean.row("o", 0, head, i);
                bool near = true;
                for (std::int64_t c = 0; c < head_dim; ++c) {
                  near = near && std::abs(got[c] - expected[c]) <= 1e-5F;
                }
                CHECK(near);
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("attention: a key on the diagonal reaches the queries that see it and no other") {
  // Several vectors a Q micro-panel, several micro-panels, edges of each; grouped heads.
  for (const char* shape : {"batch=1,heads=1,q_len=120,kv_len=130,head_dim=20,causal=1",
                            "batch=1,heads=6,kv_heads=2,q_len=45,kv_len=45,head_dim=17,causal=1",
                            "batch=1,heads=1,q_len=150,kv_len=100,head_dim=12,causal=1"}) {
    Trial clean(shape), dirty(shape);
    clean.run({&scalar_variant(clean.problem), ""}, 1);
    const std::int64_t kv_len = clean.sizes.kv_len;
    for (std::int64_t key : {kv_len - 43, kv_len - 30, kv_len - 16, kv_len - 7, kv_len - 1}) {
      std::vector<float> kept(dirty.row("v", 0, 0, key),
                              dirty.row("v", 0, 0, key) + clean.sizes.head_dim);
      dirty.fill_row("v", 0, key, infinity);
      for (const Way& way : ways(clean.problem)) {
        INFO(clean.problem.text(), " ", way.variant->name, " ", way.isa, " ", way.tuning.text(),
             " key ", key);
        dirty.run(way, 1);
        bool right = true;
        for (std::int64_t i = 0; i < clean.sizes.q_len; ++i) {
          const float* got = dirty.row("o", 0, 0, i);
          const float* expected = clean.row("o", 0, 0, i);
          for (std::int64_t c = 0; c < clean.sizes.head_dim; ++c) {
            right =
                right && (clean.sizes.end_key(i) > key ? got[c] == infinity
                                                       : std::abs(got[c] - expected[c]) <= 1e-5F);
          }
        }
        CHECK(right);
      }
      std::copy(kept.begin(), kept.end(), dirty.row("v", 0, 0, key));
    }
  }
}

TEST_CASE("attention: NaN in a query, a seen key or a seen value spreads, and only there") {
  for (const char* shape : path_shapes) {
    Trial in_q(shape);
    in_q.row("q", 0, 0, 0)[1] = not_a_number;
    in_q.run_all([&] { CHECK(std::isnan(in_q.row("o", 0, 0, 0)[0])); });
    Trial in_k(shape);
    in_k.row("k", 0, 0, 2)[1] = not_a_number;
    in_k.run_all([&] { CHECK(std::isnan(in_k.row("o", 0, 0, 0)[0])); });
    Trial in_v(shape);
    in_v.row("v", 0, 0, 2)[1] = not_a_number;
    in_v.run_all([&] {
      CHECK(std::isnan(in_v.row("o", 0, 0, 0)[1]));
      CHECK_FALSE(std::isnan(in_v.row("o", 0, 0, 0)[0]));
    });
    // Also when the scale is zero, where a product with zero is NaN.
    Trial unscaled(std::string(shape) + ",scale=0");
    unscaled.row("k", 0, 0, 2)[1] = infinity;
    unscaled.run_all([&] { CHECK(std::isnan(unscaled.row("o", 0, 0, 0)[0])); });
  }
}

TEST_CASE("attention: scores of -inf weigh zero, a query with nothing else gives NaN") {
  for (const char* shape : path_shapes) {
    Trial some(shape);
    const std::int64_t kv_len = some.sizes.kv_len;
    for (std::int64_t head = 0; head < some.sizes.heads; ++head) {
      for (std::int64_t i = 0; i < some.sizes.q_len; ++i) some.row("q", 0, head, i)[0] = 1;
    }
    Trial all(shape);
    all.run_all();
    for (std::int64_t head = 0; head < some.sizes.heads; ++head) {
      for (std::int64_t i = 0; i < some.sizes.q_len; ++i) all.row("q", 0, head, i)[0] = 1;
    }
    for (std::int64_t head = 0; head < some.sizes.kv_heads; ++head) {
      for (std::int64_t j = 0; j < kv_len; ++j) {
        // The first keys, so that whole tiles hold nothing but -inf.
        if (j < kv_len - 2) some.row("k", 0, head, j)[0] = -infinity;
        all.row("k", 0, head, j)[0] = -infinity;
      }
    }
    some.run_all([&] { CHECK(std::isfinite(some.row("o", 0, 0, 0)[0])); });
    all.run_all([&] { CHECK(std::isnan(all.row("o", 0, 0, 0)[0])); });
    // +inf beats everything and leaves inf - inf.
    some.row("k", 0, 0, 1)[0] = infinity;
    some.run_all([&] { CHECK(std::isnan(some.row("o", 0, 0, 0)[0])); });
  }
}

TEST_CASE("attention: one-hot scores return v bit for bit") {
  for (const char* shape : path_shapes) {
    Trial trial(std::string(shape) + ",scale=1");
    const attention::Sizes& s = trial.sizes;
    // Key j has a 1 at a place of its own among the first columns, else 0; query i picks one.
    const std::int64_t places = std::min(s.head_dim, s.kv_len);
    const auto chosen = [&](std::int64_t head, std::int64_t i) { return (7 * i + head) % places; };
    for (std::int64_t head = 0; head < s.kv_heads; ++head) {
      for (std::int64_t j = 0; j < s.kv_len; ++j) {
        trial.fill_row("k", head, j, 0);
        const std::int64_t place = s.kv_len - 1 - j;  // the picked keys are the last ones
        if (place < places) trial.row("k", 0, head, j)[place] = 1;
      }
    }
    for (std::int64_t head = 0; head < s.heads; ++head) {
      for (std::int64_t i = 0; i < s.q_len; ++i) {
        trial.fill_row("q", head, i, 0);
        trial.row("q", 0, head, i)[chosen(head, i)] = 200;  // exp(-200) is 0 in float32
      }
    }
    trial.run_all([&] {
      for (std::int64_t head = 0; head < s.heads; ++head) {
        for (std::int64_t i = 0; i < s.q_len; ++i) {
          const std::int64_t key = s.kv_len - 1 - chosen(head, i);
          INFO("head ", head, " query ", i);
          CHECK(bits_equal(trial.row("o", 0, head, i), trial.row("v", 0, head / s.group(), key),
                           s.head_dim));
        }
      }
    });
  }
}

TEST_CASE("attention: large scores and every tile size keep the bound") {
  // Many rows, and few: one a kv head, three, and four queries that see different keys.
  for (const char* shape :
       {"batch=1,heads=3,kv_heads=1,q_len=61,kv_len=143,head_dim=40,causal=1,scale=30",
        "batch=1,heads=2,q_len=1,kv_len=143,head_dim=40,scale=30",
        "batch=1,heads=3,kv_heads=1,q_len=1,kv_len=143,head_dim=64,scale=30",
        "batch=1,heads=1,q_len=4,kv_len=143,head_dim=128,causal=1,scale=30"}) {
    Trial trial(shape);
    const Reference reference = compute_reference(trial.problem, trial.all, seed);
    for (const Way& way : ways(trial.problem)) {
      if (way.variant->name != std::string("hwy") || !way.tuning.values().empty()) continue;
      for (std::int64_t q_block : {1, 3, 16, 47, 96, 1000}) {
        for (std::int64_t kv_block : {1, 5, 8, 64, 1000}) {
          for (const std::int64_t prefetch : {0, 1, 2}) {
            const Tuning tuning = {
                {"q_block", q_block}, {"kv_block", kv_block}, {"prefetch", prefetch}};
            INFO(way.isa, " ", tuning.text());
            trial.run({way.variant, way.isa, tuning}, 2);
            const Verification result = verify_output(trial.problem, trial.all, reference, seed);
            CHECK_MESSAGE(result.passed(), result.reason);
          }
        }
      }
    }
  }
}

TEST_CASE("attention: rows may lie anywhere, also on top of one another in inputs") {
  // As one projection leaves them: [batch,len,heads,head_dim] seen as [batch,heads,len,head_dim];
  // and one key row for all positions.
  Trial dense("batch=2,heads=2,q_len=40,kv_len=40,head_dim=24");
  const attention::Sizes& s = dense.sizes;
  std::vector<std::vector<float>> storage;
  Operands strided;
  for (const auto& [name, view] : dense.all.all()) {
    View permuted = view;
    permuted.strides = {40 * 2 * 24, 24, 2 * 24, 1};
    storage.emplace_back(static_cast<std::size_t>(view.elements()));
    permuted.data = storage.back().data();
    for (std::int64_t batch = 0; batch < 2; ++batch) {
      for (std::int64_t head = 0; head < 2; ++head) {
        for (std::int64_t i = 0; i < 40; ++i) {
          const attention::Heads to(permuted);
          std::copy_n(dense.row(name.c_str(), batch, head, i), 24,
                      to.matrix(batch, head) + i * to.row_stride);
        }
      }
    }
    strided.set(name, permuted);
  }
  View repeated = strided.at("k");
  repeated.strides[2] = 0;
  Operands broadcast = strided;
  broadcast.set("k", repeated);
  for (const Operands& operands : {strided, broadcast}) {
    const Reference reference = compute_reference(dense.problem, operands, seed);
    for (const Way& way : ways(dense.problem)) {
      INFO(way.variant->name, " ", way.isa, " ", way.tuning.text());
      Environment env;
      env.isa = way.isa;
      const auto plan = make_plan(*way.variant, dense.problem, way.tuning, env, {});
      plan->bind(operands);
      plan->upload();
      plan->run();
      plan->download();
      const Verification result = verify_output(dense.problem, operands, reference, seed);
      CHECK_MESSAGE(result.passed(), result.reason);
    }
  }
  CHECK(s.group() == 1);
}

TEST_CASE("attention: cost equals counting") {
  for (const char* shape :
       {"batch=2,heads=6,kv_heads=2,q_len=7,kv_len=11,head_dim=5",
        "batch=2,heads=6,kv_heads=2,q_len=7,kv_len=11,head_dim=5,causal=1",
        "batch=1,heads=2,q_len=11,kv_len=7,head_dim=3,causal=1",
        "batch=3,heads=1,q_len=1,kv_len=9,head_dim=4,causal=1",
        "batch=3,heads=1,q_len=4,kv_len=0,head_dim=4,causal=1",
        "batch=2,heads=6,kv_heads=2,q_len=7,kv_len=11,head_dim=5,v_dim=9,window=3",
        "batch=2,heads=6,kv_heads=2,q_len=7,kv_len=11,head_dim=5,causal=1,window=6,mask=1",
        "batch=2,heads=6,kv_heads=2,q_len=7,kv_len=11,head_dim=5,causal=1,window=3",
        "batch=1,heads=2,q_len=11,kv_len=7,head_dim=3,causal=1,window=4,mask=1",
        "batch=1,heads=2,q_len=11,kv_len=7,head_dim=3,causal=1,window=40"}) {
    const Problem problem = problem_of(shape);
    const attention::Sizes s(problem);
    double pairs = 0;  // of one head
    std::vector<bool> seen(static_cast<std::size_t>(s.kv_len), false);
    for (std::int64_t i = 0; i < s.q_len; ++i) {
      std::int64_t end = 0;
      for (std::int64_t j = 0; j < s.kv_len; ++j) {
        if (!s.causal || j <= i + s.kv_len - s.q_len) end = j + 1;
      }
      for (std::int64_t j = 0; j < end; ++j) {
        if (s.window != 0 && j < end - s.window) continue;
        pairs += 1;
        seen[static_cast<std::size_t>(j)] = true;
      }
    }
    const auto keys = static_cast<double>(std::count(seen.begin(), seen.end(), true));
    const auto width = static_cast<double>(s.head_dim + s.v_dim);
    const auto q_heads = static_cast<double>(s.batch * s.heads);
    const auto kv_heads = static_cast<double>(s.batch * s.kv_heads);
    const Cost cost = problem.kernel().cost(problem);
    INFO(shape);
    CHECK(cost.exps == pairs * q_heads);
    CHECK(cost.flops == pairs * q_heads * 2 * width);
    CHECK(cost.bytes == 4 * (q_heads * static_cast<double>(s.q_len) * width +
                             kv_heads * keys * width + (s.mask ? pairs : 0)));
  }
}

TEST_CASE("attention: hwy and opencl never hold the score matrix") {
  for (const char* shape : {"batch=1,heads=2,q_len=8192,kv_len=8192,head_dim=64",
                            "batch=1,heads=8,kv_heads=2,q_len=1,kv_len=100000,head_dim=128"}) {
    const Problem problem = problem_of(shape);
    const attention::Sizes s(problem);
    for (const Way& way : ways(problem)) {
      if (!way.tuning.values().empty()) continue;  // rungs may hold the whole score matrix
      if (way.variant->name != std::string("hwy") && way.variant->name != std::string("opencl")) {
        continue;
      }
      for (int threads : {1, 4}) {
        Environment env;
        env.isa = way.isa;
        env.threads = way.variant->threads == Threads::many ? threads : 1;
        INFO(shape, " ", way.variant->name, " ", way.isa);
        const PlanFacts facts = way.variant->plan(problem, {}, env, {})->facts();
        // Per thread, or compute unit, one task's Q and O, a score tile, and its tasks' partial
        // sums.
        const double per_thread = 2.0 * (1 << 20);
        const int at_once = way.variant->threads == Threads::device ? device_units() : threads;
        CHECK(static_cast<double>(facts.workspace_bytes) < per_thread * at_once);
      }
    }
  }
}

TEST_CASE("attention: bad sizes are refused by name") {
  const auto refuses = [](const std::string& shape, const std::string& name) {
    try {
      problem_of(shape);
      FAIL_CHECK("accepted " << shape);
    } catch (const Error& error) {
      INFO(error.what());
      CHECK(error.kind() == ErrorKind::argument);
      CHECK(std::string(error.what()).find(name) != std::string::npos);
    }
  };
  refuses("batch=1,heads=6,kv_heads=4,q_len=1,kv_len=1,head_dim=1", "kv_heads=4");
  refuses("batch=1,heads=0,q_len=1,kv_len=1,head_dim=1", "heads=0");
  refuses("batch=1,heads=2,kv_heads=0,q_len=1,kv_len=1,head_dim=1", "kv_heads=0");
  refuses("batch=1,heads=2,q_len=1,kv_len=1,head_dim=0", "head_dim=0");
  refuses("batch=1,heads=2,q_len=1,kv_len=1", "head_dim");
  refuses("batch=1,heads=2,q_len=1,kv_len=1,head_dim=1,causal=2", "causal=2");
  refuses("batch=1,heads=2,q_len=1,kv_len=1,head_dim=1,window=-1", "window=-1");
  refuses("batch=1,heads=2,q_len=1,kv_len=1,head_dim=1,mask=2", "mask=2");
  refuses("batch=1,heads=2,q_len=1,kv_len=1,head_dim=1,softcap=-1", "softcap=-1");
  refuses("batch=1,heads=2,q_len=1,kv_len=1,head_dim=1,softcap=1e-31", "softcap=1e-31");
  refuses("batch=1,heads=2,q_len=1,kv_len=1,head_dim=1,softcap=inf", "softcap=inf");
  refuses("batch=1,heads=2,q_len=1,kv_len=1,head_dim=1,v_dim=0", "v_dim=0");
}

TEST_CASE("attention: causal is always printed, defaults are not") {
  CHECK(problem_of("batch=1,heads=2,q_len=3,kv_len=4,head_dim=16").shape() ==
        "batch=1,heads=2,q_len=3,kv_len=4,head_dim=16,causal=0");
  CHECK(problem_of("batch=1,heads=2,kv_heads=2,q_len=3,kv_len=4,head_dim=16,scale=0.25").shape() ==
        "batch=1,heads=2,q_len=3,kv_len=4,head_dim=16,causal=0");
  CHECK(problem_of("batch=1,heads=2,kv_heads=1,q_len=3,kv_len=4,head_dim=16,scale=0.5").shape() ==
        "batch=1,heads=2,kv_heads=1,q_len=3,kv_len=4,head_dim=16,causal=0,scale=0.5");
  CHECK(
      problem_of("batch=1,heads=2,q_len=3,kv_len=4,head_dim=16,v_dim=16,window=0,mask=0").shape() ==
      "batch=1,heads=2,q_len=3,kv_len=4,head_dim=16,causal=0");
  CHECK(
      problem_of("batch=1,heads=2,q_len=3,kv_len=4,head_dim=16,mask=1,softcap=2.5,window=2,v_dim=8")
          .shape() ==
      "batch=1,heads=2,q_len=3,kv_len=4,head_dim=16,causal=0,v_dim=8,window=2,softcap=2.5,mask=1");
}
