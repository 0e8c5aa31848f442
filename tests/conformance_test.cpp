// Every variant on every ISA target of this machine over the edge shapes: right within the kernel's
// bound, inputs untouched, nothing written outside the output, for dense and for strided misaligned
// memory, 1 to 4 threads, repeated runs and re-binding, and two plans at once.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absent_variants.hpp"
#include "all_threads.hpp"
#include "backends/highway.hpp"
#include "backends/installed.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/seeds.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/gemm/epilogue.hpp"
#include "kernels/softmax/softmax.hpp"
#include "known_reference.hpp"
#include "measure/verify.hpp"
#include "part_of_cases.hpp"
#include "skip.hpp"

using namespace rooflane;

namespace {

constexpr std::uint64_t seed = 20240229;
constexpr std::int64_t guard = 37;                 // elements before and after each tensor
constexpr std::byte guard_byte = std::byte{0x5A};  // of every byte between them, too

struct Layout {
  const char* name;
  std::int64_t offset;   // elements by which the data is off 64-byte alignment
  std::int64_t padding;  // elements between rows
};
constexpr Layout layouts[] = {{"dense", 0, 0}, {"strided and misaligned", 3, 5}};

// A tensor in guarded memory.
class GuardedTensor {
 public:
  GuardedTensor(const Shape& shape, DType dtype, const Layout& layout) {
    view_ = contiguous_view(nullptr, shape, dtype);
    const std::int64_t block = dtype->block;
    std::int64_t stride = view_.cols() + layout.padding * block;
    for (int axis = view_.rank - 2; axis >= 0; --axis) {
      view_.strides[axis] = stride;
      stride *= shape[axis];
    }
    const std::int64_t lead =
        block * (guard + layout.offset + 11 - (guard + layout.offset) % 16 * (layout.offset == 0));
    storage_.assign(dtype->bytes(lead + stride + guard * block), guard_byte);
    view_.data = storage_.data() + dtype->bytes(lead);
  }
  const View& view() const { return view_; }
  const std::vector<std::byte>& storage() const { return storage_; }

  // Every byte outside the view still holds the guard value.
  bool guards_hold() const {
    std::vector<bool> inside(storage_.size());
    for_each_row([&](std::byte* row) {
      std::fill_n(inside.begin() + (row - storage_.data()), row_bytes(), true);
    });
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      if (!inside[i] && storage_[i] != guard_byte) return false;
    }
    return true;
  }
  // NaN in every float format.
  void poison() {
    for_each_row([&](std::byte* row) { std::fill_n(row, row_bytes(), std::byte{0xFF}); });
  }
  std::vector<std::byte> dense() const {
    std::vector<std::byte> values;
    for_each_row([&](std::byte* row) { values.insert(values.end(), row, row + row_bytes()); });
    return values;
  }

 private:
  std::size_t row_bytes() const { return view_.dtype->bytes(view_.cols()); }
  template <class F>
  void for_each_row(F&& body) const {
    if (view_.empty()) return;
    for (std::int64_t row = 0; row < view_.rows(); ++row) body(view_.row(row));
  }

  std::vector<std::byte> storage_;
  View view_;
};

// All tensors of a problem in one layout.
class GuardedOperands {
 public:
  GuardedOperands(const Problem& problem, const Layout& layout, const InputSeed& input_seed) {
    const std::vector<TensorSpec> specs = problem.kernel().tensors(problem);
    tensors_.reserve(specs.size());
    for (const TensorSpec& spec : specs) {
      tensors_.emplace_back(tensor_shape(problem, spec), spec.dtype, layout);
      const View& view = tensors_.back().view();
      views_.set(spec.name, view);
      if (spec.role == Role::output) {
        outputs_.push_back(tensors_.size() - 1);
      } else {
        fill_from_seed(input_seed, problem, spec, view, 1);
      }
    }
    clear();
    for (const GuardedTensor& tensor : tensors_) before_.push_back(tensor.storage());
  }
  void clear() {
    for (const std::size_t output : outputs_) tensors_[output].poison();
  }
  bool guards_hold() const {
    return std::all_of(outputs_.begin(), outputs_.end(),
                       [&](std::size_t output) { return tensors_[output].guards_hold(); });
  }
  // The values of all outputs.
  std::vector<std::byte> dense() const {
    std::vector<std::byte> values;
    for (const std::size_t output : outputs_) {
      const std::vector<std::byte> further = tensors_[output].dense();
      values.insert(values.end(), further.begin(), further.end());
    }
    return values;
  }
  const Operands& views() const { return views_; }
  bool inputs_untouched() const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const bool is_output = std::find(outputs_.begin(), outputs_.end(), i) != outputs_.end();
      if (!is_output && tensors_[i].storage() != before_[i]) return false;
    }
    return true;
  }

 private:
  std::vector<GuardedTensor> tensors_;
  std::vector<std::vector<std::byte>> before_;
  Operands views_;
  std::vector<std::size_t> outputs_;
};

