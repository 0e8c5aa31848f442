// The model's arithmetic. What each kernel needs: the cost function in its reference.cpp.
#include "measure/model.hpp"

#include <algorithm>

#include "measure/roofline.hpp"

namespace rooflane {

std::optional<double> model_ns(const Problem& problem, const Ceilings& ceilings,
                               std::string_view math, std::string_view isa, int threads,
                               std::string_view device, CacheMode cache, std::string_view path) {
  const std::optional<Roof> roof =
      roof_of(problem, ceilings, math, isa, threads, device, cache, path);
  // The scalar variant's name for what it runs at; as in roof_of it is held against the best.
  if (isa == "baseline") isa = {};
  const std::optional<RateCeiling> rates = find_rates(ceilings, isa, threads, device);
  if (!roof || !rates || rates->unfused_gflops <= 0 || rates->exp_g_s <= 0) return std::nullopt;

  const Cost cost = problem.kernel().cost(problem);
  const double fma_ns = cost.fma_flops / roof->peak_gflops;
  const double unfused_ns = cost.unfused_flops / rates->unfused_gflops;
  const double exp_ns = cost.exps / rates->exp_g_s;
  // Threads are counted on CPUs only, OpenCL's among them.
  const bool shares_ports = rates->threads > 0;
  const double arithmetic_ns =
      shares_ports ? fma_ns + unfused_ns + exp_ns : std::max({fma_ns, unfused_ns, exp_ns});
  return std::max(roof->least_ns, arithmetic_ns);
}

}  // namespace rooflane
