// The C interface (rooflane/rooflane.h) over the C++ one: handles, status codes and text in place
// of objects and exceptions. No kernel is known here.
#include "rooflane/rooflane.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/planning.hpp"
#include "core/text.hpp"

using namespace rooflane;

struct rooflane_parsed {
  Problem problem;
  std::string text;
  std::vector<TensorSpec> tensors;
  std::vector<std::string> dtypes;  // of these
};
struct rooflane_plan {
  std::unique_ptr<Plan> plan;
  bool bound = false;
};

namespace {

thread_local std::string last_error;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

const Catalogue& catalogue() {
  static const Catalogue built_in = Catalogue::built_in();
  return built_in;
}

int failed(int status, std::string message) {
  last_error = std::move(message);
  return status;
}

// Runs `body` and returns its status: exceptions end here.
template <class Body>
int guarded(Body body) {
  try {
    body();
    return ROOFLANE_OK;
  } catch (const Error& error) {
    return failed(static_cast<int>(error.kind()), error.what());
  } catch (const std::exception& error) {
    return failed(ROOFLANE_FAILED, error.what());
  }
}

// What `make` returns, or null.
template <class Make>
auto made(Make make) -> decltype(make()) {
  decltype(make()) result = nullptr;
  guarded([&] { result = make(); });
  return result;
}

const char* needed(const char* text, const char* what) {
  if (text == nullptr) throw argument_error(fmt::format("{}: NULL", what));
  return text;
}
template <class T>
T& needed(T* object, const char* what) {
  if (object == nullptr) throw argument_error(fmt::format("{}: NULL", what));
  return *object;
}
std::string text_or(const char* text, std::string_view otherwise) {
  return text != nullptr ? text : std::string(otherwise);
}

// A plan that may run.
Plan& bound(const rooflane_plan* plan) {
  const rooflane_plan& known_plan = needed(plan, "plan");
  if (!known_plan.bound) throw argument_error("plan: rooflane_plan_bind comes first");
  return *known_plan.plan;
}

// A caller's options where its header may be older than ours: what it does not know is at its
// default.
rooflane_options known(const rooflane_options* given) {
  rooflane_options options;
  rooflane_options_init(&options);
  if (given == nullptr) return options;
  if (given->size < offsetof(rooflane_options, variant)) {
    throw argument_error("options: size is 0; rooflane_options_init sets it");
  }
  std::memcpy(&options, given, std::min(given->size, sizeof options));
  return options;
}

// Offsets in bytes are numbers of 64 bits.
constexpr double most_elements = 0x1p58;

View view_of(const rooflane_array& array, DType of_problem) {
  const std::string name = needed(array.name, "array: name");
  if (array.rank < 1 || array.rank > View::max_rank) {
    throw argument_error(fmt::format("array {}: rank {}: allowed: 1 to 4", name, array.rank));
  }
  const auto rank = static_cast<std::size_t>(array.rank);
  DType dtype = of_problem;
  if (array.dtype != nullptr) {
    dtype = find_dtype(array.dtype);
    if (dtype == nullptr) {
      std::vector<std::string> names;
      for (const DType known_one : all_dtypes()) names.emplace_back(known_one->name);
      throw argument_error(
          fmt::format("array {}: {}", name, unknown_name("dtype", array.dtype, names)));
    }
  }
  if (std::any_of(array.shape, array.shape + rank, [](std::int64_t x) { return x < 0; })) {
    throw argument_error(fmt::format("array {}: a negative length", name));
  }
  const double elements = std::accumulate(
      array.shape, array.shape + rank, 1.0,
      [](double product, std::int64_t length) { return product * std::max(1.0, 1.0 * length); });
  const double reach =
      std::inner_product(array.shape, array.shape + rank, array.strides, 0.0, std::plus<>(),
                         [](std::int64_t length, std::int64_t stride) {
                           return 1.0 * length * std::abs(1.0 * stride);
                         });
  if (std::max(elements, reach) > most_elements) {
    throw argument_error(
        fmt::format("array {}: it reaches over {:.3g} elements; allowed are {:.3g}", name,
                    std::max(elements, reach), most_elements));
  }
  View view = contiguous_view(array.data, Shape(array.shape, array.shape + rank), dtype);
  if (std::any_of(array.strides, array.strides + rank, [](std::int64_t x) { return x != 0; })) {
    std::copy_n(array.strides, rank, view.strides.begin());
  }
  return view;
}

Operands operands_of(const Problem& problem, const rooflane_array* arrays, std::size_t count) {
  Operands operands;
  if (count > 0) needed(arrays, "arrays");
  const std::vector<TensorSpec> tensors = problem.kernel().tensors(problem);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = needed(arrays[i].name, "array: name");
    const auto spec = std::find_if(tensors.begin(), tensors.end(),
                                   [&](const TensorSpec& tensor) { return tensor.name == name; });
    if (spec == tensors.end()) {
      std::vector<std::string> names;
      for (const TensorSpec& tensor : tensors) names.push_back(tensor.name);
      throw argument_error(unknown_name("tensor", name, names));
    }
    operands.set(name, view_of(arrays[i], spec->dtype));
  }
  return operands;
}

PlanOptions plan_options(const rooflane_options& options) {
  PlanOptions plan;
  plan.variant = text_or(options.variant, plan.variant);
  plan.tuning = text_or(options.tuning, plan.tuning);
  plan.math = text_or(options.math, plan.math);
  plan.isa = text_or(options.isa, plan.isa);
  plan.library = text_or(options.library, plan.library);
  plan.threads = options.threads;
  plan.device = options.device;
  return plan;
}

}  // namespace

