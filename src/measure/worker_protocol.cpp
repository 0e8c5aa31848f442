// Answers of protocol 1 to JSON and back. See worker_protocol.hpp.
#include "measure/worker_protocol.hpp"

#include <cmath>
#include <limits>

#include "core/json_text.hpp"
#include "measure/problem_json.hpp"

namespace rooflane::protocol {

namespace {

using nlohmann::json;

json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double number_from(const json& value) {
  if (!value.is_string()) return value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

Threads threads_from(const std::string& name) {
  for (const Threads threads : {Threads::one, Threads::many, Threads::device}) {
    if (name == name_of(threads)) return threads;
  }
  throw json::other_error::create(501, "threads '" + name + "'", nullptr);
}

RunPhase phase_from(const json& name) {
  const auto phase = parse_phase(name.get<std::string>());
  if (!phase) throw json::other_error::create(501, "phase " + name.dump(), nullptr);
  return *phase;
}

}  // namespace

std::string line_of(const json& message) {
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

json open_request(const Case& c) {
  json request = {{"op", "open"},
                  {"case", c.text()},
                  {"problem", problem_json(c.problem)},
                  {"variant", c.variant},
                  {"math", c.math},
                  {"threads", c.threads},
                  {"cache", name_of(c.cache)},
                  {"timer", name_of(c.timer)},
                  {"seed", c.seed}};
  if (c.distribution == &uniform) return request;
  json ranges = json::object();
  for (const TensorSpec& tensor : c.problem.kernel().tensors(c.problem)) {
    if (!is_read(tensor.role) || !follows_distributions(tensor)) continue;
    const SeedRange range = seed_range(tensor);
    ranges[tensor.name] = {{"low", range.low},
                           {"high", range.high},
                           {"least_normal", range.least_normal},
                           {"far", range.far},
                           {"largest", range.largest}};
  }
  request["distribution"] = {{"name", c.distribution->name}, {"ranges", ranges}};
  return request;
}

json to_json(const Greeting& greeting) {
  json message = {
      {"rooflane_worker", version}, {"name", greeting.name}, {"version", greeting.version}};
  if (!greeting.error.empty()) message["error"] = greeting.error;
  if (!greeting.build.commit.empty()) {
    message["build_commit"] = greeting.build.commit;
    message["git_dirty"] = greeting.build.dirty;
    message["compiler"] = greeting.build.compiler;
  }
  if (greeting.draws_distributions) message["draws_distributions"] = true;
  if (!greeting.variants) return message;
  json& variants = message["variants"] = json::array();
  for (const Offer& offer : *greeting.variants) {
    json item = {{"kernel", offer.kernel}, {"variant", offer.variant}};
    if (offer.absent.empty()) {
      item["threads"] = name_of(offer.threads);
      item["backend"] = offer.backend;
      item["verifies"] = offer.verifies;
      for (const OfferedTunable& tunable : offer.tunables) {
        item["tunables"].push_back({{"name", tunable.name},
                                    {"meaning", tunable.meaning},
                                    {"least", tunable.least},
                                    {"most", tunable.most}});
      }
    } else {
      item["absent"] = offer.absent;
    }
    variants.push_back(std::move(item));
  }
  return message;
}

json to_json(const Opened& opened) {
  const PlanFacts& facts = opened.facts;
  json tuning = json::array();
  for (const auto& [name, value] : facts.tuning.values()) tuning.push_back({name, value});
  return {{"ok", true},
          {"isa", facts.isa},
          {"library", facts.library},
          {"device", facts.device},
          {"driver", facts.driver},
          {"path", facts.path},
          {"tuning", tuning},
          {"tuning_source", opened.tuning_source},
          {"workspace_bytes", facts.workspace_bytes},
          {"packed_bytes", facts.packed_bytes},
          {"plan_ns", number(opened.plan_ns)}};
}

json to_json(const Verification& verification) {
  return {{"ok", true},
          {"passed", verification.passed()},
          {"status", name_of(verification.status)},
          {"metric", verification.metric},
          {"value", number(verification.value)},
          {"threshold", number(verification.threshold)},
          {"max_abs_error", number(verification.max_abs_error)},
          {"reason", verification.reason},
          {"output_hash", verification.output_hash}};
}

json reproduced(bool same) { return {{"ok", true}, {"same", same}}; }

json to_json(const Calibration& calibration) {
  return {{"ok", true},
          {"runs_per_sample", calibration.runs_per_sample},
          {"run_ns", number(calibration.run_ns)}};
}

json to_json(const Samples& samples) {
  return {{"ok", true},
          {"ns", samples.ns},
          {"h2d_ns", samples.h2d_ns},
          {"kernel_ns", samples.kernel_ns},
          {"d2h_ns", samples.d2h_ns},
          {"e2e_ns", samples.e2e_ns}};
}

json to_json(const std::optional<PhaseProfile>& profile) {
  json message = {{"ok", true}};
  if (!profile) return message;
  json phases = json::array(), events = json::array(), counters = json::array();
  for (const ThreadPhase& phase : profile->phases) {
    phases.push_back({phase.thread, name_of(phase.phase), phase.ns, phase.times});
  }
  for (const PhaseEvent& event : profile->events) {
    // Whole nanoseconds: the clock reads no finer.
    events.push_back({event.thread, name_of(event.phase), std::llround(event.begin_ns),
                      std::llround(event.end_ns)});
  }
  for (const auto& [name, count] : profile->counters) counters.push_back({name, count});
  message.update({{"runs", profile->runs},
                  {"run_ns", profile->run_ns},
                  {"plain_ns", profile->plain_ns},
                  {"phases", phases},
                  {"events", events},
                  {"dropped", profile->dropped},
                  {"counters", counters}});
  return message;
}

json failure(Status status, const std::string& reason) {
  return {{"ok", false}, {"status", name_of(status)}, {"reason", reason}};
}

Greeting greeting_from(const json& message) {
  Greeting greeting;
  greeting.name = message.value("name", "");
  greeting.version = message.value("version", "");
  greeting.error = message.value("error", "");
  greeting.build = {message.value("build_commit", ""), message.value("git_dirty", ""),
                    message.value("compiler", "")};
  greeting.draws_distributions = message.value("draws_distributions", json(false)) == true;
  if (!message.contains("variants")) return greeting;
  greeting.variants.emplace();
  for (const json& item : message.at("variants")) {
    Offer offer;
    offer.kernel = item.at("kernel");
    offer.variant = item.at("variant");
    offer.absent = item.value("absent", "");
    if (offer.absent.empty()) {
      offer.threads = threads_from(item.at("threads").get<std::string>());
      offer.backend = item.at("backend");
      offer.verifies = item.value("verifies", true);
      for (const json& tunable : item.value("tunables", json::array())) {
        offer.tunables.push_back({tunable.at("name"), tunable.at("meaning"),
                                  integer_from<std::int64_t>(tunable.at("least")),
                                  integer_from<std::int64_t>(tunable.at("most"))});
      }
    }
    greeting.variants->push_back(std::move(offer));
  }
  return greeting;
}

Opened opened_from(const json& message) {
  Opened opened;
  PlanFacts& facts = opened.facts;
  facts.isa = message.at("isa");
  facts.library = message.at("library");
  facts.device = message.at("device");
  facts.driver = message.at("driver");
  facts.path = message.value("path", "");
  for (const json& value : message.at("tuning")) {
    facts.tuning.set(value.at(0).get<std::string>(), integer_from<std::int64_t>(value.at(1)));
  }
  facts.workspace_bytes = integer_from<std::size_t>(message.at("workspace_bytes"));
  facts.packed_bytes = integer_from<std::size_t>(message.at("packed_bytes"));
  opened.plan_ns = number_from(message.at("plan_ns"));
  opened.tuning_source = message.value("tuning_source", "");
  opened.math = message.value("math", "");
  return opened;
}

Verification verification_from(const json& message) {
  Verification verification;
  // Workers that know no INACCURATE say only whether it passed.
  verification.status = message.at("passed").get<bool>() ? Status::passed : Status::failed;
  if (const auto status = parse_status(message.value("status", ""))) verification.status = *status;
  verification.metric = message.at("metric");
  verification.value = number_from(message.at("value"));
  verification.threshold = number_from(message.at("threshold"));
  verification.max_abs_error = number_from(message.at("max_abs_error"));
  verification.reason = message.at("reason");
  verification.output_hash = integer_from<std::uint64_t>(message.value("output_hash", json(0)));
  return verification;
}

bool reproduced_from(const json& message) { return message.at("same").get<bool>(); }

Calibration calibration_from(const json& message) {
  return {integer_from<std::int64_t>(message.at("runs_per_sample")),
          number_from(message.at("run_ns"))};
}

Samples samples_from(const json& message) {
  Samples samples;
  samples.ns = message.at("ns").get<std::vector<double>>();
  samples.h2d_ns = message.at("h2d_ns").get<std::vector<double>>();
  samples.kernel_ns = message.at("kernel_ns").get<std::vector<double>>();
  samples.d2h_ns = message.at("d2h_ns").get<std::vector<double>>();
  samples.e2e_ns = message.at("e2e_ns").get<std::vector<double>>();
  return samples;
}

std::optional<PhaseProfile> profile_from(const json& message) {
  if (!message.contains("phases")) return std::nullopt;
  PhaseProfile profile;
  profile.runs = integer_from<std::int64_t>(message.at("runs"));
  profile.run_ns = message.at("run_ns");
  profile.plain_ns = message.at("plain_ns");
  for (const json& phase : message.at("phases")) {
    profile.phases.push_back({integer_from<int>(phase.at(0)), phase_from(phase.at(1)),
                              phase.at(2).get<double>(), phase.at(3).get<double>()});
  }
  for (const json& event : message.at("events")) {
    profile.events.push_back({integer_from<int>(event.at(0)), phase_from(event.at(1)),
                              event.at(2).get<double>(), event.at(3).get<double>()});
  }
  profile.dropped = integer_from<std::int64_t>(message.at("dropped"));
  for (const json& counter : message.at("counters")) {
    profile.counters.emplace_back(counter.at(0).get<std::string>(), counter.at(1).get<double>());
  }
  return profile;
}

}  // namespace rooflane::protocol
