// Status of a row, with the names of docs/reference.md.
#pragma once

#include <optional>
#include <string_view>

namespace rooflane {

enum class Status {
  passed,
  inaccurate,  // beyond the kernel's bound, within what plain float32 sums may lose
  failed,
  skipped,      // the run chose not to
  unsupported,  // the variant refuses the problem
  timeout,
  build_error,
  runtime_error,
  suspect,  // faster than the strict roof
};

std::string_view name_of(Status status);  // "PASSED"
std::optional<Status> parse_status(std::string_view name);
// True for rows that were timed and count: as peers, and, unless inaccurate, as winners.
bool has_speed(Status status);
// True for what makes the program's exit status 1.
bool is_bad(Status status);

}  // namespace rooflane
