// See model_verify.hpp.
#include "cli/model_verify.hpp"

#include <fmt/format.h>

#include <iostream>

#include "cli/terminal.hpp"
#include "model/rounds.hpp"

namespace rooflane {

using model::Chain;
using model::Phase;

namespace {

// Prints what was compared; false when something failed.
bool report_checks(const Chain& chain, const std::vector<model::StepCheck>& checks) {
  bool good = true;
  std::size_t calls = 0;
  const model::StepCheck* worst = nullptr;
  for (const model::StepCheck& check : checks) {
    calls += check.calls;
    if (worst == nullptr || check.verification.value > worst->verification.value) worst = &check;
    if (check.verification.passed()) continue;
    const Phase& phase = chain.phase(check.phase);
    const std::string text =
        fmt::format("{} {}/{} by {}: {}", name_of(check.verification.status), phase.name,
                    phase.steps[check.step].name, check.entry->name, check.verification.reason);
    if (check.verification.usable()) {
      print_note(text);
    } else {
      print_error(text);
      good = false;
    }
  }
  if (worst == nullptr) return good;
  const Phase& phase = chain.phase(worst->phase);
  std::cout << fmt::format(
      "verified: {} calls of {} steps and variants; largest error {:.3g} of its bound ({} by {})\n",
      calls, checks.size(), worst->verification.value, phase.steps[worst->step].name,
      worst->entry->name);
  return good;
}

bool report_whole(const Chain& chain, const std::vector<model::WholeCheck>& checks) {
  bool good = true;
  for (const model::WholeCheck& check : checks) {
    good = good && check.passed();
    const std::string found =
        check.reference_is_finite
            ? fmt::format("error {:.3g}, bound propagated from the steps {:.3g}", check.error,
                          check.bound)
            : "cannot be verified: the reference itself is not finite";
    std::cout << fmt::format("whole: {} {}/{} {}\n",
                             name_of(check.passed() ? Status::passed : Status::failed),
                             chain.phase(check.phase).name, check.tensor, found);
  }
  return good;
}

}  // namespace

Verified verify_model(Chain& chain, const model::Instance& judge,
                      const model::WeightSource& weights) {
  Verified verified;
  verified.steps = model::check_steps(chain);
  verified.good = report_checks(chain, verified.steps);
  for (std::size_t p = 0; p < chain.instance().phases.size(); ++p) {
    const std::string reason = model::not_finite(chain, p);
    if (reason.empty()) continue;
    print_error(fmt::format("FAILED {}: {}", chain.phase(p).name, reason));
    verified.good = false;
  }
  if (!verified.good || !model::is_small(chain.instance())) return verified;
  verified.whole = model::check_whole(chain, model::as_it_is(chain), judge, weights);
  verified.good = report_whole(chain, verified.whole);
  return verified;
}

}  // namespace rooflane
