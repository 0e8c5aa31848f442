// The fake variants. See fakes.hpp.
#include "fakes.hpp"

#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <string>
#include <thread>

#include "core/buffer.hpp"
#include "core/error.hpp"

namespace rooflane {

namespace {

const Catalogue& built_in() {
  static const Catalogue catalogue = Catalogue::built_in();
  return catalogue;
}

// Runs scalar, and whatever a fake does around it.
class FakePlan : public Plan {
 public:
  FakePlan(const Problem& problem, const Environment& env, const Operands& constants)
      : Plan(problem),
        inner_(built_in()
                   .variant(problem.kernel(), "scalar")
                   .variant->plan(problem, {}, env, constants)) {
    for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
      (tensor.role == Role::output ? output_name_ : input_name_) = tensor.name;
    }
  }
  void run() override { inner_->run(); }
  PlanFacts facts() const override { return inner_->facts(); }

 protected:
  void on_bind(const Operands& operands) override { inner_->bind(operands); }
  const View& output() const { return bound_.at(output_name_); }
  const View& some_input() const { return bound_.at(input_name_); }
  std::size_t output_bytes() const {
    return static_cast<std::size_t>(output().elements()) * sizeof(float);
  }
  std::unique_ptr<Plan> inner_;

 private:
  std::string output_name_, input_name_;
};

struct Slow final : FakePlan {
  using FakePlan::FakePlan;
  void run() override {
    using namespace std::chrono;
    const auto begin = steady_clock::now();
    inner_->run();
    std::this_thread::sleep_for(20 * (steady_clock::now() - begin) + milliseconds(1));
  }
};

struct TooFast final : FakePlan {
  using FakePlan::FakePlan;
  void run() override {
    const float seen = *some_input().f32();
    if (kept_.bytes() == 0 || seen != kept_for_) {
      inner_->run();
      kept_for_ = seen;
      kept_ = Buffer(output_bytes());
      std::memcpy(kept_.data(), output().data, output_bytes());
    }
    std::memcpy(output().data, kept_.data(), output_bytes());
  }
  void on_bind(const Operands& operands) override {
    FakePlan::on_bind(operands);
    kept_ = Buffer();
  }
  Buffer kept_;
  float kept_for_ = 0;
};

struct Memory final : FakePlan {
  using FakePlan::FakePlan;
  void run() override {
    if (kept_.bytes() == 0) {
      inner_->run();
      kept_ = Buffer(output_bytes());
      std::memcpy(kept_.data(), output().data, output_bytes());
    }
    std::memcpy(output().data, kept_.data(), output_bytes());
  }
  Buffer kept_;
};

struct Zeros final : FakePlan {
  using FakePlan::FakePlan;
  void run() override { std::memset(output().data, 0, output_bytes()); }
};

struct Stale final : FakePlan {
  using FakePlan::FakePlan;
  void run() override {
    if (!ran_) inner_->run();
    ran_ = true;
  }
  bool ran_ = false;
};

struct Swapped final : FakePlan {
  using FakePlan::FakePlan;
  void run() override {
    inner_->run();
    const std::int64_t cols = output().shape[output().rank - 1];
    const std::int64_t rows = output().elements() / cols;
    std::swap_ranges(output().f32(), output().f32() + cols, output().f32() + (rows - 1) * cols);
  }
};

// Computes with inputs as `rounded` makes them.
template <float (*rounded)(float)>
struct Rounding final : FakePlan {
  using FakePlan::FakePlan;
  void on_bind(const Operands& operands) override {
    Operands copies;
    buffers_.clear();
    originals_.clear();
    for (const TensorSpec& tensor : problem().kernel().tensors(problem())) {
      View view = operands.at(tensor.name);
      if (tensor.role == Role::input) {
        originals_.push_back(view.f32());
        buffers_.emplace_back(static_cast<std::size_t>(view.elements()) * sizeof(float));
        view.data = buffers_.back().data();
      }
      copies.set(tensor.name, view);
    }
    inner_->bind(copies);
  }
  void run() override {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      for (std::size_t j = 0; j < buffers_[i].bytes() / sizeof(float); ++j) {
        buffers_[i].f32()[j] = rounded(originals_[i][j]);
      }
    }
    inner_->run();
  }
  std::vector<const float*> originals_;
  std::vector<Buffer> buffers_;
};

float to_tf32(float x) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x1000u) & ~0x1fffu);
}
float to_normal(float x) { return std::fabs(x) < 0x1p-126F ? 0 : x; }

struct InputChanger final : FakePlan {
  using FakePlan::FakePlan;
  void run() override {
    inner_->run();
    some_input().f32()[some_input().elements() / 2] += 1;
  }
};

struct Overrun final : FakePlan {
  using FakePlan::FakePlan;
  void run() override {
    inner_->run();
    output().f32()[output().elements()] = 0;
  }
};

struct Crash final : FakePlan {
  using FakePlan::FakePlan;
  void run() override {
    inner_->run();
    if (++runs_ < 2) return;
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would make an exit of it
    std::raise(SIGSEGV);
  }
  int runs_ = 0;
};

struct Exit final : FakePlan {
  using FakePlan::FakePlan;
  void run() override { std::_Exit(3); }
};

