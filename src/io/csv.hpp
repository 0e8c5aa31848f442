// Rows as CSV: quoting per RFC 4180, lines ended by LF (the reader takes CRLF too), one header.
// Also the samples file. io/json.hpp has the JSON.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/row.hpp"

namespace rooflane {

std::string csv_header();              // with the line end
std::string csv_line(const Row& row);  // with the line end

enum class Open { anew, at_its_end };  // the first one truncates

// Appends whole lines to a file descriptor, each with one write, so that a killed run leaves whole
// rows behind.
class LineFile {
 public:
  LineFile() = default;
  // Throws Error(argument) when the file cannot be written.
  LineFile(const std::string& path, Open how);
  ~LineFile();
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&& other) noexcept;
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Throws Error when the disk is full; the file holds whole lines then too.
  void append(std::string_view lines);

 private:
  std::string path_;
  int descriptor_ = -1;
};

class CsvWriter {
 public:
  explicit CsvWriter(const std::string& path, Open how = Open::anew);  // new: with header
  void append(const Row& row);

 private:
  LineFile file_;
};

// One measured time. `row` counts the rows of the CSV from 0, `launch` from 1, `round` from 0
// within a launch; `ns` is the mean of one run; `probe_ns` the probe of the round. Device times are
// of one upload, run and download beside the sample. `disturbance`: what interfered (`steal`,
// `preempted`, `probe`, `unsettled`, joined by '+'); empty: nothing was seen.
struct Sample {
  std::int64_t row = 0;
  std::int64_t launch = 1;
  std::int64_t round = 0;
  double ns = 0;
  std::optional<double> probe_ns;
  std::optional<double> h2d_ns = {}, kernel_ns = {}, d2h_ns = {}, e2e_ns = {};
  std::string disturbance = {};
};

std::string samples_header();                           // with the line end
std::string sample_line(const Sample& sample);          // with the line end
std::string samples_path(const std::string& csv_path);  // FILE.samples.csv

class SamplesWriter {
 public:
  explicit SamplesWriter(const std::string& path, Open how = Open::anew);
  void append(const Sample& sample);

 private:
  LineFile file_;
};

// Rows of a file. Columns are found by name: unknown ones are ignored, absent ones stay empty.
// Throws Error(argument) naming file and line: missing file, no Rooflane CSV, a newer schema, a bad
// cell, a line with too few or too many cells. read_csv leaves half a line at the end out, as a
// killed run leaves it.
std::vector<Row> read_csv(const std::string& path);
std::vector<Row> parse_csv(std::string_view text, const std::string& name);
// Up to the last line end that is outside quotes: without the half record that a kill may have
// left.
std::string_view whole_records(std::string_view text);

// Columns are found by name; those of device times and disturbance may be absent. Half a line at
// the end, as a killed run leaves it, is left out.
std::vector<Sample> read_samples(const std::string& path);

}  // namespace rooflane
