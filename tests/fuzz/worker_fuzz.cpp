// Everything that a worker's process says, from its greeting to its end: the input is what it
// prints. Whatever that is, each call of it gives an answer or a WorkerError.
#include "measure/worker.hpp"
#include "tests/fuzz/input_file.hpp"

namespace rooflane::fuzz {
namespace {

template <class Call>
void ask(Call call) {
  try {
    call();
  } catch (const WorkerError& error) {
    require(error.status() != Status::passed);
  }
}

}  // namespace

void worker_target(std::string_view input) {
  static const Catalogue catalogue = Catalogue::built_in();
  static const Case asked = parse_case("softmax:rows=2,cols=3 variant=scalar", catalogue);
  const InputFile file(input);
  ProcessSettings settings;
  settings.argv = {"/bin/cat", file.path()};
  settings.timeout = std::chrono::seconds(5);
  settings.memory_bytes = std::size_t{1} << 30;
  const std::unique_ptr<Worker> worker = process_worker(settings);
  ask([&] { worker->open(asked); });
  if (worker->process() < 0) return;
  ask([&] { worker->verify(""); });
  ask([&] { worker->calibrate(); });
  ask([&] { worker->sample(2, 1); });
  ask([&] { worker->profile({}); });
  ask([&] { worker->close(); });
}

}  // namespace rooflane::fuzz
