// Tables for terminals and Markdown.
#include "io/table.hpp"

#include <algorithm>
#include <string_view>

namespace rooflane {
namespace {

constexpr std::size_t gap = 2;  // spaces between columns
// Brackets up to this long hold an interval, "[0.98, 1.14]", which stays whole.
constexpr std::size_t longest_interval = 24;

// What a line break must not divide: words, each with the spaces or the comma behind it, and
// intervals.
std::vector<std::string> pieces_of(const std::string& text) {
  std::vector<std::string> pieces;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') {
      const std::size_t end = text.find(']', i);
      if (end != std::string::npos && end - i < longest_interval) i = end;
    }
    const bool at_end = i + 1 == text.size();
    if (!at_end && ((text[i] != ' ' && text[i] != ',') || text[i + 1] == ' ')) continue;
    pieces.push_back(text.substr(begin, i + 1 - begin));
    begin = i + 1;
  }
  return pieces;
}

std::string without_end_spaces(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::size_t longest_piece(const std::string& text) {
  std::size_t longest = 0;
  for (const std::string& piece : pieces_of(text)) {
    longest = std::max(longest, without_end_spaces(piece).size());
  }
  return longest;
}

// As many pieces a line as `width` holds, at least one: a longer word sticks out.
std::vector<std::string> lines_of(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  for (const std::string& piece : pieces_of(text)) {
    if (!lines.back().empty() && without_end_spaces(lines.back() + piece).size() > width) {
      lines.back() = without_end_spaces(lines.back());
      lines.emplace_back();
    }
    lines.back() += piece;
  }
  return lines;
}

// Takes from the widest column that is above its least width, again and again, until all fit.
void narrow(std::vector<std::size_t>& widths, const std::vector<std::size_t>& least) {
  std::size_t total = gap * (widths.size() - 1);
  for (const std::size_t width : widths) total += width;
  for (; total > terminal_width; --total) {
    std::size_t* widest = nullptr;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      if (widths[c] > least[c] && (widest == nullptr || widths[c] > *widest)) widest = &widths[c];
    }
    if (widest == nullptr) return;
    --*widest;
  }
}

// Titles go on in a second line before cells do, which costs a line per row. Numbers never do.
std::vector<std::size_t> widths_of(const TextTable& table) {
  std::vector<std::size_t> widths, of_cells, of_words;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const auto& [title, right] = table.columns[c];
    std::size_t cells = longest_piece(title), words = cells;
    for (const auto& row : table.rows) {
      cells = std::max(cells, row[c].size());
      words = std::max(words, right ? row[c].size() : longest_piece(row[c]));
    }
    widths.push_back(std::max(title.size(), cells));
    of_cells.push_back(cells);
    of_words.push_back(words);
  }
  narrow(widths, of_cells);
  narrow(widths, of_words);
  return widths;
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
  const std::vector<std::size_t> widths = widths_of(table);
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
  constexpr std::string_view indent = "  ";
  const bool fits = text.size() <= terminal_width;
  std::string result;
  for (const std::string& line : lines_of(text, terminal_width - (fits ? 0 : indent.size()))) {
    if (!result.empty()) result += indent;
    result += line + "\n";
  }
  return result;
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
