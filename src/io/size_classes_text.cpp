// The answer as a table and as sentences. See size_classes.hpp.
#include <fmt/format.h>

#include <map>

#include "io/size_classes.hpp"
#include "io/summary_text.hpp"

namespace rooflane {
namespace {

std::string place_of(const ClassKey& key) {
  return key.threads ? fmt::format("{} thread{}", *key.threads, *key.threads == 1 ? "" : "s")
                     : "device";
}

// The kernel, with math and cache mode where those are not the usual ones.
std::string kernel_of(const ClassKey& key) {
  std::string text = key.kernel;
  if (!key.math.empty() && key.math != "fp32") text += " " + key.math;
  if (!key.cache.empty() && key.cache != "warm") text += " " + key.cache;
  return text;
}

std::string share_text(const SizeClass& one) {
  if (!one.roof) return "";
  return one.problems == 1 ? fmt::format("{:.0f}", one.roof->value())
                           : fmt::format("{:.0f} ({:.0f})", one.roof->value(), *one.least_roof);
}

std::string fastest_in(const SizeClass& one) {
  std::string text = fmt::format("{} of {}", one.wins, one.problems);
  if (one.ties > 0) text += fmt::format(", {} tied", one.ties);
  if (one.undecided > 0) text += fmt::format(", {} open", one.undecided);
  return text;
}

TextTable table_of(std::span<const SizeClass> classes) {
  TextTable table{{{"kernel", false},
                   {"size", false},
                   {"at", false},
                   {"use", false},
                   {"fastest in", false},
                   {"x next [95 %]", true},
                   {"x best peer [95 %]", true},
                   {"% of roof (least)", true}},
                  {}};
  for (const SizeClass& one : classes) {
    table.rows.push_back({kernel_of(one.key), one.key.label.empty() ? "-" : one.key.label,
                          place_of(one.key), one.use.empty() ? "undecided" : one.use,
                          fastest_in(one), ratio_text(one.over_next), ratio_text(one.over_peer),
                          share_text(one)});
  }
  return table;
}

// "gemm L2, 2 threads: instead of hwy use onednn (2 problems, up to 1.31x): m=1,n=2,k=3; ..."
std::vector<std::string> instead_lines(const SizeClass& one) {
  constexpr std::size_t most_shapes = 3;
  std::vector<std::string> order;
  std::map<std::string, std::vector<const Instead*>> by_variant;
  for (const Instead& instead : one.instead) {
    auto& those = by_variant[instead.row->variant];
    if (those.empty()) order.push_back(instead.row->variant);
    those.push_back(&instead);
  }
  std::vector<std::string> lines;
  for (const std::string& variant : order) {
    std::vector<std::string> shapes;
    for (const Instead* instead : by_variant[variant]) {
      if (shapes.size() == most_shapes) break;
      shapes.push_back(
          instead->group->shape +
          (instead->faster ? fmt::format(" ({:.2f}x)", instead->faster->value()) : ""));
    }
    const std::size_t more = by_variant[variant].size() - shapes.size();
    lines.push_back(fmt::format("{} {}, {}: {} instead of {} at {}{}", kernel_of(one.key),
                                one.key.label, place_of(one.key), variant, one.use,
                                fmt::join(shapes, "; "),
                                more > 0 ? fmt::format("; and {} more", more) : ""));
  }
  return lines;
}

}  // namespace

std::string class_sentence(const SizeClass& one) {
  std::string text =
      fmt::format("{} {}, {}: ", kernel_of(one.key), one.key.label, place_of(one.key));
  if (one.use.empty()) return text + "undecided";
  text += fmt::format("use {}, fastest in {}", one.use, fastest_in(one));
  if (one.over_next) text += fmt::format(", {} the next", ratio_text(one.over_next));
  if (one.over_peer) text += fmt::format(", {} the best peer", ratio_text(one.over_peer));
  if (one.roof) text += fmt::format(", at {:.0f} % of the roof", one.roof->value());
  return text;
}

std::string terminal_classes(std::span<const SizeClass> classes) {
  if (classes.empty()) return "";
  std::string text = terminal_table(table_of(classes)) + wrapped(size_principle);
  for (const SizeClass& one : classes) {
    for (const std::string& line : instead_lines(one)) text += wrapped(line);
  }
  return text;
}

std::string markdown_classes(std::span<const SizeClass> classes) {
  if (classes.empty()) return "";
  std::string text = markdown_table(table_of(classes)) + "\n- " + size_principle + "\n";
  for (const SizeClass& one : classes) {
    for (const std::string& line : instead_lines(one)) text += "- " + markdown_text(line) + "\n";
  }
  return text;
}

}  // namespace rooflane
