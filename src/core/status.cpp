// Status names. See status.hpp.
#include "status.hpp"

#include <array>
#include <utility>

namespace rooflane {

namespace {

constexpr std::array<std::pair<Status, std::string_view>, 9> names = {{
    {Status::passed, "PASSED"},
    {Status::inaccurate, "INACCURATE"},
    {Status::failed, "FAILED"},
    {Status::skipped, "SKIPPED"},
    {Status::unsupported, "UNSUPPORTED"},
    {Status::timeout, "TIMEOUT"},
    {Status::build_error, "BUILD_ERROR"},
    {Status::runtime_error, "RUNTIME_ERROR"},
    {Status::suspect, "SUSPECT"},
}};

}  // namespace

std::string_view name_of(Status status) {
  for (const auto& [value, name] : names) {
    if (value == status) return name;
  }
  return {};
}

std::optional<Status> parse_status(std::string_view name) {
  for (const auto& [value, text] : names) {
    if (text == name) return value;
  }
  return std::nullopt;
}

bool has_speed(Status status) { return status == Status::passed || status == Status::inaccurate; }

bool is_bad(Status status) {
  return !has_speed(status) && status != Status::skipped && status != Status::unsupported;
}

}  // namespace rooflane
