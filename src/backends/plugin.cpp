// From the C tables of rooflane/variant.h to Variant and Plan. See plugin.hpp; what a table must
// hold, plugin_table.cpp.
#include "backends/plugin.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "backends/plugin_table.hpp"
#include "core/error.hpp"
#include "core/runs_often.hpp"

namespace rooflane::plugin {

const Backend backend = {.name = "plugin", .foreign_threads = true, .untrusted = true};

namespace {

// A Variant's functions carry no data of their own, so each loaded variant gets a place here and
// functions that know its number.
struct Loaded : CheckedVariant {
  const char* (*last_error)() = nullptr;
  const Elsewhere* elsewhere = nullptr;
  Variant variant{};

  Error failure(const char* step) const {
    const char* const text = last_error != nullptr ? last_error() : nullptr;
    return argument_error(fmt::format("plugin {}: {} failed{}{}", name, step,
                                      text != nullptr ? ": " : "", text != nullptr ? text : ""));
  }
};

std::array<Loaded, most_variants> places;
std::size_t places_used = 0;

// The problem as C; lives no longer than what it was made from.
class ProblemInC {
 public:
  explicit ProblemInC(const Problem& problem) {
    const auto params = problem.kernel().params;
    texts_.reserve(params.size());  // params_ points into it
    for (const ParamSpec& param : params) {
      const double value = problem.value(param.name);
      const bool in_words = param.kind == ParamKind::choice || param.kind == ParamKind::chain;
      if (in_words) texts_.push_back(print_value(param, value));
      params_.push_back({param.name, value, in_words ? texts_.back().c_str() : nullptr});
    }
    problem_ = {problem.kernel().name, params_.data(), params_.size()};
  }
  const rooflane_problem* get() const { return &problem_; }

 private:
  std::vector<std::string> texts_;
  std::vector<rooflane_param> params_;
  rooflane_problem problem_{};
};

// What stands for a format in C is made once: plugins may keep the pointer.
const char* name_in_c(DType dtype) {
  static std::map<DType, std::string> made;
  return made.try_emplace(dtype, dtype->name).first->second.c_str();
}

const rooflane_quantisation* quantisation_in_c(DType dtype) {
  const Quantisation& from = dtype->quantisation;
  if (from.bits == 0) return nullptr;
  static std::map<DType, rooflane_quantisation> made;
  const bool per_block = from.per == Quantisation::Per::block;
  rooflane_quantisation& to = made[dtype];
  to = {from.bits, per_block ? static_cast<std::int32_t>(dtype->block) : 0,
        static_cast<std::int32_t>(dtype->block_bytes), name_in_c(from.scale),
        from.zero != nullptr ? name_in_c(from.zero) : nullptr};
  return &to;
}

class TensorsInC {
 public:
  void add(const char* name, const View& view) {
    rooflane_tensor tensor{
        name, view.data, name_in_c(view.dtype), quantisation_in_c(view.dtype), view.rank, {}, {}};
    std::copy(view.shape.begin(), view.shape.end(), std::begin(tensor.shape));
    std::copy(view.strides.begin(), view.strides.end(), std::begin(tensor.strides));
    tensors_.push_back(tensor);
    all_ = {tensors_.data(), tensors_.size()};
  }
  const rooflane_tensors* get() const { return &all_; }

 private:
  std::vector<rooflane_tensor> tensors_;
  rooflane_tensors all_{};
};

class PluginPlan final : public Plan, public RunsOften {
 public:
  PluginPlan(const Loaded& loaded, const Problem& problem, const Tuning& tuning,
             const Environment& env, const Operands& constants)
      : Plan(problem),
        loaded_(loaded),
        tuning_(complete_tuning(loaded.variant, problem, env, tuning)) {
    TensorsInC given;
    for (const auto& [name, view] : constants.all()) given.add(name.c_str(), view);
    const int threads = loaded.table.many_threads != 0 ? env.threads : 1;
    std::vector<std::int64_t> values;
    for (const Tunable& tunable : loaded.tunables) values.push_back(tuning_.get(tunable.name, 0));
    plan_ = loaded.table.plan(ProblemInC(problem).get(), threads, values.data(), given.get());
    if (plan_ == nullptr) throw loaded.failure("plan");
  }
  ~PluginPlan() override { loaded_.table.destroy(plan_); }

  void run() override {
    if (loaded_.table.run(plan_) != 0) throw loaded_.failure("run");
  }

  void run_often(std::int64_t runs) override {
    if (loaded_.elsewhere == nullptr) {
      for (std::int64_t i = 0; i < runs; ++i) run();
    } else if (loaded_.elsewhere->run_often(plan_, runs) != 0) {
      throw loaded_.failure("run");
    }
  }

