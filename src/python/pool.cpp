// Python's processes contain OpenMP runtimes of others (torch's, scikit-learn's), with settings and
// forks that we do not control. Kernels called from Python therefore run on the library's own pool,
// in every build.
#include "core/thread_pool.hpp"

namespace rooflane {

namespace {

// When the module is loaded, before anybody can make a plan.
[[maybe_unused]] const bool chosen = (set_default_pool(&thread_pool()), true);

}  // namespace

}  // namespace rooflane
