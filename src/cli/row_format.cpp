// Rows for Bencher and asv. See row_format.hpp.
#include "cli/row_format.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/build_facts.hpp"
#include "cli/doctor_findings.hpp"
#include "cli/terminal.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "io/asv.hpp"
#include "io/files.hpp"
#include "io/json.hpp"
#include "io/tracking.hpp"

namespace rooflane {
namespace {

bool is_whole_hash(const std::string& text) {
  constexpr std::size_t sha1 = 40, sha256 = 64;
  return (text.size() == sha1 || text.size() == sha256) &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// A folder that exists or can be made.
void require_folder(const std::string& folder) {
  std::filesystem::path existing = std::filesystem::absolute(folder);
  while (!std::filesystem::exists(existing)) existing = existing.parent_path();
  if (std::filesystem::is_directory(existing) && ::access(existing.c_str(), W_OK) == 0) return;
  throw argument_error(
      fmt::format("--output '{}': {} is not a writable folder", folder, existing.string()));
}

// What all rows have in common, which asv keeps by it.
std::string common_value(const TrackedRows& tracked, const char* what, std::string Row::*member) {
  std::set<std::string> values;
  for (const TrackedRow& row : tracked.rows) values.insert(row.measured->row.*member);
  if (values.size() == 1) return *values.begin();
  throw argument_error(
      fmt::format("--format asv: the rows have several {}s: {}; give the files one by one", what,
                  join({values.begin(), values.end()}, ", ")));
}

std::string commit_of(const TrackedRows& tracked, const std::string& given) {
  const std::string commit = common_value(tracked, "commit", &Row::build_commit);
  if (!given.empty()) return given;
  if (is_whole_hash(build_hash) && commit == build_commit) return build_hash;
  throw argument_error(
      fmt::format("--format asv: asv needs the whole hash of commit '{}'; give --commit HASH, as "
                  "`git rev-parse` prints it",
                  commit));
}

// Facts of this machine only where the rows are of this machine.
AsvTarget asv_target(const TrackedRows& tracked, const std::string& folder,
                     const std::string& given_commit) {
  const std::string cpu = common_value(tracked, "machine", &Row::cpu);
  common_value(tracked, "compiler", &Row::compiler);
  AsvTarget target = {folder, commit_of(tracked, given_commit), plain_slug(cpu), {{"cpu", cpu}}};
  const Machine& here = machine();
  if (common_value(tracked, "machine", &Row::host) != here.host) return target;
  const std::size_t last = here.os.rfind(' ');
  target.machine = machine_slug();
  target.facts = {{"arch", here.os.substr(last + 1)},
                  {"cpu", cpu},
                  {"num_cpu", std::to_string(here.logical_cpus)},
                  {"os", here.os.substr(0, last)},
                  {"ram", std::to_string(here.memory_bytes)}};
  return target;
}

}  // namespace

void RowFormat::declare(Arguments& arguments, const std::string& plain) {
  arguments.option(
      "--format", plain + "|bmf|asv",
      "write rows that passed in the Bencher Metric Format, or as results of airspeed velocity");
  arguments.option("--output", "PATH",
                   "for bmf, the file (default: standard output, without the usual output); for "
                   "asv, the folder results_dir of its asv.conf.json");
  arguments.option("--commit", "HASH",
                   "for asv, the whole hash of the commit; default: that of this build");
}

RowFormat::RowFormat(const Arguments& arguments, const std::string& plain)
    : format_(arguments.value("--format").value_or(plain)),
      output_(arguments.value("--output").value_or("")),
      commit_(arguments.value("--commit").value_or("")) {
  const std::vector<std::string> allowed = {plain, "bmf", "asv"};
  if (std::find(allowed.begin(), allowed.end(), format_) == allowed.end()) {
    throw argument_error("--format: " + unknown_name("value", format_, allowed));
  }
  if (!output_.empty() && format_ == plain) {
    throw argument_error("--output needs --format bmf or asv");
  }
  if (!commit_.empty() && format_ != "asv") {
    throw argument_error("--commit needs --format asv, which keeps rows by commit");
  }
  if (!commit_.empty() && !is_whole_hash(commit_)) {
    throw argument_error(fmt::format(
        "--commit '{}': allowed is a whole hash, as `git rev-parse HEAD` prints it", commit_));
  }
  if (format_ == "asv" && output_.empty()) {
    throw argument_error("--format asv needs --output FOLDER: results_dir of its asv.conf.json");
  }
  if (format_ == "asv") require_folder(output_);
  if (format_ == "bmf" && !output_.empty()) {
    try {
      require_writable(output_);
    } catch (const Error& error) {
      throw Error(error.kind(), std::string("--output: ") + error.what());
    }
  }
  if (format_ == plain) format_.clear();
}

void RowFormat::write(std::span<const MeasuredRow> rows) const {
  const bool asv = format_ == "asv";
  const TrackedRows tracked = tracked_rows(rows, /*builds=*/!asv);
  for (const std::string& line : tracked.left_out) print_note(line);
  if (asv) {
    if (!tracked.rows.empty()) write_asv(asv_target(tracked, output_, commit_), tracked);
  } else if (output_.empty()) {
    std::cout << json_text(bmf_json(tracked));
  } else {
    write_json(output_, bmf_json(tracked));
  }
}

}  // namespace rooflane
