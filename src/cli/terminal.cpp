// Terminal output.
#include "cli/terminal.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

namespace rooflane {
namespace {

// File names and arguments may hold anything; a message stays one line.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    line += byte < 32 || byte == 127 ? ' ' : c;
  }
  return line;
}

std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

void print_error(std::string_view text) { std::cerr << "rooflane: " << one_line(text) << "\n"; }

void print_note(std::string_view text) { std::cerr << "note: " << one_line(text) << "\n"; }

std::string coloured_status(std::string_view status) {
  static const bool colour = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  if (!colour) return std::string(status);
  const bool chosen = status == "UNSUPPORTED" || status == "SKIPPED" || status == "INACCURATE";
  const int code = status == "PASSED" ? 32 : chosen ? 33 : 31;  // green, yellow, red
  return fmt::format("\033[{}m{}\033[0m", code, status);
}

ProgressLine::ProgressLine() : visible_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { wipe(); }

void ProgressLine::show(std::string_view text) {
  if (!visible_) return;
  std::cerr << "\r\033[K" << one_line(text).substr(0, terminal_columns() - 1) << std::flush;
  dirty_ = true;
}

void ProgressLine::wipe() {
  if (!dirty_) return;
  std::cerr << "\r\033[K" << std::flush;
  dirty_ = false;
}

}  // namespace rooflane
