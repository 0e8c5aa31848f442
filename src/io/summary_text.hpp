// How a roofline summary looks: on a terminal, in Markdown, and one line per kernel in words.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/summary.hpp"
#include "io/table.hpp"

namespace rooflane {

// "12.34 us"; four significant digits.
std::string time_text(const std::optional<double>& ns);

TextTable summary_table(const SummaryGroup& group);
std::string summary_title(const SummaryGroup& group);
// One sentence per kernel, in order of appearance.
std::vector<std::string> summary_sentences(std::span<const SummaryGroup> groups);

std::string terminal_summary(std::span<const SummaryGroup> groups);
std::string markdown_summary(std::span<const SummaryGroup> groups);

}  // namespace rooflane
