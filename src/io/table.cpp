// Tables for terminals and Markdown.
#include "io/table.hpp"

#include <algorithm>
#include <string_view>

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

constexpr std::size_t gap = 2;  // spaces between columns

// Takes from the widest column that stands left, again and again, until all fit. A column below
// `narrowest` would break every word.
void narrow(const TextTable& table, std::vector<std::size_t>& widths) {
  constexpr std::size_t narrowest = 12;
  std::size_t total = gap * (widths.size() - 1);
  for (const std::size_t width : widths) total += width;
  while (total > terminal_width) {
    std::size_t* widest = nullptr;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      if (!table.columns[c].right && (widest == nullptr || widths[c] > *widest))
        widest = &widths[c];
    }
    if (widest == nullptr || *widest <= narrowest) return;
    --*widest;
    --total;
  }
}

// The cell as lines of at most `width`, broken after spaces and commas where there are any.
std::vector<std::string> lines_of(const std::string& cell, std::size_t width) {
  std::vector<std::string> lines;
  std::string rest = cell;
  while (rest.size() > width) {
    std::size_t end = rest.find_last_of(" ,", width - 1);
    end = end == std::string::npos || end == 0 ? width : end + 1;
    std::string line = rest.substr(0, end);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(line);
    rest.erase(0, end);
  }
  lines.push_back(rest);
  return lines;
}

std::string padded(const std::string& cell, std::size_t width, bool right) {
  const std::string space(width - std::min(width, cell.size()), ' ');
  return right ? space + cell : cell + space;
}

std::vector<std::string> titles_of(const TextTable& table) {
  std::vector<std::string> titles;
  for (const auto& column : table.columns) titles.push_back(column.title);
  return titles;
}

// A bar would end a cell.
std::string markdown_cell(const std::string& cell) {
  std::string text;
  for (const char c : markdown_text(cell)) {
    if (c == '|') text += '\\';
    text += c;
  }
  return text;
}

}  // namespace

std::string terminal_table(const TextTable& table) {
  std::vector<std::size_t> widths = widths_of(table);
  narrow(table, widths);
  std::string text;
  const auto add_row = [&](const std::vector<std::string>& cells) {
    std::vector<std::vector<std::string>> columns;
    std::size_t height = 1;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      columns.push_back(lines_of(cells[c], widths[c]));
      height = std::max(height, columns.back().size());
    }
    for (std::size_t i = 0; i < height; ++i) {
      std::string line;
      for (std::size_t c = 0; c < columns.size(); ++c) {
        if (c > 0) line += std::string(gap, ' ');
        line +=
            padded(i < columns[c].size() ? columns[c][i] : "", widths[c], table.columns[c].right);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
  };
  add_row(titles_of(table));
  for (const auto& row : table.rows) add_row(row);
  return text;
}

std::string wrapped(const std::string& text) {
  std::string result;
  std::string_view indent;
  std::string rest = text;
  while (true) {
    const std::string line = lines_of(rest, terminal_width - indent.size()).front();
    result += std::string(indent) + line + "\n";
    if (line.size() >= rest.size()) return result;
    rest.erase(0, line.size());
    rest.erase(0, rest.find_first_not_of(' '));
    indent = "  ";
  }
}

std::string markdown_text(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '<') {
      result += "&lt;";
    } else if (c == '\n' || c == '\r') {
      result += ' ';
    } else {
      const bool ends_link = c == ']' && (next == '(' || next == ':');
      if (c == '\\' || ends_link) result += '\\';
      result += c;
    }
  }
  return result;
}

std::string markdown_table(const TextTable& table) {
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    text += "|";
    for (const std::string& cell : cells) text += " " + markdown_cell(cell) + " |";
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
