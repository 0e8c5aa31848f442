// A table whose functions ask the runner. See jailed_plugin.hpp; how it is asked,
// runner_process.hpp.
#include "jail/jailed_plugin.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "backends/plugin.hpp"
#include "core/error.hpp"
#include "core/json_text.hpp"
#include "core/shared_memory.hpp"
#include "core/text.hpp"
#include "jail/runner_process.hpp"
#include "jail/runner_protocol.hpp"

namespace rooflane::jail {

namespace {

template <std::size_t N>
void copy_text(char (&to)[N], std::string_view from, const char* what) {
  if (from.size() >= N) throw unavailable_error(fmt::format("{} '{}' is too long", what, from));
  std::memset(to, 0, N);
  std::memcpy(to, from.data(), from.size());
}

// A table like a library's, whose functions ask a runner.
struct Table {
  JailedPlugin plugin;
  std::vector<rooflane_variant> variants;
  std::vector<std::vector<const char*>> dtypes;
  std::vector<std::vector<rooflane_tunable>> tunables;
  rooflane_plugin described{};
  // Loads nothing: shows what a call costs.
  std::unique_ptr<RunnerProcess> yardstick;
  std::string error;
};
Table table;

struct JailedPlan {
  explicit JailedPlan(int with) : runner(table.plugin, with), threads(with) {}
  RunnerProcess runner;
  std::string problem;
  int threads;
  std::vector<std::string> written;  // names of the outputs
  bool reported = false;
};

const char* last_error() { return table.error.empty() ? nullptr : table.error.c_str(); }

// Calls `step`; what it throws becomes the table's error.
template <class Step>
bool succeeds(Step&& step) {
  try {
    table.error.clear();
    step();
    return true;
  } catch (const std::exception& error) {
    table.error = error.what();
    return false;
  }
}

void require_good(const Answer& answer) {
  if (answer.good == 0) throw unavailable_error(text_of(answer.text));
}

TensorMessage message_of(const rooflane_tensor& from) {
  TensorMessage to = {};
  copy_text(to.name, from.name, "tensor");
  copy_text(to.dtype, from.dtype, "dtype");
  if (from.quantisation != nullptr) {
    to.has_quantisation = 1;
    to.bits = from.quantisation->bits;
    to.block = from.quantisation->block;
    to.block_bytes = from.quantisation->block_bytes;
    copy_text(to.scale, from.quantisation->scale, "dtype");
    if (from.quantisation->zero != nullptr) copy_text(to.zero, from.quantisation->zero, "dtype");
  }
  to.rank = from.rank;
  std::copy(std::begin(from.shape), std::end(from.shape), to.shape);
  std::copy(std::begin(from.strides), std::end(from.strides), to.strides);
  to.memory = no_memory;
  return to;
}

// The tensors, and the files of memory that they lie in. What is not written cannot be.
std::vector<int> add_tensors(Request& request, const rooflane_tensors* tensors,
                             const std::vector<std::string>& written) {
  if (tensors->count > most_tensors) throw unavailable_error("too many tensors");
  std::vector<int> descriptors;
  request.tensor_count = static_cast<std::uint32_t>(tensors->count);
  for (std::size_t i = 0; i < tensors->count; ++i) {
    const rooflane_tensor& from = tensors->tensors[i];
    TensorMessage& to = request.tensors[i] = message_of(from);
    if (from.data == nullptr) continue;  // empty
    const SharedMemory memory = shared_memory_of(from.data);
    if (memory.descriptor < 0) {
      throw unavailable_error(fmt::format("tensor {} lies in no shared memory", from.name));
    }
    const bool writable = std::find(written.begin(), written.end(), from.name) != written.end();
    if (!writable) seal_against_writes(memory);
    to.memory = static_cast<std::uint32_t>(descriptors.size());
    to.offset = memory.offset;
    request.memory_bytes[to.memory] = memory.bytes;
    request.memory_writable[to.memory] = writable ? 1 : 0;
    descriptors.push_back(memory.descriptor);
  }
  return descriptors;
}

Request& new_request(Op op) {
  static Request request;  // too large for a stack
  request = {};
  request.op = op;
  return request;
}

// An empty library: the runner only learns of its doorbell.
Answer load_into(RunnerProcess& runner, const std::string& library) {
  Request& request = new_request(Op::load);
  Settings settings;
  settings.kind = table.plugin.kind;
  settings.folder = table.plugin.folder;
  if (!library.empty()) copy_text(request.path, inside(settings) + "/" + library, "path");
  const Answer answer = runner.ask(request, {runner.bell_file()});
  require_good(answer);
  return answer;
}

Request& request_about(Op op, std::size_t variant, const rooflane_problem& problem, int threads) {
  Request& request = new_request(op);
  request.variant = static_cast<std::uint32_t>(variant);
  request.threads = threads;
  copy_text(request.kernel, problem.kernel, "kernel");
  if (problem.param_count > most_params) throw unavailable_error("too many parameters");
  request.param_count = static_cast<std::uint32_t>(problem.param_count);
  for (std::size_t i = 0; i < problem.param_count; ++i) {
    ParamMessage& param = request.params[i];
    copy_text(param.name, problem.params[i].name, "parameter");
    param.value = problem.params[i].value;
    param.has_text = problem.params[i].text != nullptr ? 1 : 0;
    if (param.has_text != 0) copy_text(param.text, problem.params[i].text, "choice");
  }
  return request;
}

std::string text_of_problem(const rooflane_problem& problem) {
  std::string text = problem.kernel;
  for (std::size_t i = 0; i < problem.param_count; ++i) {
    const rooflane_param& param = problem.params[i];
    text += fmt::format(
        "{}{}={}", i == 0 ? ':' : ',', param.name,
        param.text != nullptr ? std::string(param.text) : fmt::format("{:g}", param.value));
  }
  return text;
}

std::unique_ptr<JailedPlan> make_jailed_plan(std::size_t variant, const rooflane_problem& problem,
                                             int threads, const std::int64_t* tuning,
                                             const rooflane_tensors* constants) {
  auto plan = std::make_unique<JailedPlan>(threads);
  load_into(plan->runner, table.plugin.library);
  plan->problem = text_of_problem(problem);
  Request& request = request_about(Op::plan, variant, problem, threads);
  request.tuning_count = static_cast<std::uint32_t>(table.tunables[variant].size());
  std::copy_n(tuning, request.tuning_count, request.tuning);
  const std::vector<int> memory = add_tensors(request, constants, {});
  require_good(plan->runner.ask(request, memory));
  return plan;
}

template <std::size_t I>
void* plan_of(const rooflane_problem* problem, std::int32_t threads, const std::int64_t* tuning,
              const rooflane_tensors* constants) {
  std::unique_ptr<JailedPlan> plan;
  succeeds([&] { plan = make_jailed_plan(I, *problem, threads, tuning, constants); });
  return plan.release();
}

// Asks a runner of its own, which may refuse the problem or crash over it.
template <std::size_t I>
const char* unsupported_of(const rooflane_problem* problem, std::int32_t threads) {
  static std::string reason;
  reason.clear();
  try {
    RunnerProcess runner(table.plugin, threads);
    load_into(runner, table.plugin.library);
    const Request& request = request_about(Op::ask, I, *problem, threads);
    const Answer answer = runner.ask(request, {});
    if (answer.good == 0) reason = text_of(answer.text);
  } catch (const Error& error) {
    return nullptr;  // planning, which is asked next, fails in the same way and says it
  }
  return reason.empty() ? nullptr : reason.c_str();
}

std::int32_t bind_plan(void* plan, const rooflane_tensors* tensors) {
  auto& jailed = *static_cast<JailedPlan*>(plan);
  return succeeds([&] {
    Request& request = new_request(Op::bind);
    const std::vector<int> memory = add_tensors(request, tensors, jailed.written);
    require_good(jailed.runner.ask(request, memory));
  })
             ? 0
             : 1;
}

std::int32_t run_plan_often(void* plan, std::int64_t runs) {
  return succeeds([&] { static_cast<JailedPlan*>(plan)->runner.run(runs); }) ? 0 : 1;
}
std::int32_t run_plan(void* plan) { return run_plan_often(plan, 1); }

void destroy_plan(void* plan) { delete static_cast<JailedPlan*>(plan); }

// Appends what is known of a plan to the report, once it has run.
void report(JailedPlan& plan, double call_ns) {
  if (table.plugin.report.empty() || std::exchange(plan.reported, true)) return;
  std::ofstream file(table.plugin.report, std::ios::app);
  file << nlohmann::json{{"problem", plan.problem},
                         {"threads", plan.threads},
                         {"call_ns", call_ns},
                         {"call_spread_ns", table.yardstick->call_spread_ns()},
                         {"maps", plan.runner.mapped_files()}}
              .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
       << '\n';
}

double call_ns_of(void* plan) {
  auto& jailed = *static_cast<JailedPlan*>(plan);
  if (!table.yardstick) {
    table.yardstick = std::make_unique<RunnerProcess>(table.plugin, jailed.threads);
    load_into(*table.yardstick, "");
  }
  // Both use one CPU, and threads of the judged kernel would slow the yardstick's calls down.
  jailed.runner.rest();
  const double ns = table.yardstick->call_ns();
  jailed.runner.wake();
  report(jailed, ns);
  return ns;
}

constexpr plugin::Elsewhere elsewhere = {
    .run_often = run_plan_often,
    .will_write =
        [](void* plan, const std::vector<std::string>& names) {
          static_cast<JailedPlan*>(plan)->written = names;
        },
    .wake = [](void* plan) { static_cast<JailedPlan*>(plan)->runner.wake(); },
    .rest = [](void* plan) { static_cast<JailedPlan*>(plan)->runner.rest(); },
    .call_ns = call_ns_of,
    .call_spread_ns = [](void*) { return table.yardstick ? table.yardstick->call_spread_ns() : 0; },
    .library =
        [](void*) {
          return table.plugin.kind == Kind::unsafe
                     ? std::string("judged without a jail (--unsafe)")
                     : fmt::format("judged in {}", name_of(table.plugin.kind));
        }};

// A table's functions carry no data of their own: each variant has its own, which know its number.
struct Functions {
  decltype(rooflane_variant::unsupported) unsupported;
  decltype(rooflane_variant::plan) plan;
};
template <std::size_t... I>
constexpr std::array<Functions, sizeof...(I)> functions_of(std::index_sequence<I...>) {
  return {Functions{unsupported_of<I>, plan_of<I>}...};
}
constexpr auto functions = functions_of(std::make_index_sequence<most_variants>());

const char* kept(const char* text) {
  static std::set<std::string> texts;
  return texts.insert(text).first->c_str();
}
template <std::size_t N>
const char* kept_text(const char (&text)[N]) {
  return kept(text_of(text).c_str());
}

}  // namespace

void write_jailed_plugin(const JailedPlugin& plugin, const std::string& path) {
  std::ofstream file(path);
  file << nlohmann::json{{"name", plugin.name},
                         {"folder", plugin.folder},
                         {"library", plugin.library},
                         {"kind", name_of(plugin.kind)},
                         {"cpus", plugin.cpus},
                         {"report", plugin.report},
                         {"call_seconds", plugin.call_seconds}};
  if (!file.flush()) throw argument_error(fmt::format("'{}' cannot be written", path));
}

JailedPlugin read_jailed_plugin(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  try {
    const nlohmann::json document = parse_json(text.str());
    const bool unsafe = document.at("kind").get<std::string>() == name_of(Kind::unsafe);
    return {document.at("name"),        document.at("folder"),
            document.at("library"),     unsafe ? Kind::unsafe : Kind::bubblewrap,
            document.at("cpus"),        document.at("report"),
            document.at("call_seconds")};
  } catch (const nlohmann::json::exception&) {
    throw argument_error(fmt::format("'{}' describes no judged kernel", path));
  }
}

std::string full_text(const Problem& problem) {
  std::string text = problem.kernel().name;
  for (const ParamSpec& param : problem.kernel().params) {
    const bool in_words = param.kind == ParamKind::choice || param.kind == ParamKind::chain;
    const double value = problem.value(param.name);
    text += fmt::format("{}{}={}", text.find(':') == text.npos ? ':' : ',', param.name,
                        in_words ? print_value(param, value) : fmt::format("{:g}", value));
  }
  return text;
}

const rooflane_plugin* take_description(const Answer& answer) {
  table.variants.clear();
  const std::size_t count = std::min<std::size_t>(answer.variant_count, most_variants);
  table.dtypes.resize(count);
  table.tunables.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const VariantMessage& from = answer.variants[i];
    for (std::size_t j = 0; j < std::min<std::size_t>(from.dtype_count, most_dtypes); ++j) {
      table.dtypes[i].push_back(kept_text(from.dtypes[j]));
    }
    if (from.dtype_count > 0) table.dtypes[i].push_back(nullptr);
    for (std::size_t j = 0; j < std::min<std::size_t>(from.tunable_count, most_tunables); ++j) {
      const TunableMessage& tunable = from.tunables[j];
      table.tunables[i].push_back({kept_text(tunable.name), kept_text(tunable.meaning),
                                   tunable.least, tunable.most, tunable.value});
    }
    rooflane_variant variant = {};
    variant.kernel = kept_text(from.kernel);
    variant.name = from.name[0] != '\0' ? kept_text(from.name) : nullptr;
    variant.library = from.library[0] != '\0' ? kept_text(from.library) : nullptr;
    variant.many_threads = from.many_threads;
    variant.constants = from.constants;
    variant.dtypes = from.dtype_count > 0 ? table.dtypes[i].data() : nullptr;
    variant.tunables = table.tunables[i].data();
    variant.tunable_count = table.tunables[i].size();
    if (from.may_refuse != 0) variant.unsupported = functions[i].unsupported;
    variant.plan = functions[i].plan;
    variant.bind = bind_plan;
    variant.run = run_plan;
    variant.destroy = destroy_plan;
    table.variants.push_back(variant);
  }
  table.described = {answer.abi, static_cast<std::uint32_t>(count), table.variants.data(),
                     last_error};
  return &table.described;
}

void load_jailed(Catalogue& catalogue, const JailedPlugin& plugin) {
  share_buffers();
  kernel_cpus();
  table.plugin = plugin;
  Answer answer;
  {
    RunnerProcess runner(plugin, 1);
    answer = load_into(runner, table.plugin.library);
    runner.look_for_leftovers(
        "load-time: a thread or process goes on after the library was loaded");
  }
  plugin::load_table(catalogue, plugin.name, take_description(answer), &elsewhere);
}

}  // namespace rooflane::jail