std::vector<Problem> edge_problems(const Catalogue& catalogue, const Kernel& kernel) {
  std::ifstream file(SHAPES_DIR "/edge.txt");
  REQUIRE(file.good());
  std::vector<Problem> problems;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(std::string(kernel.name) + ":", 0) != 0) continue;
    for (Problem& problem : parse_shapes(line, catalogue.kernels())) {
      problems.push_back(std::move(problem));
    }
  }
  REQUIRE(problems.size() > 10);
  return problems;
}

std::vector<std::string> targets_of(const Variant& variant) {
  return variant.backend->name == std::string("highway") ? isa_targets()
                                                         : std::vector<std::string>{""};
}

// The math of a problem that nobody asks another one of.
std::string usual_math(const Problem& problem) {
  return math_for(problem, std::string(problem.kernel().maths.front()->name));
}

// Whether the variant has the problem's usual math, and all tensors have formats that it takes.
bool takes_formats(const Variant& variant, const Problem& problem) {
  const bool computes =
      std::any_of(variant.maths.begin(), variant.maths.end(),
                  [&](const Math* math) { return math->name == usual_math(problem); });
  if (!computes) return false;
  const std::vector<TensorSpec> tensors = problem.kernel().tensors(problem);
  return std::all_of(tensors.begin(), tensors.end(), [&](const TensorSpec& tensor) {
    return std::find(variant.dtypes.begin(), variant.dtypes.end(), tensor.dtype) !=
           variant.dtypes.end();
  });
}

// Formats that the library behind a variant has or lacks, by its version and the CPU.
bool library_may_lack(const Variant& variant, const Problem& problem) {
  const std::string backend = variant.backend->name;
  if (backend != "cblas" && backend != "onednn") return false;
  const std::vector<TensorSpec> tensors = problem.kernel().tensors(problem);
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const TensorSpec& tensor) { return tensor.dtype != &float32; });
}

bool is_norm(const std::string& kernel) { return kernel == "layernorm" || kernel == "rmsnorm"; }

// Attention's options, softmax's, GEMM's epilogue and the norms' residual, which some code says
// that it lacks (attention_options_test.cpp, epilogue_test.cpp).
bool has_options(const Problem& problem) {
  const std::string kernel = problem.kernel().name;
  return (kernel == "attention" &&
          attention::option_refusal(problem, problem.dtype("type")).has_value()) ||
         (kernel == "gemm" && !gemm::epilogue_text(problem).empty()) ||
         (is_norm(kernel) && problem.flag("residual")) ||
         (kernel == "softmax" && softmax::option_refusal(problem).has_value());
}

// What peers' post-operations lose a NaN in or lack; `opencl` has no two products in one.
bool may_refuse_epilogue(const Variant& variant, const Problem& problem) {
  using Op = gemm::Epilogue::Op;
  const std::string backend = variant.backend->name;
  if (variant.name == std::string("clblast")) return true;
  if (problem.flag("gate")) return backend == "opencl" || backend == "onednn";
  const gemm::Epilogue epilogue(problem);
  return backend == "onednn" &&
         (epilogue.has(Op::relu) || epilogue.has(Op::leaky_relu) || epilogue.has(Op::clamp));
}

