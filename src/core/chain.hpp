// Chains: words joined by + in an order that matters, each at most once ("bias+gelu"), and the
// number that stands for one in a problem.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rooflane {

struct ParamSpec;

// So is the empty chain written.
inline constexpr std::string_view empty_chain = "none";

// The words' places in param.words, in the chain's order; nothing where a number stands for no
// chain.
std::optional<std::vector<std::size_t>> chain_places(const ParamSpec& param, double value);
// The number of a chain. Throws Error for an unknown word, naming the nearest, and for one that
// occurs twice.
double parse_chain(const ParamSpec& param, std::string_view text);
std::string print_chain(const ParamSpec& param, double value);

}  // namespace rooflane
