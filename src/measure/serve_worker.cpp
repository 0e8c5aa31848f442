// The answering end of the worker protocol (worker.hpp): `rooflane worker`. Lines in and out;
// worker_requests.cpp handles requests, and a local worker does all the work.
#include <fcntl.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include "core/error.hpp"
#include "measure/worker_protocol.hpp"

namespace rooflane {

namespace {

using nlohmann::json;

bool write_line(int file, const json& message) {
  const std::string line = protocol::line_of(message) + "\n";
  for (std::size_t written = 0; written < line.size();) {
    const ssize_t count = write(file, line.data() + written, line.size() - written);
    if (count <= 0) return false;
    written += static_cast<std::size_t>(count);
  }
  return true;
}

Greeting greeting(const Catalogue& catalogue, const Build& build) {
  Greeting greeting{"rooflane", ROOFLANE_VERSION, "", std::vector<Offer>(), build};
  for (const CatalogueEntry& entry : catalogue.entries()) {
    const Variant& variant = *entry.variant;
    Offer offer{variant.kernel->name, entry.name, "", variant.threads, variant.backend->name, true};
    for (const Tunable& tunable : variant.tunables) {
      offer.tunables.push_back({tunable.name, tunable.meaning, tunable.least, tunable.most});
    }
    greeting.variants->push_back(std::move(offer));
  }
  for (const AbsentVariant& absent : catalogue.absent()) {
    Offer offer;
    offer.kernel = absent.kernel;
    offer.variant = absent.variant;
    offer.absent = absent.reason;
    greeting.variants->push_back(std::move(offer));
  }
  greeting.draws_distributions = true;
  return greeting;
}

}  // namespace

int serve_worker(const Catalogue& catalogue, const Build& build) {
  // Whatever libraries print on standard output must not reach the protocol.
  const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
  const std::unique_ptr<Worker> worker = local_worker(catalogue);
  if (!write_line(out, protocol::to_json(greeting(catalogue, build)))) return 1;
  for (std::string line; std::getline(std::cin, line);) {
    if (!write_line(out, protocol::answer(*worker, catalogue, line))) return 1;
  }
  return 0;
}

int refuse_to_serve(const std::string& error) {
  write_line(STDOUT_FILENO, protocol::to_json(Greeting{
                                "rooflane", ROOFLANE_VERSION, error, std::nullopt, {}, {}}));
  return static_cast<int>(ErrorKind::argument);
}

}  // namespace rooflane
