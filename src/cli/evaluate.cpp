// `rooflane evaluate`: evaluates tunings for a search in another program, over JSON lines. The
// search itself is `rooflane tune` (python/rooflane), or any other program.
//
// Protocol 1. The program greets with {"rooflane_evaluate":1,"version":"...","store":"FILE",
// "cores":2}; FILE has this machine's tuned schedules. It answers each request with one line,
// {"ok":true,...} or
// {"ok":false,"status":"UNSUPPORTED","reason":"..."}:
//   {"op":"list","shapes":["gemm:m=n=k=64..128*2"],"presets":["gpt2-small"],"models":["llama"]}
//        -> what `rooflane list --json` prints of them; a model's problems once for each call
//   {"op":"open","shape":"gemm:m=8,n=8,k=8","variant":"hwy","math":"fp32","threads":2,"isa":"",
//    "device":0,"timer":"steady","cache":"warm","seed":1}
//        -> "problem" (problem_json.hpp), "sizes": its parameters that are sizes,
//           "tunables":[{"name","meaning","least","most","selects"}],
//           "default":"mc=96,...", the model's choice, "candidates":[{"tuning","predicted_ns"}],
//           "isa","device","driver","threads","cache","usual_cache": where a request names none,
//           "machine":{...},"traits":{...},"build":{...},
//           "roof_ns": the least time that the traits allow, null on a device
//           "prediction_error": of the logarithm of a ratio of predicted_ns; null: not known
//   {"op":"check","tunings":["mc=96",...]}    -> "legal":[{"tuning":"complete"} or {"reason"}]
//   {"op":"nearest","tunings":["mc=97",...]}  -> "legal":[{"tuning":"complete"},...]
//   {"op":"evaluate","tunings":["complete",...],"steps":[{"rounds":3,"within":1.1},...],
//    "best":0.9,"fresh":false}
//        -> "evaluations":[{"tuning","status","reason","metric","error","threshold",
//            "workspace_bytes","ratio":{"value","low","high"},"ns":[...],"default_ns":[...],
//            "build_s","verify_s","time_s"},...]
//   {"op":"compare","pairs":[[[0.01,0.02],[-0.01,0.0]],...],"level":0.99}: each pair has
//    repetitions, and each repetition has the logarithms of its rounds' ratios; no problem needs to
//    be open. "level": how certain "faster" and "slower" have to be, 0.99 or more; "equal" may err
//    five times as often
//        -> "ratios":[{"value","low","high","verdict":"faster|slower|equal|undecided",
//            "repetitions":F},...]; F times as many would decide, null if none would
// Values above are the defaults of their fields; if "cache" is missing, operands are cold where a
// program would read its weights from memory (usually_cold). Ratios of evaluations are the
// time divided by that of the model's choice. low and high are null if there is only a single
// round.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "backends/highway.hpp"
#include "bench/evaluator.hpp"
#include "bench/shapes.hpp"
#include "cli/build_facts.hpp"
#include "cli/list.hpp"
#include "cli/options.hpp"
#include "cli/reader_watch.hpp"
#include "cli/verbs.hpp"
#include "cli/workers.hpp"
#include "core/json_text.hpp"
#include "core/machine.hpp"
#include "core/prediction_error.hpp"
#include "core/statistics.hpp"
#include "core/text.hpp"
#include "core/traits.hpp"
#include "core/tuned.hpp"
#include "measure/problem_json.hpp"
#include "model/instance.hpp"
#include "model/library.hpp"

