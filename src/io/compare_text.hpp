// Prints a comparison, for a terminal or as Markdown for a pull request.
#pragma once

#include <span>
#include <string>

#include "io/compare.hpp"

namespace rooflane {

// "old.csv  commit 1a2b3c (dirty)  gcc 12.2  2026-01-02T03:04:05Z", one line; several commits or
// compilers in a file are all named.
std::string run_line(const std::string& name, std::span<const MeasuredRow> rows);

// "24 rows: 1 SLOWER, 20 SAME, 3 UNSURE"; verdicts that no row has are left out.
std::string counts_line(const Comparison& comparison);

// `header`: the lines that say what is compared. The Markdown shows counts and changed rows, and
// folds the rest.
std::string terminal_comparison(const Comparison& comparison, std::span<const std::string> header);
std::string markdown_comparison(const Comparison& comparison, std::span<const std::string> header);

}  // namespace rooflane
