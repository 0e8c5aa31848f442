// `--format bmf|asv` of bench and roofline: rows for programs that track speed over time, written
// to standard output instead of the text, or to `--output`. io/tracking.hpp and io/asv.hpp define
// the formats.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "io/measured_rows.hpp"

namespace rooflane {

class RowFormat {
 public:
  // `plain` is the format without the option.
  static void declare(Arguments& arguments, const std::string& plain);
  // The format that the arguments ask for. Throws Error(argument): an unknown format, an output
  // without one or that cannot be written, a commit that is not a whole hash.
  RowFormat(const Arguments& arguments, const std::string& plain);

  bool asked() const { return !format_.empty(); }
  // Nothing else may be written to standard output.
  bool replaces_text() const { return asked() && output_.empty(); }
  // Rows that did not pass are left out, with a note. Throws Error(argument).
  void write(std::span<const MeasuredRow> rows) const;

 private:
  std::string format_, output_, commit_;
};

}  // namespace rooflane
