// Which variant serves which step: the chain as it is, swaps to predict and prove, levels.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "model/fuse.hpp"
#include "model/rounds.hpp"

namespace rooflane::model {

// Another variant for a step, or for all steps of a kernel.
struct Change {
  std::string what;  // a step's or a kernel's name
  std::string variant;
};
// "gemm=blas,softmax=scalar". Throws Error(argument).
std::vector<Change> parse_changes(const std::string& text);

// Throws Error: a name that is neither a step nor a kernel of the model, a variant that no such
// kernel has (argument), or that this build or machine lacks (unavailable).
void check_changes(const std::vector<Change>& changes, const Instance& instance,
                   const Catalogue& catalogue);

using Notes = std::function<void(const std::string&)>;

// Plans each step with the variant that `swaps` name for it, else with the first of `preferred`
// that serves it. Throws Error(unavailable) with the reasons where none does.
void plan_chain(Chain& chain, const Catalogue& catalogue, const std::vector<std::string>& preferred,
                const std::vector<Change>& swaps);

// The place in `preferred` of the first variant that serves the call; its size: none does.
std::size_t rank_of(const Call& call, const Catalogue& catalogue,
                    const std::vector<std::string>& preferred, const ChainSettings& settings);

// A fused call is wanted where it costs no better variant: the first of `preferred` that serves the
// call without what is joined serves it with that, too.
Accepts keeping_variants(const Catalogue& catalogue, const std::vector<std::string>& preferred,
                         const ChainSettings& settings);

// For each phase: of every change of a kernel its steps one by one, then all of them; at last all
// changes together. Steps that refuse a variant, or have it already, are noted and left out.
std::vector<std::vector<Swap>> plan_swaps(Chain& chain, const Catalogue& catalogue,
                                          const std::vector<Change>& changes, const Notes& note);

// For each phase one swap a level: every step with the level's variant, where it has none that
// serves it with that of the level before.
std::vector<std::vector<Swap>> plan_levels(Chain& chain, const Catalogue& catalogue,
                                           const std::vector<std::string>& levels);

}  // namespace rooflane::model
