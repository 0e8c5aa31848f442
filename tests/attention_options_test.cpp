// Attention's options: window, softcap, mask, a width of v of its own, lengths; each against
// what it means in terms of plain attention, and what no query sees has no influence.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attention_trial.hpp"

using namespace rooflane;
using namespace rooflane::test;

namespace {

// The outputs of every way at `shape`, held against one scalar run of `same_as`, on the same
// inputs; `change` prepares those of either.
void check_equal(
    const std::string& shape, const std::string& same_as,
    const std::function<void(Trial&)>& change = [](Trial&) {}) {
  Trial expected(same_as), trial(shape);
  change(expected);
  change(trial);
  expected.run({&scalar_variant(expected.problem), ""}, 1);
  const View want = expected.all.at("o"), got = trial.all.at("o");
  REQUIRE(got.elements() == want.elements());
  trial.run_all([&] {
    bool near = true;
    for (std::int64_t i = 0; i < got.elements(); ++i) {
      near = near && std::abs(got.f32()[i] - want.f32()[i]) <= 1e-5F;
    }
    CHECK_MESSAGE(near, shape, " is not ", same_as);
  });
}

// mask[i][j] = value(i, j)
void fill_mask(Trial& trial, const std::function<float(std::int64_t, std::int64_t)>& value) {
  if (!trial.sizes.mask) return;
  const View& mask = trial.all.at("mask");
  for (std::int64_t i = 0; i < trial.sizes.q_len; ++i) {
    for (std::int64_t j = 0; j < trial.sizes.kv_len; ++j) {
      mask.f32()[i * mask.strides[0] + j] = value(i, j);
    }
  }
}

}  // namespace

TEST_CASE("attention options: windows of every size, on every path, keep the bound") {
  for (const char* shape : path_shapes) {
    for (const char* window : {"1", "20", "64"}) {
      for (const char* causal : {"0", "1"}) {
        Trial(std::string(shape) + ",causal=" + causal + ",window=" + window).run_all();
      }
    }
  }
  // Windows about as long as a Q micro-panel and a tile; queries that see nothing; keys split among
  // threads.
  for (const char* rest :
       {"heads=1,q_len=150,kv_len=100,head_dim=20,causal=1,window=30",
        "heads=1,q_len=300,kv_len=500,head_dim=20,causal=1,window=130",
        "heads=6,kv_heads=2,q_len=45,kv_len=45,head_dim=17,causal=1,window=7",
        "heads=2,kv_heads=1,q_len=3,kv_len=4000,head_dim=35,causal=1,window=2100",
        "heads=2,kv_heads=1,q_len=3,kv_len=4000,head_dim=35,causal=1,window=2"}) {
    Trial(std::string("batch=1,") + rest).run_all();
  }
}

TEST_CASE("attention options: a window as long as the keys, and a mask of zeros, change nothing") {
  for (const char* shape : path_shapes) {
    for (const char* causal : {",causal=0", ",causal=1"}) {
      const std::string plain = std::string(shape) + causal;
      check_equal(plain + ",window=1500", plain);
      check_equal(plain + ",mask=1", plain,
                  [](Trial& trial) { fill_mask(trial, [](auto, auto) { return 0.0F; }); });
    }
  }
}

TEST_CASE("attention options: a mask of -inf hides what causal and window hide") {
  for (const char* shape : path_shapes) {
    const std::string causal = std::string(shape) + ",causal=1,window=25";
    // Shapes with queries that see nothing: there a mask leaves NaN, causal zeros.
    const attention::Sizes s(problem_of(causal));
    if (s.first_key(0) == 0 && s.end_key(0) == 0) continue;
    check_equal(std::string(shape) + ",mask=1", causal, [&](Trial& trial) {
      fill_mask(trial, [&](std::int64_t i, std::int64_t j) {
        return s.first_key(i) <= j && j < s.end_key(i) ? 0 : -infinity;
      });
    });
  }
}

