// The files of a run: FILE.csv with the rows, FILE.csv.samples.csv with every sample,
// FILE.csv.phases.csv if phases are recorded, and, while the run is unfinished, FILE.csv.resume, to
// continue an interrupted run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/groups.hpp"
#include "io/phases_file.hpp"

namespace rooflane {

std::string resume_path(const std::string& csv_path);

// What an interrupted run left.
struct Interrupted {
  bool complete = false;  // nothing is left to do; only `earlier` is filled
  std::string run_id;
  Ceilings ceilings;
  Earlier earlier;
};

// Reads the files beside `csv_path`, leaves half lines and rows of unfinished groups out. Nothing
// when there is nothing to go on with: no such file. Throws Error(argument) that names the first
// difference when the files are of another request, build or machine, or are no such files.
std::optional<Interrupted> read_interrupted(const std::string& csv_path,
                                            const BenchOptions& options, const Suite& suite);

// Writes the files. They are opened, and so truncated, when the run begins: until then it may still
// be refused. With `interrupted` they are first brought to exactly what that holds, then appended
// to. Every line is written at once with one call, so that a kill loses no finished sample.
class RunFiles : public RowSink {
 public:
  RunFiles(std::string csv_path, const BenchOptions& options, const Suite& suite,
           const Interrupted* interrupted);
  void on_begin(const std::string& run_id, const Ceilings& ceilings) override;
  void on_calibration(std::int64_t row, std::int64_t runs_per_sample) override;
  void on_failure(std::int64_t row, Status status, const std::string& reason) override;
  void on_sample(const Sample& sample) override;
  void on_phases(std::int64_t number, const Row& row, const PhaseProfile& profile) override;
  void on_row(const Row& row) override;
  // The run is complete: there is nothing to resume.
  void finish();

 private:
  void begin_phases(bool goes_on);

  std::string path_;
  const BenchOptions& options_;
  const Suite& suite_;
  const Interrupted* interrupted_;
  std::optional<CsvWriter> rows_;
  std::optional<SamplesWriter> samples_;
  std::optional<PhasesWriter> phases_;
  std::optional<LineFile> resume_;
};

}  // namespace rooflane