  void wake() override {
    if (loaded_.elsewhere != nullptr) loaded_.elsewhere->wake(plan_);
  }
  void rest() override {
    if (loaded_.elsewhere != nullptr) loaded_.elsewhere->rest(plan_);
  }
  double call_ns() override {
    return loaded_.elsewhere != nullptr ? loaded_.elsewhere->call_ns(plan_) : 0;
  }
  double call_spread_ns() const override {
    return loaded_.elsewhere != nullptr ? loaded_.elsewhere->call_spread_ns(plan_) : 0;
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    if (loaded_.table.library != nullptr) facts.library = loaded_.table.library;
    if (loaded_.elsewhere != nullptr) facts.library = loaded_.elsewhere->library(plan_);
    facts.tuning = tuning_;
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    TensorsInC given;
    const std::vector<TensorSpec> tensors = problem().kernel().tensors(problem());
    for (const TensorSpec& tensor : tensors) {
      if (tensor.role != Role::constant) given.add(tensor.name.c_str(), operands.at(tensor.name));
    }
    if (loaded_.elsewhere != nullptr) {
      std::vector<std::string> written;
      for (const TensorSpec& tensor : tensors) {
        if (is_written(tensor.role)) written.push_back(tensor.name);
      }
      loaded_.elsewhere->will_write(plan_, written);
    }
    if (loaded_.table.bind(plan_, given.get()) != 0) throw loaded_.failure("bind");
  }

 private:
  const Loaded& loaded_;
  Tuning tuning_;
  void* plan_ = nullptr;
};

std::optional<std::string> plugin_refusal(const Loaded& loaded, const Problem& problem,
                                          const Environment& env) {
  const rooflane_variant& table = loaded.table;
  const std::vector<TensorSpec> tensors = problem.kernel().tensors(problem);
  const bool has_constants = std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
    return tensor.role == Role::constant;
  });
  if (has_constants && table.constants == 0) return "the plugin takes no constants";
  if (table.unsupported == nullptr) return std::nullopt;
  const char* const reason = table.unsupported(ProblemInC(problem).get(), env.threads);
  return reason != nullptr ? std::optional<std::string>(reason) : std::nullopt;
}

template <std::size_t I>
std::optional<std::string> unsupported_of(const Problem& problem, const Environment& env) {
  return plugin_refusal(places[I], problem, env);
}

template <std::size_t I>
std::vector<Tuning> tunings_of(const Problem&, const Environment&) {
  const rooflane_variant& table = places[I].table;
  Tuning first;
  for (std::size_t i = 0; i < table.tunable_count; ++i) {
    first.set(table.tunables[i].name, table.tunables[i].value);
  }
  return {first};
}

template <std::size_t I>
std::unique_ptr<Plan> plan_of(const Problem& problem, const Tuning& tuning, const Environment& env,
                              const Operands& constants) {
  return std::make_unique<PluginPlan>(places[I], problem, tuning, env, constants);
}

struct Functions {
  decltype(Variant::unsupported) unsupported;
  decltype(Variant::tunings) tunings;
  decltype(Variant::plan) plan;
};
template <std::size_t... I>
constexpr std::array<Functions, sizeof...(I)> functions_of(std::index_sequence<I...>) {
  return {Functions{unsupported_of<I>, tunings_of<I>, plan_of<I>}...};
}
constexpr auto functions = functions_of(std::make_index_sequence<most_variants>());

const rooflane_plugin* describe(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw argument_error(fmt::format("cannot be opened ({})", dlerror()));
  using Describe = const rooflane_plugin* (*)();
  const auto call = reinterpret_cast<Describe>(dlsym(library, "rooflane_describe"));
  if (call == nullptr) throw argument_error("is no plugin: it exports no rooflane_describe");
  return call();
}

}  // namespace

void load(Catalogue& catalogue, const std::string& name, const std::string& path) {
  load_table(catalogue, name, describe(path), nullptr);
}

void load_table(Catalogue& catalogue, const std::string& name, const rooflane_plugin* described,
                const Elsewhere* elsewhere) {
  std::vector<CheckedVariant> variants = checked_variants(catalogue, name, described);
  if (places_used + variants.size() > most_variants) {
    throw argument_error(fmt::format("allowed are {} variants of plugins", most_variants));
  }
  for (CheckedVariant& checked : variants) {
    Loaded& loaded = places[places_used];
    static_cast<CheckedVariant&>(loaded) = std::move(checked);
    loaded.last_error = described->last_error;
    loaded.elsewhere = elsewhere;
    loaded.variant = {.name = loaded.name.c_str(),
                      .kernel = loaded.kernel,
                      .backend = &backend,
                      .threads = loaded.table.many_threads != 0 ? Threads::many : Threads::one,
                      .tunables = loaded.tunables,
                      .unsupported = functions[places_used].unsupported,
                      .tunings = functions[places_used].tunings,
                      .plan = functions[places_used].plan,
                      .dtypes = loaded.dtypes};
    ++places_used;
    catalogue.add(CatalogueEntry{.name = loaded.name, .variant = &loaded.variant});
  }
}

}  // namespace rooflane::plugin
