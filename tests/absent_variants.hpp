// What to install for the variants that a test of every variant does not meet here.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/catalogue.hpp"
#include "skip.hpp"

namespace rooflane::test {

// Debian's packages for a variant that is absent for `reason`; empty where the build was told to do
// without it.
inline std::string packages_of(const std::string& variant, const std::string& reason) {
  if (reason.find(": -D") != std::string::npos || reason.find("needs -D") != std::string::npos) {
    return "";
  }
  const std::string opencl = "ocl-icd-opencl-dev opencl-headers opencl-clhpp-headers";
  if (reason.starts_with("built without OpenCL")) {
    return variant == "clblast" ? "libclblast-dev " + opencl : opencl;
  }
  if (reason.starts_with("no OpenCL device: install")) return "pocl-opencl-icd";
  if (reason.starts_with("no OpenCL device")) return "";  // the driver was left out
  const std::map<std::string, std::string> packages = {{"blas", "libopenblas-openmp-dev"},
                                                       {"blis", "libblis4-openmp"},
                                                       {"clblast", "libclblast-dev"},
                                                       {"onednn", "libdnnl-dev"}};
  const auto found = packages.find(variant);
  return found == packages.end() ? "" : found->second;
}

// A part of the case is skipped for each variant of `kernel` that is absent here; for `only` alone
// where it is named.
inline void skip_absent(const Catalogue& catalogue, const Kernel& kernel,
                        std::string_view only = "") {
  const auto skip = [&](const std::string& variant, const std::string& reason) {
    if (!only.empty() && variant != only) return;
    skip_part(variant + " is absent: " + reason, packages_of(variant, reason));
  };
  for (const CatalogueEntry* entry : catalogue.variants(kernel)) {
    if (const auto reason = absent_reason(*entry)) skip(entry->name, *reason);
  }
  for (const AbsentVariant& absent : catalogue.absent()) {
    if (absent.kernel == kernel.name) skip(absent.variant, absent.reason);
  }
}

}  // namespace rooflane::test
