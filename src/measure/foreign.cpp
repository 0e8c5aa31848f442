// Finding what foreign workers can run. See foreign.hpp.
#include "measure/foreign.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane {

namespace {

// A variant's record with the text that it points to.
struct Description {
  std::string name, backend;
  Variant variant;
};

std::unique_ptr<Plan> no_plan(const Problem&, const Tuning&, const Environment&, const Operands&) {
  throw unavailable_error("a foreign variant runs in a worker process of its own only");
}

std::shared_ptr<const Variant> describe(const Kernel& kernel, const Offer& offer,
                                        const std::string& name) {
  auto description = std::make_shared<Description>(Description{name, offer.backend, {}});
  description->variant = {.name = description->name.c_str(),
                          .kernel = &kernel,
                          .backend = description->backend.c_str(),
                          .threads = offer.threads,
                          .tunables = {},
                          .unsupported = nullptr,
                          .tunings = no_tunings,
                          .plan = no_plan};
  return {description, &description->variant};
}

Greeting ask_for_greeting(const ForeignWorker& worker, std::chrono::duration<double> timeout) {
  ProcessSettings settings;
  settings.argv = worker.command;
  settings.timeout = timeout;
  return greeting_of(settings);
}

}  // namespace

std::vector<std::string> add_foreign(Catalogue& catalogue, const ForeignWorker& worker,
                                     std::chrono::duration<double> timeout) {
  const std::string option = join(worker.option, " ");
  Greeting greeting;
  try {
    greeting = ask_for_greeting(worker, timeout);
  } catch (const WorkerError& error) {
    const std::string reason = error.status() == Status::timeout
                                   ? fmt::format("no greeting within {:g} s", timeout.count())
                                   : error.what();
    throw argument_error(fmt::format("{}: {}", option, reason));
  }
  if (!greeting.variants) {
    throw argument_error(fmt::format("{}: {} {} is too old: it does not say what it can run",
                                     option, greeting.name, greeting.version));
  }
  std::vector<std::string> added;
  for (const Offer& offer : *greeting.variants) {
    const std::string name = worker.name(offer);
    if (name.empty()) continue;
    const auto kernels = catalogue.kernels();
    const auto kernel = std::find_if(kernels.begin(), kernels.end(),
                                     [&](const Kernel* k) { return k->name == offer.kernel; });
    if (kernel == kernels.end()) continue;  // another build's kernel that this one lacks
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
    if (std::find(added.begin(), added.end(), name) == added.end()) added.push_back(name);
  }
  return added;
}

}  // namespace rooflane
