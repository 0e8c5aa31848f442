// Tables of text: aligned for a terminal, or as Markdown. Cells are plain ASCII; what is printed on
// a terminal fits `terminal_width` columns wherever no word has to be broken for that.
#pragma once

#include <string>
#include <vector>

namespace rooflane {

struct TextTable {
  struct Column {
    std::string title;
    bool right = false;  // numbers are aligned right
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as `columns`
};

inline constexpr std::size_t terminal_width = 120;

// Two spaces between columns, no rulers. Where that is too wide, titles and then cells of
// left-aligned columns go on in the next line, broken after a space or a comma, never inside a word
// or an interval "[0.98, 1.14]".
std::string terminal_table(const TextTable& table);
// A text as lines, broken likewise, the second and later ones indented by two; with the last line's
// end.
std::string wrapped(const std::string& text);
std::string markdown_table(const TextTable& table);
// Text of strangers for a line of Markdown: no tag, link or picture, and no line of its own.
std::string markdown_text(const std::string& text);

}  // namespace rooflane
