// Writing the files of a run and reading them back. See run_files.hpp.
//
// FILE.csv.resume is JSON lines. The first holds what must not change between the parts of a run,
// and its ceilings; the others {"row":3,"runs_per_sample":40} and
// {"row":3,"status":"FAILED","reason":"..."}.
#include "bench/run_files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "io/files.hpp"
#include "io/resume_request.hpp"
#include "measure/ceilings_json.hpp"

namespace rooflane {

namespace {

using nlohmann::json;

// What must be equal for samples to be added to those of an earlier part.
json request_json(const BenchOptions& options, const Suite& suite) {
  json cases = json::array();
  for (const GroupCase* planned : suite.cases()) cases.push_back(planned->measured.text());
  return {{"build", options.stamp.build_commit + " " + options.stamp.git_dirty},
          {"cpu", machine().cpu},
          {"placement", machine().placement},
          {"launches", options.launches},
          {"interval", options.interval_pct},
          {"min_time", options.min_time},
          {"max_time", options.max_time},
          {"cases", cases}};
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// Without the half line that a kill may have left.
std::string whole_lines(const std::string& path) {
  std::string text = exists(path) ? read_text_file(path) : std::string();
  text.resize(text.rfind('\n') + 1);
  return text;
}

// A row has the position at which its case was planned.
bool is_row_of(const Row& row, const Case& c) {
  return row.kernel == c.problem.kernel().name && row.shape == c.problem.shape() &&
         row.variant == c.variant && row.threads.value_or(0) == c.threads &&
         row.cache == name_of(c.cache) && row.math == c.math;
}

void require_planned(const std::string& path, const std::vector<Row>& rows, const Suite& suite) {
  const std::vector<const GroupCase*> planned = suite.cases();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i < planned.size() && is_row_of(rows[i], planned[i]->measured)) continue;
    refuse_resume(path, fmt::format("is of another request: row {} is {}:{} {}, planned is {}", i,
                                    rows[i].kernel, rows[i].shape, rows[i].variant,
                                    i < planned.size() ? planned[i]->measured.text() : "nothing"));
  }
}

void keep_whole_groups(std::vector<Row>& rows, const Suite& suite) {
  std::size_t whole = 0;
  for (const Group& group : suite.groups) {
    const auto end = static_cast<std::size_t>(group.cases.back().row) + 1;
    if (end > rows.size()) break;
    whole = end;
  }
  rows.resize(whole);
}

void replace(const std::string& path, const std::string& text) {
  ReplacedFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace

std::string resume_path(const std::string& csv_path) { return csv_path + ".resume"; }

std::optional<Interrupted> read_interrupted(const std::string& csv_path,
                                            const BenchOptions& options, const Suite& suite) {
  Interrupted found;
  const std::string text = whole_lines(resume_path(csv_path));
  const std::string written = exists(csv_path) ? read_text_file(csv_path) : std::string();
  const std::string_view rows = whole_records(written);
  if (!rows.empty()) {
    found.earlier.rows = parse_csv(rows, csv_path);
    require_planned(csv_path, found.earlier.rows, suite);
  }
  const std::string samples = samples_path(csv_path);
  if (exists(samples) && !whole_lines(samples).empty()) {
    found.earlier.samples = read_samples(samples);
  }
  if (text.empty()) {
    if (found.earlier.rows.empty()) return std::nullopt;  // ended before anything was measured
    found.complete = found.earlier.rows.size() == suite.cases().size();
    if (!found.complete) refuse_resume(csv_path, "has no '.resume' beside it and too few rows");
    return found;
  }
  try {
    bool first = true;
    for (const std::string_view line : split(text, '\n')) {
      if (line.empty()) continue;
      const json entry = json::parse(line);
      if (std::exchange(first, false)) {
        require_same_request(
            resume_path(csv_path), entry.at("request"), request_json(options, suite),
            [](const auto&, std::size_t i, const json& was, const json& is) {
              return fmt::format("is of another request: case {} was {}, now it is {}", i,
                                 was.get<std::string>(), is.get<std::string>());
            });
        found.run_id = entry.at("run_id");
        found.ceilings = entry.at("ceilings").get<Ceilings>();
        continue;
      }
      const std::int64_t row = entry.at("row");
      if (entry.contains("runs_per_sample")) {
        found.earlier.runs_per_sample[row] = entry.at("runs_per_sample");
      } else {
        const auto status = parse_status(entry.at("status").get<std::string>());
        if (!status) refuse_resume(resume_path(csv_path), "holds an unknown status");
        found.earlier.failures[row] = {*status, entry.at("reason")};
      }
    }
  } catch (const json::exception& error) {
    refuse_resume(resume_path(csv_path), fmt::format("does not parse: {}", error.what()));
  }
  keep_whole_groups(found.earlier.rows, suite);
  return found;
}

RunFiles::RunFiles(std::string csv_path, const BenchOptions& options, const Suite& suite,
                   const Interrupted* interrupted)
    : path_(std::move(csv_path)), options_(options), suite_(suite), interrupted_(interrupted) {}

void RunFiles::on_begin(const std::string& run_id, const Ceilings& ceilings) {
  const bool goes_on = interrupted_ != nullptr;
  // Devices and pipes take rows, but nothing can be resumed from them.
  const bool regular = !exists(path_) || std::filesystem::is_regular_file(path_);
  if (goes_on) {
    std::string rows = csv_header();
    for (const Row& row : interrupted_->earlier.rows) rows += csv_line(row);
    replace(path_, rows);
    const std::string samples = whole_lines(samples_path(path_));
    if (!samples.empty()) replace(samples_path(path_), samples);
    replace(resume_path(path_), whole_lines(resume_path(path_)));
  } else if (regular) {
    // In this order: at no moment is there a '.resume' beside files of another run.
    ::unlink(resume_path(path_).c_str());
    static_cast<void>(CsvWriter(path_, Open::anew));
    static_cast<void>(SamplesWriter(samples_path(path_), Open::anew));
    replace(resume_path(path_), json{{"run_id", run_id},
                                     {"request", request_json(options_, suite_)},
                                     {"ceilings", ceilings}}
                                        .dump() +
                                    "\n");
  }
  const bool samples_there = exists(samples_path(path_));
  rows_.emplace(path_, regular ? Open::at_its_end : Open::anew);
  samples_.emplace(samples_path(path_), regular && samples_there ? Open::at_its_end : Open::anew);
  if (regular) resume_.emplace(resume_path(path_), Open::at_its_end);
  begin_phases(goes_on);
}

// The finished rows of an interrupted run keep their phases; the others are recorded again.
void RunFiles::begin_phases(bool goes_on) {
  const std::string path = phases_path(path_);
  std::map<std::int64_t, PhaseProfile> earlier;
  if (goes_on && options_.phases && exists(path)) earlier = read_phases(path);
  // What another run left would be taken for this one's.
  if (!goes_on || options_.phases) ::unlink(path.c_str());
  if (!options_.phases) return;
  phases_.emplace(path);
  const auto rows =
      goes_on ? static_cast<std::int64_t>(interrupted_->earlier.rows.size()) : std::int64_t{0};
  for (const auto& [row, profile] : earlier) {
    if (row < rows) phases_->append(row, profile);
  }
}

void RunFiles::on_calibration(std::int64_t row, std::int64_t runs_per_sample) {
  if (resume_) {
    resume_->append(json{{"row", row}, {"runs_per_sample", runs_per_sample}}.dump() + "\n");
  }
}

void RunFiles::on_failure(std::int64_t row, Status status, const std::string& reason) {
  if (!resume_) return;
  const json entry = {{"row", row}, {"status", name_of(status)}, {"reason", reason}};
  resume_->append(entry.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

void RunFiles::on_phases(std::int64_t number, const Row&, const PhaseProfile& profile) {
  if (phases_) phases_->append(number, profile);
}

void RunFiles::on_sample(const Sample& sample) { samples_->append(sample); }
void RunFiles::on_row(const Row& row) { rows_->append(row); }

void RunFiles::finish() {
  if (resume_) ::unlink(resume_path(path_).c_str());
  resume_.reset();
}

}  // namespace rooflane
