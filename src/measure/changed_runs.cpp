// See changed_runs.hpp.
#include "measure/changed_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "core/json_text.hpp"
#include "core/machine.hpp"

namespace rooflane {

namespace {

using nlohmann::json;

[[noreturn]] void out_of_range(const char* field) {
  throw json::out_of_range::create(401, fmt::format("{} is out of range", field), nullptr);
}

std::int64_t index_below(const json& change, const char* field, std::int64_t end) {
  const auto index = integer_from<std::int64_t>(change.at(field));
  if (index < 0 || index >= end) out_of_range(field);
  return index;
}

std::vector<std::byte> bytes_from(const std::string& hex) {
  std::vector<std::byte> bytes;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    out_of_range("bytes");
  };
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

}  // namespace

ChangedRuns::ChangedRuns(const Case& c)
    : case_(c), operands_(c.problem, c.inputs(), machine().physical_cores) {}

std::string ChangedRuns::defect(const json& changes) {
  const std::vector<TensorSpec> tensors = case_.problem.kernel().tensors(case_.problem);
  const auto named = [&](const json& name, bool written) -> const TensorSpec& {
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorSpec& tensor) {
      return name == tensor.name && is_written(tensor.role) == written && tensor.dtype->block <= 1;
    });
    if (found == tensors.end()) out_of_range("tensor");
    return *found;
  };
  std::string reason;
  for (const json& change : changes) {
    const TensorSpec& input = named(change.at("tensor"), false);
    const TensorSpec& output = named(change.at("output"), true);
    const View& from = operands_.all().at(input.name);
    const View& to = operands_.all().at(output.name);
    const std::size_t size = from.dtype->bytes(1);
    auto* const data = static_cast<std::byte*>(from.data);
    const auto element = static_cast<std::size_t>(index_below(change, "element", from.elements()));
    const auto other = static_cast<std::size_t>(index_below(change, "from", from.elements()));
    std::memmove(data + element * size, data + other * size, size);
    const std::vector<std::byte> stored = bytes_from(change.at("bytes"));
    Region region;
    region.rows = {index_below(change, "row", to.rows())};
    const std::int64_t first = index_below(change, "first", to.cols());
    region.cols.resize(stored.size() / to.dtype->bytes(1));
    if (first + static_cast<std::int64_t>(region.cols.size()) > to.cols()) out_of_range("bytes");
    std::iota(region.cols.begin(), region.cols.end(), first);
    const std::int64_t row = region.rows.front();
    if (reason.empty() && !right_elements(case_.problem, operands_.inputs(), case_.inputs(),
                                          case_.math_record(), output, std::move(region), stored)) {
      const bool kept = change.at("same").get<bool>();
      reason =
          fmt::format("{}: after {} had changed, unannounced, a timed run gave {} row {} of {}",
                      kept ? "replay" : "recognises-verification", input.name,
                      kept ? "what it gave before in" : "a wrong", row, output.name);
    }
  }
  operands_.restore_inputs();
  return reason;
}

}  // namespace rooflane
