// `rooflane worker`: runs cases for another process over the protocol of measure/worker.hpp.
#include "measure/worker.hpp"

#include "backends/plugin.hpp"
#include "cli/build_facts.hpp"
#include "cli/verbs.hpp"
#include "cli/workers.hpp"
#include "core/thread_pool.hpp"
#include "jail/jailed_plugin.hpp"

namespace rooflane {
namespace {

void declare_worker(Arguments& arguments) {
  declare_plugins(arguments);
  arguments.option("--judged", "FILE", "a judged kernel, as `judge` describes it to its workers");
  arguments.examples(
      {"printf '{\"op\":\"open\",\"case\":\"softmax:rows=4,cols=8 variant=scalar\"}"
       "\\n' | rooflane worker"});
}

int run_worker(const Arguments& arguments, Catalogue& catalogue, const CliSettings&) {
  bind_default_pool();
  try {
    for (const PluginArgument& given : read_plugins(arguments, catalogue)) {
      plugin::load(catalogue, given.name, given.path);
    }
    if (const auto judged = arguments.value("--judged")) {
      jail::load_jailed(catalogue, jail::read_jailed_plugin(*judged));
    }
  } catch (const Error& error) {
    return refuse_to_serve(error.what());
  }
  return serve_worker(catalogue, {build_commit, build_dirty, build_compiler});
}

}  // namespace

const Verb worker_verb = {"worker", "runs cases for another process: JSON lines on standard input",
                          declare_worker, run_worker};

}  // namespace rooflane