TEST_CASE("attention options: keys beyond a window have no influence, NaN and infinity included") {
  for (const char* shape : path_shapes) {
    const std::string text = std::string(shape) + ",causal=1,window=21,mask=1";
    Trial clean(text), dirty(text);
    const attention::Sizes& s = clean.sizes;
    clean.run({&scalar_variant(clean.problem), ""}, 1);
    // Poison in the middle of keys that only some of the queries see, and in the mask where no
    // query sees.
    const std::int64_t key = std::max<std::int64_t>(s.first_key(s.q_len - 1) - 1, 0);
    fill_mask(dirty, [&](std::int64_t i, std::int64_t j) {
      const View& mask = clean.all.at("mask");
      const bool seen = s.first_key(i) <= j && j < s.end_key(i);
      return seen ? mask.f32()[i * mask.strides[0] + j] : not_a_number;
    });
    for (const float poison : {not_a_number, infinity}) {
      for (std::int64_t head = 0; head < s.kv_heads; ++head) {
        dirty.fill_row("k", head, key, poison);
        dirty.fill_row("v", head, key, poison);
      }
      for (const Way& way : ways(dirty.problem)) {
        for (const int threads : {1, 3}) {
          INFO(dirty.problem.text(), " ", way.variant->name, " ", way.isa, " threads=", threads);
          dirty.run(way, threads);
          bool right = true;
          for (std::int64_t head = 0; head < s.heads; ++head) {
            for (std::int64_t i = 0; i < s.q_len; ++i) {
              const bool poisoned = s.first_key(i) <= key && key < s.end_key(i);
              const float* got = dirty.row("o", 0, head, i);
              const float* expected = clean.row("o", 0, head, i);
              for (std::int64_t c = 0; c < s.v_dim; ++c) {
                right = right &&
                        (poisoned ? std::isnan(got[c]) : std::abs(got[c] - expected[c]) <= 1e-5F);
              }
            }
          }
          CHECK(right);
        }
      }
    }
  }
}

TEST_CASE("attention options: a mask of any size keeps the bound, -inf alone gives NaN") {
  for (const char* shape : path_shapes) {
    Trial trial(std::string(shape) + ",mask=1");
    const std::int64_t last = trial.sizes.q_len - 1;
    // As models write them: nothing, the lowest float, -inf, slopes of a bias (ALiBi).
    fill_mask(trial, [&](std::int64_t i, std::int64_t j) {
      if (i == last && last > 0) return -infinity;
      return j % 5 == 0   ? -infinity
             : j % 7 == 0 ? std::numeric_limits<float>::lowest()
                          : -0.5F * static_cast<float>(std::abs(i - j) % 90);
    });
    trial.run_all([&] {
      CHECK(std::isfinite(trial.row("o", 0, 0, 0)[0]));
      if (last > 0) CHECK(std::isnan(trial.row("o", 0, 0, last)[0]));
    });
  }
}

TEST_CASE("attention options: a softcap keeps the bound, holds scores, passes NaN on") {
  for (const char* shape : path_shapes) {
    for (const char* rest : {",softcap=1.5,scale=1", ",softcap=50,scale=300,causal=1,window=40"}) {
      Trial(std::string(shape) + rest).run_all();
    }
    // Far beyond every score it changes nothing.
    check_equal(std::string(shape) + ",causal=1,softcap=1e6", std::string(shape) + ",causal=1");
    // Infinite scores become ±C.
    Trial infinite(std::string(shape) + ",softcap=2");
    for (std::int64_t head = 0; head < infinite.sizes.heads; ++head) {
      for (std::int64_t i = 0; i < infinite.sizes.q_len; ++i) infinite.row("q", 0, head, i)[0] = 1;
    }
    for (std::int64_t head = 0; head < infinite.sizes.kv_heads; ++head) {
      infinite.row("k", 0, head, 1)[0] = infinity;
      infinite.row("k", 0, head, 2)[0] = -infinity;
    }
    infinite.run_all([&] { CHECK(std::isfinite(infinite.row("o", 0, 0, 0)[0])); });
    infinite.row("k", 0, 0, 3)[0] = not_a_number;
    infinite.run_all([&] { CHECK(std::isnan(infinite.row("o", 0, 0, 0)[0])); });
  }
}

TEST_CASE("attention options: one mask row for all queries, as a view without rows of its own") {
  Trial dense("batch=1,heads=2,q_len=40,kv_len=50,head_dim=20,mask=1");
  View row = dense.all.at("mask");
  row.strides[0] = 0;
  Operands operands = dense.all;
  operands.set("mask", row);
  const Reference reference = compute_reference(dense.problem, operands, seed);
  for (const Way& way : ways(dense.problem)) {
    Environment env;
    env.isa = way.isa;
    const auto plan = make_plan(*way.variant, dense.problem, way.tuning, env, {});
    plan->bind(operands);
    plan->upload();
    plan->run();
    plan->download();
    const Verification result = verify_output(dense.problem, operands, reference, seed);
    INFO(way.variant->name, " ", way.isa);
    CHECK_MESSAGE(result.passed(), result.reason);
  }
}