// What variants refuse because they, or the library behind them, have no such facility.
bool may_refuse(const Variant& variant, const Problem& problem) {
  if (!takes_formats(variant, problem) || library_may_lack(variant, problem)) return true;
  const std::string kernel = problem.kernel().name, backend = variant.backend->name;
  if (kernel == "activation" && backend == "onednn") return problem.choice("kind") == "relu";
  if (is_norm(kernel) || kernel == "softmax") {
    return backend != "scalar" && backend != "highway" && has_options(problem);
  }
  if (kernel == "attention" && problem.dtype("type") != problem.dtype("kv_type")) {
    if (backend == "opencl") return true;
  }
  if (kernel == "attention") return backend == "onednn" && has_options(problem);
  if (kernel == "gemm" && has_options(problem) && may_refuse_epilogue(variant, problem))
    return true;
  if (kernel != "gemm" || !problem.flag("prepack")) return false;
  if (backend == "onednn") return problem.value("beta") != 0;  // oneDNN 3.7.2, AVX2
  return backend == "cblas" || variant.name == std::string("clblast");
}

// Layouts that a peer would get wrong and so refuses when memory is bound. Which versions do, and
// that each refusal is needed: onednn_test.cpp.
bool may_refuse(const Variant& variant, const Problem& problem, const Layout& layout) {
  return variant.backend->name == std::string("onednn") &&
         problem.kernel().name == std::string("gemm") && layout.padding > 0 &&
         (problem.size("m") == 1 || problem.size("n") == 1);
}

void run_whole(Plan& plan) {
  plan.upload();
  plan.run();
  plan.download();
}

// One case: bind, run twice (same bits), bind other memory with other values, run; where memory is
// dense and constants are not packed, the same with inputs of every other distribution.
// `tuning`: empty, or a rung of the variant's ladder.
void check_case(const CatalogueEntry& entry, const Tuning& tuning, const Problem& problem,
                const Environment& env, const Layout& layout) {
  INFO(problem.text(), " variant=", entry.name, " math=", env.math, " threads=", env.threads,
       " isa=", env.isa, " ", tuning.text(), " ", layout.name);
  GuardedOperands first(problem, layout, seed), second(problem, layout, seed + 1);
  const Variant& variant = *entry.variant;
  const bool has_constants = [&] {
    for (const TensorSpec& spec : problem.kernel().tensors(problem)) {
      if (spec.role == Role::constant) return true;
    }
    return false;
  }();
  const auto plan =
      make_plan(variant, problem, test::on_all_threads(variant, tuning, env), env, first.views());
  if (!tuning.values().empty()) CHECK(plan->facts().tuning == tuning);
  const Math& math = *find_math(problem.kernel(), env.math);
  const auto check = [&](GuardedOperands& operands, std::string_view when, const InputSeed& drawn) {
    INFO(when);
    const Reference& reference = test::known_reference(problem, operands.views(), drawn, math);
    const Verification result = verify_output(problem, operands.views(), reference, drawn, math);
    // Plain sums of a library behind a variant may lose what they lose, and more than that away
    // from ordinary inputs.
    const bool is_peer = variant.backend->name == std::string("onednn");
    const bool is_right = is_peer ? result.usable() : result.passed();
    CHECK_MESSAGE((is_right || (is_peer && drawn.distribution != &uniform)), result.reason);
    CHECK_MESSAGE(operands.inputs_untouched(), "an input was changed");
    CHECK_MESSAGE(operands.guards_hold(), "written outside the output");
  };
  try {
    plan->bind(first.views());
  } catch (const Error& refusal) {
    INFO(refusal.what());
    CHECK(refusal.kind() == ErrorKind::unavailable);
    CHECK(may_refuse(variant, problem, layout));
    return;
  }
  run_whole(*plan);
  check(first, "first run", seed);
  const std::vector<std::byte> bits = first.dense();
  first.clear();
  run_whole(*plan);
  CHECK_MESSAGE(bits == first.dense(), "a second run gave other bits");
  // Constants were packed from the first operands; other ones belong to another plan.
  if (has_constants) return;
  plan->bind(second.views());
  run_whole(*plan);
  check(second, "after binding other memory", seed + 1);
  // Rungs of ladders are for ordinary inputs, and what a size does to loops is known by now.
  constexpr double most_bytes = 0x1p19;
  if (layout.padding > 0 || !tuning.values().empty()) return;
  if (operand_bytes(problem) > most_bytes) return;
  for (const Distribution* const distribution : all_distributions()) {
    if (distribution == &uniform || distribution_defect(problem, math, *distribution)) continue;
    const InputSeed drawn(seed, *distribution);
    GuardedOperands other(problem, layout, drawn);
    plan->bind(other.views());
    run_whole(*plan);
    check(other, distribution->name, drawn);
  }
}

