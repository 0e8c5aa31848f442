// The lines of a worker: what is accepted as an answer is written as one that reads back as itself.
#include "measure/worker_protocol.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {
namespace {

using nlohmann::json;

template <class Answer>
void read_as(Answer (*read)(const json&), const json& message) {
  try {
    const std::string line = protocol::line_of(protocol::to_json(read(message)));
    require(protocol::line_of(protocol::to_json(read(json::parse(line)))) == line);
  } catch (const json::exception&) {
    // No such answer: process_worker.cpp says so.
  }
}

}  // namespace

void answers_target(std::string_view input) {
  const json message = json::parse(input, nullptr, false);
  if (!message.is_object()) return;
  read_as(protocol::greeting_from, message);
  read_as(protocol::opened_from, message);
  read_as(protocol::verification_from, message);
  read_as(protocol::calibration_from, message);
  read_as(protocol::samples_from, message);
  read_as(protocol::profile_from, message);
}

}  // namespace rooflane::fuzz
