// Terminal output.
#include "cli/terminal.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
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

// There is one standard error, hence one progress line on it.
std::atomic<bool> dirty = false;
constexpr std::string_view wipe_sequence = "\r\033[K";

// Calls nothing that a signal handler may not call.
void wipe_line() {
  if (!dirty.exchange(false)) return;
  static_cast<void>(!::write(STDERR_FILENO, wipe_sequence.data(), wipe_sequence.size()));
}

// The default action, which ends the program, comes after it.
void wipe_and_end(int signal) {
  wipe_line();
  static_cast<void>(::raise(signal));
}

}  // namespace

void print_error(std::string_view text) {
  wipe_line();
  std::cerr << "rooflane: " << one_line(text) << "\n";
}

void print_note(std::string_view text) {
  wipe_line();
  std::cerr << "note: " << one_line(text) << "\n";
}

std::string coloured_status(std::string_view status) {
  static const bool colour = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  if (!colour) return std::string(status);
  const bool chosen = status == "UNSUPPORTED" || status == "SKIPPED" || status == "INACCURATE";
  const int code = status == "PASSED" ? 32 : chosen ? 33 : 31;  // green, yellow, red
  return fmt::format("\033[{}m{}\033[0m", code, status);
}

ProgressLine::ProgressLine() : visible_(::isatty(STDERR_FILENO) == 1) {
  if (!visible_) return;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action = {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = wipe_and_end;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(signal, &action, nullptr);
  }
}

ProgressLine::~ProgressLine() { wipe(); }

void ProgressLine::show(std::string_view text) {
  if (!visible_) return;
  dirty = true;
  std::cerr << wipe_sequence << one_line(text).substr(0, terminal_columns() - 1) << std::flush;
}

void ProgressLine::wipe() { wipe_line(); }

}  // namespace rooflane
