// From a request's line to the worker's call and its answer. See worker_protocol.hpp.
#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "core/json_text.hpp"
#include "measure/worker_protocol.hpp"

namespace rooflane::protocol {

namespace {

using nlohmann::json;

bool lost_devices() {
  const auto backends = all_backends();
  return std::any_of(backends.begin(), backends.end(), [](const Backend* backend) {
    return backend->devices != nullptr && backend->devices->lost();
  });
}

template <class Integer>
Integer number(const json& request, const char* name) {
  return integer_from<Integer>(request.at(name));
}

json answer_of(Worker& worker, const Catalogue& catalogue, const json& request) {
  const std::string op = request.at("op");
  if (op == "open") {
    return to_json(worker.open(parse_case(request.at("case").get<std::string>(), catalogue)));
  }
  if (op == "verify") return to_json(worker.verify(request.at("reference")));
  if (op == "reproduce") {
    return reproduced(worker.reproduces(number<std::uint64_t>(request, "output_hash"),
                                        request.value("follow", false)));
  }
  if (op == "calibrate") return to_json(worker.calibrate());
  if (op == "sample")
    return to_json(worker.sample(number<int>(request, "n"), number<std::int64_t>(request, "runs")));
  if (op == "phases") {
    return to_json(
        worker.profile({number<int>(request, "threads"), number<std::int64_t>(request, "runs"),
                        number<std::int64_t>(request, "events")}));
  }
  if (op == "close") {
    worker.close();
    return {{"ok", true}};
  }
  return failure(Status::runtime_error, "unknown op '" + op + "'");
}

}  // namespace

json answer(Worker& worker, const Catalogue& catalogue, const std::string& line) {
  json reply;
  try {
    reply = answer_of(worker, catalogue, parse_json(line));
  } catch (const WorkerError& error) {
    reply = failure(error.status(), error.what());
  } catch (const Error& error) {
    const bool absent = error.kind() == ErrorKind::unavailable;
    reply = failure(absent ? Status::unsupported : Status::runtime_error, error.what());
  } catch (const std::exception& error) {
    reply = failure(Status::runtime_error, error.what());
  }
  if (!reply.at("ok").get<bool>() && lost_devices()) reply["restart"] = true;
  return reply;
}

}  // namespace rooflane::protocol