TEST_CASE("attention options: v of any width, beside any head_dim") {
  for (const char* rest : {"heads=2,q_len=70,kv_len=70,head_dim=20,v_dim=36",
                           "heads=4,kv_heads=2,q_len=50,kv_len=300,head_dim=64,v_dim=17",
                           "heads=2,q_len=33,kv_len=90,head_dim=1,v_dim=40,causal=1",
                           "heads=4,kv_heads=1,q_len=1,kv_len=1500,head_dim=80,v_dim=128",
                           "heads=2,kv_heads=1,q_len=3,kv_len=700,head_dim=35,v_dim=96",
                           "heads=2,kv_heads=1,q_len=3,kv_len=700,head_dim=40,v_dim=1"}) {
    Trial trial(std::string("batch=1,") + rest);
    trial.run_all();
  }
}

TEST_CASE("attention options: a selection of v where all options meet") {
  const std::string text =
      "batch=1,heads=2,kv_heads=1,q_len=40,kv_len=70,head_dim=20,v_dim=36,causal=1,window=33,"
      "softcap=3,mask=1";
  Trial trial(text);
  trial.run_all();
  trial.row("v", 0, 0, 20)[30] = infinity;
  trial.run_all([&] {
    for (std::int64_t i = 0; i < trial.sizes.q_len; ++i) {
      const bool sees = trial.sizes.first_key(i) <= 20 && 20 < trial.sizes.end_key(i);
      CHECK((trial.row("o", 0, 0, i)[30] == infinity) == sees);
    }
  });
}

TEST_CASE("attention options: an append-only cache is a view of its first rows") {
  // [batch,kv_heads,capacity,head_dim]: kv_len rows are filled, the rest is NaN.
  constexpr std::int64_t capacity = 96;
  for (const std::int64_t kv_len : {1, 37, 95}) {
    Trial trial("batch=2,heads=4,kv_heads=2,q_len=1,head_dim=64,causal=1,kv_len=" +
                std::to_string(kv_len));
    std::vector<std::vector<float>> storage;
    Operands operands = trial.all;
    for (const char* name : {"k", "v"}) {
      View cache = trial.all.at(name);
      cache.strides = {2 * capacity * 64, capacity * 64, 64, 1};
      storage.emplace_back(2 * 2 * capacity * 64, not_a_number);
      cache.data = storage.back().data();
      for (std::int64_t row = 0; row < cache.rows(); ++row) {
        std::copy_n(trial.all.at(name).row(row), 64 * sizeof(float), cache.row(row));
      }
      operands.set(name, cache);
    }
    const Reference reference = compute_reference(trial.problem, trial.all, seed);
    for (const Way& way : ways(trial.problem)) {
      Environment env;
      env.isa = way.isa;
      const auto plan = make_plan(*way.variant, trial.problem, way.tuning, env, {});
      plan->bind(operands);
      plan->upload();
      plan->run();
      plan->download();
      const Verification result = verify_output(trial.problem, operands, reference, seed);
      INFO(trial.problem.text(), " ", way.variant->name, " ", way.isa, " ", way.tuning.text());
      CHECK_MESSAGE(result.passed(), result.reason);
    }
  }
}