void check_kernel(const Catalogue& catalogue, const Kernel& kernel) {
  const std::vector<Problem> problems = edge_problems(catalogue, kernel);
  test::skip_absent(catalogue, kernel);
  for (const CatalogueEntry* entry : catalogue.variants(kernel)) {
    if (absent_reason(*entry)) continue;
    for (const std::string& isa : targets_of(*entry->variant)) {
      int accepted = 0;
      for (std::size_t i = 0; i < problems.size(); ++i) {
        for (const Layout& layout : layouts) {
          Environment env;
          env.isa = isa;
          env.math = usual_math(problems[i]);
          env.library = entry->library;
          // Each problem meets each thread count over the ISA targets and layouts.
          if (entry->variant->threads == Threads::many) {
            // BLIS spins at its barriers: minutes where its threads outnumber the CPUs.
            const std::size_t most = entry->library.empty() ? 4 : 2;
            env.threads = 1 + static_cast<int>((i + (layout.offset != 0 ? 2 : 0)) % most);
          }
          if (entry->variant->threads == Threads::device) env.threads = 0;  // all of it
          if (refusal(*entry->variant, problems[i], env)) {
            // No variant may slip through by refusing its problems.
            CHECK(may_refuse(*entry->variant, problems[i]));
            continue;
          }
          ++accepted;
          if (test::takes_next_case()) check_case(*entry, {}, problems[i], env, layout);
        }
      }
      INFO(kernel.name, " ", entry->name, " ", isa);
      const auto of_its_formats = std::count_if(
          problems.begin(), problems.end(),
          [&](const Problem& problem) { return takes_formats(*entry->variant, problem); });
      CHECK(accepted > of_its_formats);
    }
  }
}

// Every variant under every other math that it has; returns how many variants and maths these are.
int check_maths(const Catalogue& catalogue, const Kernel& kernel) {
  const std::vector<Problem> problems = edge_problems(catalogue, kernel);
  int pairs = 0;
  test::skip_absent(catalogue, kernel, "opencl");
  for (const CatalogueEntry* entry : catalogue.variants(kernel)) {
    if (absent_reason(*entry)) continue;
    for (const Math* math : entry->variant->maths) {
      if (math == &fp32) continue;
      Environment env;
      env.math = math->name;
      env.threads = entry->variant->threads == Threads::device ? 0 : 1;
      ++pairs;
      int accepted = 0;
      for (const Problem& problem : problems) {
        // Those that have it as their usual math are check_kernel's.
        if (env.math == usual_math(problem) || has_options(problem)) continue;
        if (refusal(*entry->variant, problem, env)) continue;
        for (const Layout& layout : layouts) {
          if (test::takes_next_case()) check_case(*entry, {}, problem, env, layout);
        }
        ++accepted;
      }
      INFO(entry->name, " ", math->name);
      const std::string backend = entry->variant->backend->name;
      const bool library_decides = backend == "cblas" || backend == "onednn";
      CHECK((accepted > 0 || math == &math_int8 || library_decides));
    }
  }
  return pairs;
}

// The kernels with a ladder.
constexpr std::string_view with_ladder[] = {"gemm", "softmax", "layernorm", "attention"};

// Every rung of every ladder, as check_kernel does with variants. How many there are.
int check_ladders(const Catalogue& catalogue, const Kernel& kernel) {
  const std::vector<Problem> problems = edge_problems(catalogue, kernel);
  int rungs = 0;
  test::skip_absent(catalogue, kernel, "opencl");  // others with a ladder are everywhere
  for (const CatalogueEntry* entry : catalogue.variants(kernel)) {
    if (entry->variant->ladder.empty() || absent_reason(*entry)) continue;
    for (const Tuning& step : step_tunings(*entry->variant)) {
      ++rungs;
      for (const std::string& isa : targets_of(*entry->variant)) {
        for (std::size_t i = 0; i < problems.size(); ++i) {
          // Rungs have no other format, none of attention's options, no epilogue, no residual.
          if (dtype_text(problems[i]) != "float32" || has_options(problems[i])) continue;
          for (const Layout& layout : layouts) {
            // On a device operands are dense copies, whatever the layout: once is enough.
            if (entry->variant->threads == Threads::device && &layout != &layouts[i % 2]) continue;
            Environment env;
            env.isa = isa;
            if (threads_of(*entry->variant, step) == Threads::many) {
              env.threads = 1 + static_cast<int>((i + (layout.offset != 0 ? 2 : 0)) % 4);
            }
            if (entry->variant->threads == Threads::device) env.threads = 0;  // all of it
            REQUIRE_FALSE(refusal(*entry->variant, problems[i], env));
            if (test::takes_next_case()) check_case(*entry, step, problems[i], env, layout);
          }
        }
      }
    }
  }
  return rungs;
}

}  // namespace