namespace rooflane {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

json finite(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

ordered_json rates_json(const Traits::Rates& rates) {
  ordered_json object = {{"fma_gflops", rates.fma * 1e-9}};
  const char* const names[levels] = {"l1", "l2", "l3", "memory"};
  for (int level = 0; level < levels; ++level) {
    object["read_gb_s"][names[level]] = rates.read[level] * 1e-9;
    object["write_gb_s"][names[level]] = rates.write[level] * 1e-9;
  }
  object["stream_gb_s"] = rates.stream * 1e-9;
  return object;
}

ordered_json traits_json(const Traits& t) {
  return {{"origin", t.origin},
          {"l1_bytes", t.l1_bytes},
          {"l2_bytes", t.l2_bytes},
          {"l3_bytes", t.l3_bytes},
          {"one_thread", rates_json(t.one)},
          {"each_of_all", rates_json(t.many)},
          {"transpose_gb_s", t.transpose * 1e-9},
          {"region_ns", t.region * 1e9},
          {"task_ns", t.task * 1e9}};
}

// The least time of a problem: multiply-adds at their peak, or each operand once from the level
// that holds them all.
double roof_ns(const Problem& problem, const Traits& t, int threads) {
  const Traits::Rates& rates = threads > 1 ? t.many : t.one;
  const Cost cost = problem.kernel().cost(problem);
  const double private_bytes = cost.bytes / threads;
  const int level = private_bytes <= static_cast<double>(t.l1_bytes)   ? in_l1
                    : private_bytes <= static_cast<double>(t.l2_bytes) ? in_l2
                    : cost.bytes <= static_cast<double>(t.l3_bytes)    ? in_l3
                                                                       : in_memory;
  return 1e9 / threads * std::max(cost.flops / rates.fma, cost.bytes / rates.read[level]);
}

// Answers the requests of one search.
class Evaluations {
 public:
  Evaluations(const BenchOptions& options, std::string library)
      : options_(options), evaluator_(options), library_(std::move(library)) {}

  ordered_json answer(const json& request) {
    const std::string op = request.at("op");
    if (op == "open") return open(request);
    if (op == "list") return list(request);
    if (op == "compare") return compare(request);
    if (!is_open_) throw argument_error("open a problem first");
    if (op == "check" || op == "nearest") return legal(request, op == "nearest");
    if (op == "evaluate") return evaluate(request);
    throw argument_error(
        unknown_name("op", op, {"list", "open", "check", "nearest", "evaluate", "compare"}));
  }

 private:
  ordered_json list(const json& request) const {
    const auto words = [&request](const char* name) {
      return request.value(name, std::vector<std::string>());
    };
    const Catalogue& catalogue = *options_.catalogue;
    std::vector<Problem> problems = listed_problems(words("shapes"), words("presets"), catalogue);
    for (const std::string& name : words("models")) {
      const model::Instance instance =
          model::instantiate(model::read_model(name), "", {}, catalogue.kernels());
      for (const model::Phase& phase : instance.phases) {
        for (const model::Call& call : phase.calls) problems.push_back(call.problem);
      }
    }
    ordered_json answer = list_document(catalogue, catalogue.kernels(), problems);
    answer["ok"] = true;
    return answer;
  }

  ordered_json open(const json& request) {
    is_open_ = false;
    const Catalogue& catalogue = *options_.catalogue;
    Case c;
    std::vector<Problem> problems =
        parse_shapes(request.at("shape").get<std::string>(), catalogue.kernels());
    if (problems.size() != 1) throw argument_error("only one problem: ranges are not allowed");
    c.problem = problems.front();
    const CatalogueEntry& entry =
        catalogue.variant(c.problem.kernel(), request.at("variant").get<std::string>());
    if (const auto reason = absent_reason(entry)) throw unavailable_error(*reason);
    c.variant = entry.name;
    c.math = math_for(c.problem, catalogue.math(request.value("math", "fp32")));
    c.isa = request.value("isa", "");
    c.device = request.value("device", 0);
    c.seed = request.value("seed", std::uint64_t{1});
    c.library = entry.library.empty() ? library_ : entry.library;
    const Backend& backend = *entry.variant->backend;
    const bool host = backend.devices == nullptr || backend.devices->facts(c.device).is_cpu;
    c.threads = !host                                    ? 0
                : entry.variant->threads == Threads::one ? 1
                                                         : request.value("threads", 1);
    c.timer =
        request.value("timer", host ? "steady" : "event") == "event" ? Timer::event : Timer::steady;
    const std::string cache = request.value("cache", "");
    if (cache != "" && cache != "warm" && cache != "cold") {
      throw argument_error(unknown_name("cache mode", cache, {"warm", "cold"}));
    }
    usual_ = host && usually_cold(c.problem) ? CacheMode::cold : CacheMode::warm;
    c.cache = cache.empty() ? usual_ : cache == "cold" ? CacheMode::cold : CacheMode::warm;
    if (const auto reason = refusal(*entry.variant, c.problem, c.environment())) {
      throw unavailable_error(*reason);
    }
    evaluator_.open(c);
    is_open_ = true;
    return opened_json(entry);
  }

  // The estimator of every verdict, for a search's last comparison.
  static ordered_json compare(const json& request) {
    constexpr const char* const verdicts[] = {"faster", "slower", "equal", "undecided"};
    const double level = request.value("level", winner_level);
    if (!(level >= winner_level && level < 1)) {
      throw argument_error(
          fmt::format("compare: level {} is not from {} to 1", level, winner_level));
    }
    // How many times as many repetitions a wider interval than that of winner_level needs.
    const auto stricter = [level](double df) {
      if (!(df > 0)) return 1.0;
      return std::pow(
          student_quantile((1 - level) / 2, df) / student_quantile((1 - winner_level) / 2, df), 2);
    };
    ordered_json list = ordered_json::array();
    for (const json& pair : request.at("pairs")) {
      const auto repetitions = pair.get<std::vector<std::vector<double>>>();
      const bool any = std::none_of(repetitions.begin(), repetitions.end(),
                                    [](const auto& rounds) { return rounds.empty(); });
      if (repetitions.empty() || !any) {
        throw argument_error(
            "compare: every pair needs a repetition, and every repetition a round");
      }
      const Estimate estimate = estimate_over_repetitions(repetitions);
      const Interval interval = estimate.interval();
      const Interval sure = estimate.interval(level);
      PairVerdict verdict = verdict_of(estimate);
      const Interval like = estimate.interval(1 - (1 - level) * (1 - 0.95) / (1 - winner_level));
      const double margin = std::log1p(tie_margin);
      const bool is_equal = like.low >= -margin && like.high <= margin;
      if (verdict == PairVerdict::equal ? !is_equal : sure.contains(0)) {
        verdict = PairVerdict::undecided;
      }
      list.push_back(
          {{"value", std::exp(estimate.value)},
           {"low", finite(std::exp(interval.low))},
           {"high", finite(std::exp(interval.high))},
           {"verdict", verdicts[static_cast<int>(verdict)]},
           {"repetitions", finite(repetitions_to_decide(estimate) * stricter(estimate.df))}});
    }
    return {{"ok", true}, {"ratios", list}};
  }

  ordered_json opened_json(const CatalogueEntry& entry) const {
    const Case& c = evaluator_.opened();
    const PlanFacts& facts = evaluator_.facts();
    ordered_json tunables = ordered_json::array();
    for (const Tunable& tunable : entry.variant->tunables) {
      tunables.push_back({{"name", tunable.name},
                          {"meaning", tunable.meaning},
                          {"least", tunable.least},
                          {"most", tunable.most},
                          {"selects", tunable.selects}});
    }
    ordered_json sizes = ordered_json::array();
    for (const ParamSpec& param : c.problem.kernel().params) {
      if (param.kind == ParamKind::size) sizes.push_back(param.name);
    }
    ordered_json answer = {{"ok", true},
                           {"kernel", c.problem.kernel().name},
                           {"variant", c.variant},
                           {"problem", problem_json(c.problem)},
                           {"sizes", sizes},
                           {"tunables", tunables},
                           {"default", evaluator_.first_choice().text()},
                           {"candidates", candidates_json(*entry.variant)},
                           {"math", c.math},
                           {"isa", facts.isa},
                           {"device", facts.device},
                           {"driver", facts.driver},
                           {"threads", c.threads},
                           {"cache", name_of(c.cache)},
                           {"usual_cache", name_of(usual_)},
                           {"roof_ns", nullptr},
                           {"prediction_error", nullptr}};
    const Machine& m = machine();
    answer["machine"] = {{"key", machine_key(m)}, {"cpu", m.cpu}, {"cores", m.physical_cores}};
    answer["build"] = {
        {"commit", build_commit}, {"dirty", build_dirty}, {"compiler", build_compiler}};
    if (const auto error = prediction_error(c.problem.kernel().name, c.math, c.threads);
        error && entry.variant->predicted_seconds != nullptr) {
      answer["prediction_error"] = *error;
    }
    if (c.threads > 0) {
      const Traits& t = traits(isa_name(resolve_isa(c.isa)), c.threads);
      answer["traits"] = traits_json(t);
      answer["roof_ns"] = finite(roof_ns(c.problem, t, c.threads));
    }
    return answer;
  }

  ordered_json candidates_json(const Variant& variant) const {
    const Case& c = evaluator_.opened();
    ordered_json list = ordered_json::array();
    for (const Tuning& tuning : variant.tunings(c.problem, c.environment())) {
      const LegalTuning whole = evaluator_.legal(tuning);
      if (!whole.tuning) continue;  // more than this device has
      ordered_json item = {{"tuning", whole.tuning->text()}, {"predicted_ns", nullptr}};
      if (variant.predicted_seconds != nullptr) {
        item["predicted_ns"] =
            finite(1e9 * variant.predicted_seconds(c.problem, *whole.tuning, c.environment()));
      }
      list.push_back(std::move(item));
    }
    return list;
  }

  Tuning tuning_of(const std::string& text) const {
    return parse_tuning(variant_of(evaluator_.opened(), *options_.catalogue), text);
  }

  ordered_json legal(const json& request, bool nearest) const {
    ordered_json list = ordered_json::array();
    for (const std::string text : request.at("tunings")) {
      try {
        const Tuning given = tuning_of(text);
        const LegalTuning found =
            nearest ? LegalTuning{evaluator_.nearest(given), ""} : evaluator_.legal(given);
        list.push_back(found.tuning ? ordered_json{{"tuning", found.tuning->text()}}
                                    : ordered_json{{"reason", found.reason}});
      } catch (const Error& error) {
        list.push_back({{"reason", error.what()}});
      }
    }
    return {{"ok", true}, {"legal", list}};
  }

  ordered_json evaluate(const json& request) {
    EvaluationRequest wanted;
    for (const std::string text : request.at("tunings")) wanted.tunings.push_back(tuning_of(text));
    for (const json& step : request.at("steps")) {
      wanted.steps.push_back({integer_from<int>(step.at("rounds")), step.value("within", 1.1)});
    }
    wanted.best = request.value("best", 1.0);
    wanted.fresh = request.value("fresh", false);
    ordered_json list = ordered_json::array();
    for (const Evaluation& e : evaluator_.evaluate(wanted)) {
      ordered_json item = {{"tuning", e.tuning.text()},  {"status", name_of(e.status)},
                           {"reason", e.reason},         {"workspace_bytes", e.workspace_bytes},
                           {"ratio", nullptr},           {"ns", e.ns},
                           {"default_ns", e.default_ns}, {"build_s", e.build_s},
                           {"verify_s", e.verify_s},     {"time_s", e.time_s}};
      if (e.verification) {
        item["metric"] = e.verification->metric;
        item["error"] = finite(e.verification->value);
        item["threshold"] = finite(e.verification->threshold);
      }
      if (has_speed(e.status) && !e.ns.empty()) {
        item["ratio"] = {
            {"value", e.ratio}, {"low", e.ratio_interval.low}, {"high", e.ratio_interval.high}};
      }
      list.push_back(std::move(item));
    }
    return {{"ok", true}, {"evaluations", list}};
  }

  const BenchOptions& options_;
  Evaluator evaluator_;
  std::string library_;
  bool is_open_ = false;
  CacheMode usual_ = CacheMode::warm;  // of the open problem
};

ordered_json failure(Status status, const std::string& reason) {
  return {{"ok", false}, {"status", name_of(status)}, {"reason", reason}};
}

ordered_json answer_to(Evaluations& evaluations, const std::string& line) {
  try {
    return evaluations.answer(parse_json(line));
  } catch (const WorkerError& error) {
    return failure(error.status(), error.what());
  } catch (const Error& error) {
    return failure(error.kind() == ErrorKind::unavailable ? Status::unsupported : Status::failed,
                   error.what());
  } catch (const json::exception& error) {
    return failure(Status::failed, fmt::format("no request: {}", error.what()));
  }
}

void declare_evaluate(Arguments& arguments) {
  arguments.option("--timeout", "SECONDS", "abandon a tuning after this time; default: 60");
  declare_blas(arguments);
  declare_workers(arguments);
  arguments.examples(
      {"printf '%s\\n' '{\"op\":\"open\",\"shape\":\"softmax:rows=4,cols=8\","
       "\"variant\":\"hwy\"}' | rooflane evaluate"});
}

int run_evaluate(const Arguments& arguments, Catalogue& catalogue, const CliSettings& settings) {
  Complaints complaints;
  CommonOptions common;
  common.library =
      complaints.check([&] { return apply_blas(arguments.values("--blas"), catalogue); });
  common.timeout = complaints.check([&]() -> std::optional<double> {
    const auto text = arguments.value("--timeout");
    return text ? std::optional(parse_seconds("--timeout", *text)) : std::nullopt;
  });
  add_workers(arguments, common, settings, catalogue, complaints);
  complaints.raise();
  end_with_reader();  // an evaluation takes a minute, and nobody may wait for it any more
  const BenchOptions options = bench_options(common, {}, {}, catalogue, settings);
  Evaluations evaluations(options, common.library);
  const auto print = [](const ordered_json& message) {
    std::cout << message.dump(-1, ' ', false, json::error_handler_t::replace) << '\n' << std::flush;
  };
  print({{"rooflane_evaluate", 1},
         {"version", build_version},
         {"store", tuned_store().string()},
         {"cores", machine().physical_cores}});
  for (std::string line; std::getline(std::cin, line);) {
    if (!line.empty()) print(answer_to(evaluations, line));
  }
  return 0;
}

}  // namespace

const Verb evaluate_verb = {"evaluate",
                            "evaluates tunings for a search: JSON lines on standard input",
                            declare_evaluate, run_evaluate};

}  // namespace rooflane
