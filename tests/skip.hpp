// Test cases that lack a device or a package. main.cpp counts them, says at the end what is missing
// and what to install, and ends with 77 (skipped) when no case ran.
#pragma once

#include <string>

namespace rooflane::test {

// `if (!require_or_skip(...)) return;` at the head of a case: unless `condition` holds, the case
// counts as skipped. `packages` are Debian's; empty where none helps.
bool require_or_skip(bool condition, const std::string& missing, const std::string& packages);

// A part of the case that runs is skipped; whether the case passes is up to the rest. Told once a
// case for the same `missing`.
void skip_part(const std::string& missing, const std::string& packages);

}  // namespace rooflane::test