TEST_CASE("ladders: every rung on every ISA target is right on every edge shape") {
  const char* const only = std::getenv("CONFORMANCE_KERNEL");
  const Catalogue catalogue = Catalogue::built_in();
  for (const Kernel* kernel : catalogue.kernels()) {
    if (only != nullptr && std::string(only) != kernel->name) continue;
    INFO(kernel->name);
    const bool taught = std::find(std::begin(with_ladder), std::end(with_ladder),
                                  std::string_view(kernel->name)) != std::end(with_ladder);
    CHECK(check_ladders(catalogue, *kernel) >= (taught ? 3 : 0));
  }
}

TEST_CASE("shapes: every variant and ISA target is right on every edge shape") {
  // One kernel, so that kernels share the cores as tests of their own; unset: all of them.
  const char* const only = std::getenv("CONFORMANCE_KERNEL");
  const Catalogue catalogue = with_installed_libraries(Catalogue::built_in());
  int kernels = 0;
  for (const Kernel* kernel : catalogue.kernels()) {
    if (only != nullptr && std::string(only) != kernel->name) continue;
    check_kernel(catalogue, *kernel);
    ++kernels;
  }
  CHECK(kernels > 0);
}

TEST_CASE("maths: every variant is right on every edge shape under each other math that it has") {
  const Catalogue catalogue = Catalogue::built_in();
  for (const Kernel* kernel : catalogue.kernels()) {
    const int pairs = check_maths(catalogue, *kernel);
    int expected = 0;
    for (const CatalogueEntry* entry : catalogue.variants(*kernel)) {
      if (absent_reason(*entry)) continue;
      const auto maths = entry->variant->maths;
      expected += static_cast<int>(maths.size() - std::count(maths.begin(), maths.end(), &fp32));
    }
    const std::string name = kernel->name;
    INFO(name);
    CHECK(pairs == expected);
    // gemm's scalar and hwy have four more each.
    CHECK((name != "gemm" || pairs >= 8));
  }
}

TEST_CASE("plans of different ISA targets run at once without disturbing each other") {
  const Catalogue catalogue = Catalogue::built_in();
  const std::vector<std::string> targets = isa_targets();
  for (const char* text :
       {"gemm:m=65,n=67,k=130", "softmax:rows=33,cols=500", "layernorm:rows=33,cols=500",
        "embed:n=33,vocab=70,cols=96,table_type=q8_0", "segment_sum:edges=700,cols=50,segments=90",
        "segment_softmax:edges=700,cols=50,segments=90", "topk:rows=9,cols=3000,k=7",
        "im2patch:height=64,width=96,patch=16",
        "attention:batch=1,heads=2,q_len=40,kv_len=70,head_dim=48,causal=1"}) {
    const Problem problem = parse_problem(text, catalogue.kernels());
    const CatalogueEntry& entry = catalogue.variant(problem.kernel(), "hwy");
    std::atomic<int> wrong{0};
    std::atomic<int> other_target{0};
    std::vector<std::thread> users;
    for (const std::string& target : {targets.front(), targets.back()}) {
      users.emplace_back([&, target] {
        Environment env;
        env.isa = target;
        env.threads = 2;
        GuardedOperands operands(problem, layouts[0], seed);
        const Reference reference = compute_reference(problem, operands.views(), seed);
        for (int i = 0; i < 20; ++i) {
          const auto plan = entry.variant->plan(problem, {}, env, operands.views());
          if (plan->facts().isa != target) ++other_target;
          operands.clear();
          plan->bind(operands.views());
          plan->run();
          if (!verify_output(problem, operands.views(), reference, seed).passed()) ++wrong;
        }
      });
    }
    for (std::thread& user : users) user.join();
    INFO(text);
    CHECK(wrong == 0);
    CHECK(other_target == 0);
  }
}