struct Hang final : FakePlan {
  using FakePlan::FakePlan;
  void run() override {
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
};

struct Rubbish final : FakePlan {
  using FakePlan::FakePlan;
  void run() override {
    if (!printed_) std::puts("{\"ok\":true,\"ns\":[0]}");
    std::fflush(stdout);
    printed_ = true;
    inner_->run();
  }
  bool printed_ = false;
};

struct Hungry final : FakePlan {
  using FakePlan::FakePlan;
  void run() override {
    constexpr std::size_t bite = std::size_t{16} << 20;
    while (true) {
      eaten_.emplace_back(bite);
      std::memset(eaten_.back().data(), 1, bite);
    }
  }
  std::vector<Buffer> eaten_;
};

struct BadAlloc final : FakePlan {
  BadAlloc(const Problem& problem, const Environment& env, const Operands& constants)
      : FakePlan(problem, env, constants) {
    throw std::bad_alloc();
  }
};

enum Fault : std::int64_t { none, wrong, crash, hang, no_build, forbidden };

struct Tuned final : FakePlan {
  static constexpr Tunable tunables[] = {
      {"fault", "0 none, 1 wrong, 2 crash, 3 hang, 4 does not build, 5 against the rules", 0, 5},
      {"pause", "milliseconds that a run sleeps", 0, 1000}};
  // The first choice is neither the fastest nor the slowest.
  static std::vector<Tuning> tunings(const Problem&, const Environment&) {
    return {{{"fault", none}, {"pause", 8}}, {{"fault", none}, {"pause", 16}}};
  }
  static std::optional<std::string> defect(const Problem&, const Tuning& tuning,
                                           const Environment&) {
    if (tuning.get("fault", none) != forbidden) return std::nullopt;
    return "fault=5 is against the rules";
  }
  static std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning,
                                    const Environment& env, const Operands& constants) {
    return std::make_unique<Tuned>(problem, tuning, env, constants);
  }
  Tuned(const Problem& problem, const Tuning& tuning, const Environment& env,
        const Operands& constants)
      : FakePlan(problem, env, constants),
        fault_(tuning.get("fault", none)),
        pause_(tuning.get("pause", 8)) {
    if (fault_ == no_build) throw BuildError("fault=4 does not build");
  }
  PlanFacts facts() const override {
    PlanFacts facts = inner_->facts();
    facts.tuning = {{"fault", fault_}, {"pause", pause_}};
    return facts;
  }
  void run() override {
    if (fault_ == crash) std::raise(SIGSEGV);
    while (fault_ == hang) std::this_thread::sleep_for(std::chrono::seconds(1));
    inner_->run();
    if (fault_ == wrong) *output().f32() += 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_));
  }
  std::int64_t fault_, pause_;
};

std::optional<std::string> never(const Problem&, const Environment&) { return "never in the mood"; }

const Backend fake_backend = {.name = "fake"};

template <class Fake>
Variant variant_of(const Kernel& kernel, const char* name) {
  return {.name = name,
          .kernel = &kernel,
          .backend = &fake_backend,
          .threads = Threads::one,
          .tunables = {},
          .unsupported = nullptr,
          .tunings = no_tunings,
          .plan = [](const Problem& problem, const Tuning&, const Environment& env,
                     const Operands& constants) -> std::unique_ptr<Plan> {
            return std::make_unique<Fake>(problem, env, constants);
          }};
}

std::deque<Variant> make_fakes() {
  std::deque<Variant> fakes;
  for (const Kernel* kernel : built_in().kernels()) {
    fakes.push_back(variant_of<Slow>(*kernel, "fake-slow"));
    fakes.push_back(variant_of<TooFast>(*kernel, "fake-too-fast"));
    fakes.push_back(variant_of<Memory>(*kernel, "fake-memory"));
    fakes.push_back(variant_of<Zeros>(*kernel, "fake-zeros"));
    fakes.push_back(variant_of<Stale>(*kernel, "fake-stale"));
    fakes.push_back(variant_of<Swapped>(*kernel, "fake-swapped"));
    fakes.push_back(variant_of<Rounding<to_tf32>>(*kernel, "fake-tf32"));
    fakes.push_back(variant_of<Rounding<to_normal>>(*kernel, "fake-flushing"));
    fakes.push_back(variant_of<InputChanger>(*kernel, "fake-input-changer"));
    fakes.push_back(variant_of<Overrun>(*kernel, "fake-overrun"));
    fakes.push_back(variant_of<Crash>(*kernel, "fake-crash"));
    fakes.push_back(variant_of<Exit>(*kernel, "fake-exit"));
    fakes.push_back(variant_of<Hang>(*kernel, "fake-hang"));
    fakes.push_back(variant_of<Rubbish>(*kernel, "fake-rubbish"));
    fakes.push_back(variant_of<Hungry>(*kernel, "fake-hungry"));
    fakes.push_back(variant_of<BadAlloc>(*kernel, "fake-bad-alloc"));
    fakes.push_back(variant_of<FakePlan>(*kernel, "fake-tunable"));
    fakes.back().tunables = Tuned::tunables;
    fakes.back().tunings = Tuned::tunings;
    fakes.back().plan = Tuned::plan;
    fakes.back().tuning_defect = Tuned::defect;
    fakes.push_back(variant_of<FakePlan>(*kernel, "fake-unsupported"));
    fakes.back().unsupported = never;
  }
  return fakes;
}

}  // namespace

Catalogue fake_catalogue() {
  static const std::deque<Variant> fakes = make_fakes();
  Catalogue catalogue = built_in();
  for (const Variant& fake : fakes) catalogue.add(CatalogueEntry{fake.name, &fake, ""});
  return catalogue;
}

}  // namespace rooflane
