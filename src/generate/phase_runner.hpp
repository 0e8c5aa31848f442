// One phase of a model that is run again and again while tokens are added: calls that are the same
// each time have their plans bound once; those with sizes or views that move with the number of
// past tokens (positions, caches that grow) are planned again for each number and bound for each
// layer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "generate/stored_cache.hpp"
#include "generate/weight_prefetch.hpp"
#include "model/memory.hpp"

namespace rooflane::generate {

struct RunnerSettings {
  int threads = 1;
  std::string isa;  // empty: the CPU's best
  // The type of matrices: as the file stores them where kernels read that (null), or converted to
  // float32, bfloat16 or int8_per_channel when the file is read.
  DType weight_type = nullptr;
  std::string math = "fp32";  // of products by weights, where their formats allow it
  DType kv_type = &float32;   // of the caches of keys and values
  bool fuse = true;           // join products with what follows them
};
// The variants that serve a call, the first that does; `scalar` only where a kernel has no hwy.
std::vector<std::string> runner_variants();

class PhaseRunner {
 public:
  // `first` and `next`: the same model where one token more is past, as `memory` holds the first.
  // Whatever differs between the two grows by the same step with each further token. Every call
  // runs by the first of runner_variants() that serves it. Neither instance is read afterwards.
  // Threads are `pool`'s; null: the default pool's. `prefetch` gets the matrices that products read
  // as stored or packed. Weights that a call takes packed are packed for it or, with `packed`,
  // read where that runner packed them in the same order, and else as stored. Throws as
  // make_plan does.
  PhaseRunner(const model::Memory& memory, std::size_t phase, const StoredCaches& first,
              const StoredCaches& next, const Catalogue& catalogue, const RunnerSettings& settings,
              const PhaseRunner* packed, Pool* pool, WeightPrefetch* prefetch);

  // Runs all calls with `more` tokens past than `first` has. What they touch must lie in the
  // tensors.
  void run(std::int64_t more);

  // The tensors that runs read or write; what is packed is not among them.
  const std::set<std::size_t>& touched() const { return touched_; }

  // The instruction of the largest product, as rows of `bench` name it.
  std::string instruction() const;

 private:
  // A view that grows by the same step with each further token.
  struct MovingView {
    std::string name;
    View first, next;
  };
  // In the order of the phase. A plan of its own, bound once or, where its views move, for each
  // number of tokens; or one of `moving_`, which other layers share.
  struct Step {
    bool stores = false;     // no plan: rows of its first view go into a cache, the second
    Plan* plan = nullptr;    // null: a moving one
    std::size_t moving = 0;  // which
    bool binds = false;  // before it runs: the step before it with the same plan has other views
    std::optional<std::size_t> reads;  // a matrix, by its number in the prefetch
    std::vector<MovingView> views;     // those that move
    Operands operands;                 // of its plan, as they were last bound
  };
  // Calls with a problem that moves, the same for each.
  struct Moving {
    std::string text;  // what tells it apart
    Problem first, next;
    std::string math;
    const CatalogueEntry* entry;
    std::unique_ptr<Plan> plan;
    std::size_t last = 0;    // step
    std::string tuned = {};  // the problem that `tuning` was chosen for
    Tuning tuning = {};
  };

  void add(const model::Call& first, const model::Call& next);
  // Whether a plan reads packed weights only where one of this runner's packed them.
  bool shares(const Plan& plan) const;
  // Made and kept. `operands`: all of the call's.
  Plan& plan_of(const model::Call& call, const Operands& operands);
  std::unique_ptr<Plan> plan_of_problem(const model::Call& call, const Operands& operands) const;
  void add_store(const CacheStore& first, const CacheStore& next);
  std::size_t add_moving(const model::Call& first, const model::Call& next);
  std::vector<MovingView> views_of(const model::Call& first, const model::Call& next) const;
  void plan_for(std::int64_t more);
  void plan_moving(Moving& moving, std::int64_t more) const;
  static void bind(Step& step, Plan& plan, std::int64_t more);
  const CatalogueEntry& entry_for(const model::Call& call) const;
  Environment environment_of(const std::string& math, const CatalogueEntry& entry) const;

  const model::Memory& memory_;
  std::size_t phase_;
  const Catalogue& catalogue_;
  RunnerSettings settings_;
  const PhaseRunner* packed_;
  Pool* pool_;
  WeightPrefetch* prefetch_;
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::vector<Moving> moving_;
  std::set<std::size_t> touched_;
  std::set<const std::byte*> kept_;      // where packed weights begin
  std::set<std::string> unshared_;       // problems with weights that no other plan packs alike
  std::optional<std::int64_t> planned_;  // for which plans and views are
};

}  // namespace rooflane::generate
