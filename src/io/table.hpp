// Tables of text: aligned for a terminal, or as Markdown. Cells are plain ASCII.
#pragma once

#include <string>
#include <vector>

namespace rooflane {

struct TextTable {
  struct Column {
    std::string title;
    bool right = false;  // numbers stand right
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as `columns`
};

std::string terminal_table(const TextTable& table);  // two spaces between columns, no rulers
std::string markdown_table(const TextTable& table);

}  // namespace rooflane