uint32_t rooflane_abi() { return ROOFLANE_ABI; }
const char* rooflane_version() { return ROOFLANE_VERSION; }
const char* rooflane_last_error() { return last_error.c_str(); }

const char* rooflane_kernel_name(size_t index) {
  const auto kernels = catalogue().kernels();
  return index < kernels.size() ? kernels[index]->name : nullptr;
}

const char* rooflane_variant_name(const char* kernel, size_t index) {
  return made([&]() -> const char* {
    const Kernel& known_kernel = catalogue().kernel(needed(kernel, "kernel"));
    const auto variants = catalogue().variants(known_kernel);
    return index < variants.size() ? variants[index]->name.c_str() : nullptr;
  });
}

int rooflane_variant_status(const char* kernel, const char* variant) {
  return guarded([&] {
    const Kernel& known_kernel = catalogue().kernel(needed(kernel, "kernel"));
    const CatalogueEntry& entry = catalogue().variant(known_kernel, needed(variant, "variant"));
    if (const auto reason = absent_reason(entry)) throw unavailable_error(*reason);
  });
}

rooflane_parsed* rooflane_parse(const char* problem) {
  return made([&] {
    auto parsed = std::make_unique<rooflane_parsed>();
    parsed->problem = parse_problem(needed(problem, "problem"), catalogue().kernels());
    parsed->text = parsed->problem.text();
    parsed->tensors = parsed->problem.kernel().tensors(parsed->problem);
    for (const TensorSpec& tensor : parsed->tensors)
      parsed->dtypes.emplace_back(tensor.dtype->name);
    return parsed.release();
  });
}
void rooflane_parsed_destroy(rooflane_parsed* parsed) { delete parsed; }

const char* rooflane_parsed_text(const rooflane_parsed* parsed) {
  return made([&] { return needed(parsed, "problem").text.c_str(); });
}

int rooflane_parsed_tensor(const rooflane_parsed* parsed, size_t index,
                           rooflane_tensor_info* info) {
  return guarded([&] {
    const std::vector<TensorSpec>& tensors = needed(parsed, "problem").tensors;
    if (index >= tensors.size()) {
      throw argument_error(fmt::format("tensor {}: there are {}", index, tensors.size()));
    }
    const TensorSpec& tensor = tensors[index];
    const View view = contiguous_view(nullptr, tensor_shape(parsed->problem, tensor), tensor.dtype);
    rooflane_tensor_info& to = needed(info, "info");
    to = {.name = tensor.name.c_str(),
          .dtype = parsed->dtypes[index].c_str(),
          .role = static_cast<int32_t>(tensor.role),
          .rank = view.rank,
          .shape = {},
          .bytes = static_cast<int64_t>(tensor.dtype->bytes(view.elements()))};
    std::copy_n(view.shape.begin(), view.rank, to.shape);
  });
}

int rooflane_parsed_cost(const rooflane_parsed* parsed, double* flops, double* bytes) {
  return guarded([&] {
    const Problem& problem = needed(parsed, "problem").problem;
    const Cost cost = problem.kernel().cost(problem);
    needed(flops, "flops") = cost.flops;
    needed(bytes, "bytes") = cost.bytes;
  });
}

void rooflane_options_init(rooflane_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->size = sizeof *options;
  options->threads = 1;
}

rooflane_plan* rooflane_plan_create(const rooflane_parsed* parsed, const rooflane_options* options,
                                    const rooflane_array* constants, size_t count) {
  return made([&] {
    const Problem& problem = needed(parsed, "problem").problem;
    return new rooflane_plan{plan_by_name(catalogue(), problem, plan_options(known(options)),
                                          operands_of(problem, constants, count))};
  });
}
void rooflane_plan_destroy(rooflane_plan* plan) { delete plan; }

int rooflane_plan_bind(rooflane_plan* plan, const rooflane_array* arrays, size_t count) {
  return guarded([&] {
    rooflane_plan& known_plan = needed(plan, "plan");
    known_plan.plan->bind(operands_of(known_plan.plan->problem(), arrays, count));
    known_plan.bound = true;
  });
}

int rooflane_plan_upload(rooflane_plan* plan) {
  return guarded([&] { bound(plan).upload(); });
}
int rooflane_plan_run_only(rooflane_plan* plan) {
  return guarded([&] { bound(plan).run(); });
}
int rooflane_plan_download(rooflane_plan* plan) {
  return guarded([&] { bound(plan).download(); });
}
int rooflane_plan_run(rooflane_plan* plan) {
  return guarded([&] {
    Plan& known_plan = bound(plan);
    known_plan.upload();
    known_plan.run();
    known_plan.download();
  });
}

const char* rooflane_plan_fact(const rooflane_plan* plan, const char* name) {
  thread_local std::string text;
  return made([&]() -> const char* {
    const PlanFacts facts = needed(plan, "plan").plan->facts();
    const std::pair<std::string_view, std::string> all[] = {
        {"isa", facts.isa},
        {"library", facts.library},
        {"device", facts.device},
        {"driver", facts.driver},
        {"path", facts.path},
        {"tuning", facts.tuning.text()},
        {"workspace_bytes", std::to_string(facts.workspace_bytes)},
        {"packed_bytes", std::to_string(facts.packed_bytes)}};
    for (const auto& [key, value] : all) {
      if (key == needed(name, "name")) return (text = value).c_str();
    }
    throw argument_error(
        fmt::format("fact {}: allowed: isa, library, device, driver, path, tuning, "
                    "workspace_bytes, packed_bytes",
                    name));
  });
}
