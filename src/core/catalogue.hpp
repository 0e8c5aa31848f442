// Everything that exists: kernels, variants, and what this build lacks. Built from the generated
// list (kernels/meson.build); tests and plugins add to a copy of it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "variant.hpp"

namespace rooflane {

// What a program was built from, as the rows' columns have it. Empty where it is not known.
struct Build {
  std::string commit, dirty, compiler;
};

// A variant under the name that users see. `library` is set for one that calls a library of its
// own (blas-mkl).
// An entry with a `worker` is foreign: it runs only in a process of that command, which speaks the
// worker protocol (measure/worker.hpp) and calls the variant `worker_variant`; its `variant` is a
// description, kept alive by `owned`, and its `plan` throws.
struct CatalogueEntry {
  std::string name;
  const Variant* variant;
  std::string library = {};
  std::vector<std::string> worker = {};
  std::string worker_variant = {};
  std::shared_ptr<const Variant> owned = {};
  std::vector<std::string> option = {};  // the argument that brought it, option and value
  Build build = {};                      // of a foreign entry
  bool foreign() const { return !worker.empty(); }
};

// Why this machine lacks what an entry needs, a library or a device; nothing when it can run it.
// Opens the library or the drivers. The problems that a variant refuses: its `unsupported`.
std::optional<std::string> absent_reason(const CatalogueEntry& entry);

// A variant that this build lacks, and why.
struct AbsentVariant {
  std::string kernel;
  std::string variant;
  std::string reason;
};

class Catalogue {
 public:
  static Catalogue built_in();

  void add(const Kernel& kernel);
  void add(const CatalogueEntry& entry);  // replaces an entry of the same kernel and name
  void add(const AbsentVariant& absent);

  std::span<const Kernel* const> kernels() const { return kernels_; }
  std::vector<const CatalogueEntry*> variants(const Kernel& kernel) const;
  const std::vector<CatalogueEntry>& entries() const { return entries_; }
  const std::vector<AbsentVariant>& absent() const { return absent_; }
  std::vector<std::string> kernel_names() const;
  std::vector<std::string> variant_names() const;  // present and absent, each once

  // Throw Error with the nearest valid name; a known variant that this build lacks is
  // ErrorKind::unavailable with the reason.
  const Kernel& kernel(std::string_view name) const;
  const CatalogueEntry& variant(const Kernel& kernel, std::string_view name) const;
  // The name of a math that one of the kernels has; throws as above.
  std::string math(std::string_view name) const;

 private:
  std::vector<const Kernel*> kernels_;
  std::vector<CatalogueEntry> entries_;
  std::vector<AbsentVariant> absent_;
};

}  // namespace rooflane