TEST_CASE(
    "attention options: lengths are as many keys as there are, and what lies beyond is nobody's") {
  const std::vector<std::int32_t> lengths = {0, 1, 37, 200, 64};
  for (const char* rest :
       {"heads=4,kv_heads=2,q_len=1,head_dim=64", "heads=2,q_len=3,head_dim=20,causal=1",
        "heads=2,q_len=50,head_dim=20,causal=1,window=21,mask=1",
        "heads=1,q_len=70,head_dim=17,softcap=2,v_dim=9"}) {
    Trial trial(std::string("batch=5,kv_len=200,lengths=1,") + rest);
    std::copy(lengths.begin(), lengths.end(), trial.all.at("lengths").as<std::int32_t>());
    const attention::Sizes& s = trial.sizes;
    for (std::int64_t batch = 0; batch < s.batch; ++batch) {
      for (std::int64_t head = 0; head < s.kv_heads; ++head) {
        for (std::int64_t j = lengths[static_cast<std::size_t>(batch)]; j < s.kv_len; ++j) {
          std::fill_n(trial.row("k", batch, head, j), s.head_dim, not_a_number);
          std::fill_n(trial.row("v", batch, head, j), s.v_dim, not_a_number);
        }
      }
    }
    trial.run_all();
    // The last way's output, row by row of the batch, against one without lengths.
    for (std::int64_t batch = 0; batch < s.batch; ++batch) {
      const std::int32_t length = lengths[static_cast<std::size_t>(batch)];
      const Problem one =
          problem_of("batch=1,kv_len=" + std::to_string(length) + "," + std::string(rest));
      Operands operands;
      for (const TensorSpec& tensor : one.kernel().tensors(one)) {
        View view = trial.all.at(tensor.name);
        if (view.rank == 4) {
          view.data = trial.row(tensor.name.c_str(), batch, 0, 0);
          view.shape[0] = 1;
        }
        if (tensor.name == "k" || tensor.name == "v") view.shape[2] = length;
        if (tensor.name == "mask") view.shape[1] = length;
        operands.set(tensor.name, view);
      }
      const Reference reference = compute_reference(one, operands, seed);
      INFO(trial.problem.text(), " length ", length);
      const Verification result = verify_output(one, operands, reference, seed);
      CHECK_MESSAGE(result.passed(), result.reason);
    }
  }
  // All options at once, on every path; causal relative to what there is.
  for (const char* rest : {"heads=2,q_len=70,kv_len=70,head_dim=20,window=30",
                           "heads=2,kv_heads=1,q_len=3,kv_len=700,head_dim=35,window=100"}) {
    Trial all(std::string("batch=3,causal=1,mask=1,softcap=2,lengths=1,") + rest);
    const std::int32_t some[] = {1, 40, 70};
    std::copy_n(some, 3, all.all.at("lengths").as<std::int32_t>());
    for (std::int64_t batch = 0; batch < 3; ++batch) {
      for (std::int64_t j = some[batch]; j < all.sizes.kv_len; ++j) {
        for (std::int64_t head = 0; head < all.sizes.kv_heads; ++head) {
          *all.row("k", batch, head, j) = *all.row("v", batch, head, j) = not_a_number;
        }
      }
    }
    all.run_all();
  }
  // Keys split among threads, of caches that hold few of them.
  Trial split("batch=2,heads=2,kv_heads=1,q_len=1,kv_len=3000,head_dim=64,lengths=1");
  for (const std::int32_t length : {1, 70, 2100, 3000}) {
    split.all.at("lengths").as<std::int32_t>()[0] = length;
    split.run_all();
  }
}

TEST_CASE("attention options: lengths from a seed are full caches, as the counts are") {
  const Trial trial("batch=3,heads=2,q_len=1,kv_len=40,head_dim=16,lengths=1");
  for (std::int64_t batch = 0; batch < 3; ++batch) {
    CHECK(trial.all.at("lengths").as<std::int32_t>()[batch] == 40);
  }
}

TEST_CASE("attention options: what computes plain attention only refuses each by name") {
  const std::string plain = "batch=1,heads=2,q_len=3,kv_len=4,head_dim=16";
  CHECK_FALSE(attention::option_refusal(problem_of(plain + ",causal=1,scale=2")));
  for (const char* option : {"window=2", "softcap=5", "mask=1", "v_dim=8", "lengths=1"}) {
    const Problem problem = problem_of(plain + "," + option);
    const std::string name = std::string(option).substr(0, std::string(option).find('='));
    for (const CatalogueEntry* entry : catalogue().variants(problem.kernel())) {
      if (absent_reason(*entry)) continue;
      const bool peer = entry->variant->backend->name == std::string("onednn");
      const auto reason = refusal(*entry->variant, problem, {});
      INFO(entry->name, " ", option);
      CHECK(reason.has_value() == peer);
      if (reason) CHECK(reason->find(name) != std::string::npos);
      for (const Tuning& step : step_tunings(*entry->variant)) {
        try {
          make_plan(*entry->variant, problem, step, {}, {});
          FAIL_CHECK("planned");
        } catch (const Error& error) {
          CHECK(error.kind() == ErrorKind::unavailable);
          CHECK(std::string(error.what()).find(name) != std::string::npos);
        }
      }
      if (entry->name == "opencl") {
        Environment env;
        env.math = "3xtf32";
        CHECK(refusal(*entry->variant, problem, env)->find(name) != std::string::npos);
        const Tuning tiles = {{"path", 1}, {"code_path", 0}};
        if (problem.has("v_dim"))
          CHECK_THROWS_AS(require_tuning(*entry->variant, problem, {}, tiles), Error);
      }
    }
  }
}
