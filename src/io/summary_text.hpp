// Prints a roofline summary, problem by problem, for a terminal or as Markdown. io/size_classes.hpp
// has the answer over all problems.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/summary.hpp"
#include "io/table.hpp"

namespace rooflane {

// "12.34 us"; four significant digits.
std::string time_text(const std::optional<double>& ns);
// "1.20x [1.16, 1.25]".
std::string ratio_text(const std::optional<Ratio>& ratio);

// Which rows a table shows: without those that lose by far, or all.
enum class Shown { close, all };

// Rows with a time; those beyond three times the fastest's are folded away, unless they are the
// best peer, tied or of a wrong variant.
TextTable summary_table(const SummaryGroup& group, Shown shown);
std::string summary_title(const SummaryGroup& group);

std::string terminal_summary(std::span<const SummaryGroup> groups, Shown shown = Shown::close);
std::string markdown_summary(std::span<const SummaryGroup> groups, Shown shown = Shown::close);

}  // namespace rooflane
