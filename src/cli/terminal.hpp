// Output that depends on whether it goes to a terminal: colour, a progress line, notes.
#pragma once

#include <string>
#include <string_view>

namespace rooflane {

// One line to standard error, without control characters.
void print_error(std::string_view text);  // "rooflane: ..."
void print_note(std::string_view text);   // "note: ..."

// The status in colour when standard output is a terminal (and NO_COLOR is not set).
std::string coloured_status(std::string_view status);

// A line on standard error that is overwritten; nothing unless that is a terminal. Messages of the
// above and a signal that ends the program wipe it too; who writes to standard output wipes it
// first.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();  // wipes it
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(std::string_view text);
  void wipe();

 private:
  bool visible_;
};

}  // namespace rooflane
