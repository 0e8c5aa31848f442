// Finding what foreign workers can run. See foreign.hpp.
#include "measure/foreign.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane {

namespace {

// A variant's record with what it points to.
struct Description {
  std::string name, backend_name;
  Backend backend;  // where this build has none of the name
  std::vector<OfferedTunable> offered;
  std::vector<Tunable> tunables;
  Variant variant;
};

std::unique_ptr<Plan> no_plan(const Problem&, const Tuning&, const Environment&, const Operands&) {
  throw unavailable_error("a foreign variant runs in a worker process of its own only");
}

std::shared_ptr<const Variant> describe(const Kernel& kernel, const Offer& offer,
                                        const std::string& name) {
  auto description = std::make_shared<Description>();
  description->name = name;
  description->backend_name = offer.backend;
  description->backend = {.name = description->backend_name.c_str()};
  const auto ours = all_backends();
  const auto known = std::find_if(ours.begin(), ours.end(), [&](const Backend* backend) {
    return backend->name == offer.backend;
  });
  description->offered = offer.tunables;
  for (const OfferedTunable& tunable : description->offered) {
    description->tunables.push_back(
        {tunable.name.c_str(), tunable.meaning.c_str(), tunable.least, tunable.most});
  }
  description->variant = {.name = description->name.c_str(),
                          .kernel = &kernel,
                          .backend = known != ours.end() ? *known : &description->backend,
                          .threads = offer.threads,
                          .tunables = description->tunables,
                          .unsupported = nullptr,
                          .tunings = no_tunings,
                          .plan = no_plan};
  return {description, &description->variant};
}

// A greeting that says what the worker can run. Throws Error(argument) with the reason.
Greeting ask_for_greeting(const ForeignWorker& worker, std::chrono::duration<double> timeout) {
  ProcessSettings settings;
  settings.argv = worker.command;
  settings.timeout = timeout;
  Greeting greeting;
  try {
    greeting = greeting_of(settings);
  } catch (const WorkerError& error) {
    throw argument_error(error.status() == Status::timeout
                             ? fmt::format("no greeting within {:g} s", timeout.count())
                             : error.what());
  }
  if (!greeting.variants) {
    throw argument_error(fmt::format("{} {} is too old: it does not say what it can run",
                                     greeting.name, greeting.version));
  }
  return greeting;
}

}  // namespace

std::vector<std::string> add_foreign(Catalogue& catalogue, const ForeignWorker& worker,
                                     std::chrono::duration<double> timeout) {
  Greeting greeting;
  try {
    greeting = ask_for_greeting(worker, timeout);
  } catch (const Error& error) {
    const std::string reason = fmt::format("{}: {}", join(worker.option, " "), error.what());
    if (worker.fallback.empty()) throw argument_error(reason);
    for (const Kernel* kernel : catalogue.kernels()) {
      catalogue.add(AbsentVariant{kernel->name, worker.fallback, reason});
    }
    return {worker.fallback};
  }
  std::vector<std::string> added;
  for (const Offer& offer : *greeting.variants) {
    const std::string name = worker.name(offer);
    if (name.empty()) continue;
    const auto kernels = catalogue.kernels();
    const auto kernel = std::find_if(kernels.begin(), kernels.end(),
                                     [&](const Kernel* k) { return k->name == offer.kernel; });
    if (kernel == kernels.end()) continue;  // another build's kernel that this one lacks
    if (std::find(added.begin(), added.end(), name) == added.end()) added.push_back(name);
    if (!offer.absent.empty()) {
      catalogue.add(AbsentVariant{offer.kernel, name, offer.absent});
      continue;
    }
    const std::shared_ptr<const Variant> variant = describe(**kernel, offer, name);
    catalogue.add(CatalogueEntry{.name = name,
                                 .variant = variant.get(),
                                 .worker = worker.command,
                                 .worker_variant = offer.variant,
                                 .owned = variant,
                                 .option = worker.option,
                                 .build = greeting.build});
  }
  return added;
}

}  // namespace rooflane
