// Fusing in the catalogue. See fusion.hpp.
#include "cli/fusion.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/groups.hpp"
#include "bench/row_assembly.hpp"
#include "core/error.hpp"

namespace rooflane {

// The flag of a kernel with two products; one is the other's gate.
static constexpr std::string_view gate_flag = "gate";

std::vector<std::string> variants_that_fuse(const Catalogue& catalogue,
                                            const std::vector<const Kernel*>& kernels) {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernels) {
    bool any = false;
    for (const CatalogueEntry* entry : catalogue.variants(*kernel)) {
      if (!separate_step(*entry->variant)) continue;
      any = true;
      const bool known = std::find(names.begin(), names.end(), entry->name) != names.end();
      if (!known && !absent_reason(*entry)) names.push_back(entry->name);
    }
    if (!any) {
      throw unavailable_error(
          fmt::format("--fusion: no variant of {} fuses anything in this build", kernel->name));
    }
  }
  return names;
}

BytesOfFusion bytes_of_fusion(const Catalogue& catalogue) {
  return [&catalogue](const Row& row) -> std::optional<FusionBytes> {
    Problem problem = problem_of(row, catalogue);
    const Kernel& kernel = problem.kernel();
    FusionBytes bytes;
    bytes.fused = bytes.separate = kernel.cost(problem).bytes;
    double written = 0;
    for (const TensorSpec& tensor : kernel.tensors(problem)) {
      if (is_written(tensor.role)) written += tensor_bytes(problem, tensor);
    }
    double passes = 0;
    bool gates = false;
    for (const ParamSpec& param : kernel.params) {
      if (param.kind == ParamKind::chain) {
        passes += static_cast<double>(problem.chain(param.name).size());
        problem.set(param.name, 0.0);
      } else if (param.name == gate_flag && problem.flag(param.name)) {
        gates = true;
        problem.set(param.name, 0.0);
      }
    }
    if (passes == 0 && !gates) return std::nullopt;
    bytes.product = kernel.cost(problem).bytes;
    if (gates) {
      // Two products: a pass reads the outputs of both while it writes the last one.
      bytes.product *= 2;
      bytes.separate = bytes.product + 3 * written;
    }
    bytes.separate += 2 * written * passes;
    return bytes;
  };
}

}  // namespace rooflane
