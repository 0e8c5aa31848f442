// `rooflane worker`: runs cases for another process over the protocol of measure/worker.hpp.
#include "measure/worker.hpp"

#include "cli/options.hpp"
#include "cli/verbs.hpp"

namespace rooflane {
namespace {

void declare(Arguments& arguments) {
  arguments.examples(
      {"printf '{\"op\":\"open\",\"case\":\"softmax:rows=4,cols=8 variant=scalar\"}"
       "\\n' | rooflane worker"});
}

int run(const Arguments&, Catalogue& catalogue, const CliSettings&) {
  return serve_worker(catalogue);
}

}  // namespace

const Verb worker_verb = {"worker", "runs cases for another process: JSON lines on standard input",
                          declare, run};

}  // namespace rooflane
