// Tables for terminals and Markdown.
#include "io/table.hpp"

#include <algorithm>

namespace rooflane {
namespace {

std::vector<std::size_t> widths_of(const TextTable& table) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t width = table.columns[c].title.size();
    for (const auto& row : table.rows) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  return widths;
}

std::string padded(const std::string& cell, std::size_t width, bool right) {
  const std::string space(width - cell.size(), ' ');
  return right ? space + cell : cell + space;
}

std::vector<std::string> titles_of(const TextTable& table) {
  std::vector<std::string> titles;
  for (const auto& column : table.columns) titles.push_back(column.title);
  return titles;
}

// A bar would end a Markdown cell.
std::string escaped(const std::string& cell) {
  std::string text;
  for (const char c : cell) {
    if (c == '|') text += '\\';
    text += c;
  }
  return text;
}

}  // namespace

std::string terminal_table(const TextTable& table) {
  const std::vector<std::size_t> widths = widths_of(table);
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (c > 0) line += "  ";
      line += padded(cells[c], widths[c], table.columns[c].right);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line(titles_of(table));
  for (const auto& row : table.rows) add_line(row);
  return text;
}

std::string markdown_table(const TextTable& table) {
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    text += "|";
    for (const std::string& cell : cells) text += " " + escaped(cell) + " |";
    text += "\n";
  };
  add_line(titles_of(table));
  text += "|";
  for (const auto& column : table.columns) text += column.right ? " ---: |" : " --- |";
  text += "\n";
  for (const auto& row : table.rows) add_line(row);
  return text;
}

}  // namespace rooflane
