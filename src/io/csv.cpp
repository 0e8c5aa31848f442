// CSV writer and reader by the table of columns.
#include "io/csv.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "io/files.hpp"

namespace rooflane {
namespace {

constexpr std::int64_t newest_schema = 1;
// The first five are in every samples file.
const std::vector<std::string> sample_columns = {"row",      "launch",     "round",     "ns",
                                                 "probe_ns", "h2d_ns",     "kernel_ns", "d2h_ns",
                                                 "e2e_ns",   "disturbance"};
constexpr std::size_t needed_sample_columns = 5;

std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string text = "\"";
  for (const char c : cell) {
    if (c == '"') text += '"';
    text += c;
  }
  return text + '"';
}

struct Record {
  std::int64_t line = 1;  // where it starts, from 1
  std::vector<std::string> cells;
};

// RFC 4180: cells may be quoted, quotes inside are doubled, quoted cells may hold line ends.
std::vector<Record> parse_records(std::string_view text, const std::string& name) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // spreadsheets add this mark
  std::vector<Record> records;
  std::int64_t line = 1;
  std::size_t i = 0;
  while (i < text.size()) {
    Record record{line, {}};
    bool more_cells = true;
    while (more_cells) {
      std::string cell;
      if (i < text.size() && text[i] == '"') {
        ++i;
        while (true) {
          if (i >= text.size()) {
            throw argument_error(
                fmt::format("{}: line {}: a quote is never closed", name, record.line));
          }
          if (text[i] == '"') {
            if (i + 1 >= text.size() || text[i + 1] != '"') break;
            ++i;
          }
          if (text[i] == '\n') ++line;
          cell += text[i++];
        }
        ++i;
      } else {
        while (i < text.size() && text[i] != ',' && text[i] != '\n' && text[i] != '\r') {
          cell += text[i++];
        }
      }
      record.cells.push_back(std::move(cell));
      more_cells = i < text.size() && text[i] == ',';
      if (more_cells) ++i;
    }
    if (i < text.size() && text[i] == '\r') ++i;
    if (i < text.size()) {
      if (text[i] != '\n') {
        throw argument_error(
            fmt::format("{}: line {}: text after a closing quote", name, record.line));
      }
      ++i;
      ++line;
    }
    const bool blank = record.cells.size() == 1 && record.cells[0].empty();
    if (!blank) records.push_back(std::move(record));
  }
  return records;
}

void require_cells(const Record& record, std::size_t count, const std::string& name) {
  if (record.cells.size() != count) {
    throw argument_error(fmt::format("{}: line {} has {} cells, the header has {}", name,
                                     record.line, record.cells.size(), count));
  }
}

// Without half a line at the end, as a killed run leaves it. A last line that lacks nothing but its
// end, as editors leave it, is kept.
std::string_view without_half_line(std::string_view text, const std::string& name) {
  const std::string_view whole = whole_records(text);
  if (whole.empty() || whole.size() == text.size()) return text;
  const std::string_view header = text.substr(0, text.find('\n'));
  const std::size_t columns = parse_records(header, name).at(0).cells.size();
  const auto is_row = [&](std::string_view line) {
    try {
      return parse_records(line, name).at(0).cells.size() >= columns;
    } catch (const Error&) {
      return false;  // it ends within quotes
    }
  };
  // Where rows follow, a quote was never closed: the line was not cut off.
  const std::string_view rest = text.substr(whole.size());
  const std::vector<std::string_view> lines = split(rest, '\n');
  return is_row(rest) || std::any_of(lines.begin() + 1, lines.end(), is_row) ? text : whole;
}

}  // namespace

std::string_view whole_records(std::string_view text) {
  std::size_t end = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] == '\n' && !quoted) end = i + 1;
  }
  return text.substr(0, end);
}

std::string csv_header() {
  std::vector<std::string> names;
  for (const Column& column : columns()) names.emplace_back(column.name);
  return join(names, ",") + "\n";
}

std::string csv_line(const Row& row) {
  std::vector<std::string> cells;
  for (const Column& column : columns()) cells.push_back(quoted(cell_text(row, column)));
  return join(cells, ",") + "\n";
}

LineFile::LineFile(const std::string& path, Open how)
    : path_(path),
      descriptor_(::open(path.c_str(),
                         O_WRONLY | O_CREAT | O_CLOEXEC | (how == Open::anew ? O_TRUNC : O_APPEND),
                         0666)) {
  if (descriptor_ < 0) {
    throw argument_error(fmt::format("'{}' cannot be written: {}", path, std::strerror(errno)));
  }
}

LineFile::~LineFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

LineFile& LineFile::operator=(LineFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void LineFile::append(std::string_view lines) {
  const off_t end = ::lseek(descriptor_, 0, SEEK_END);  // -1: a pipe
  try {
    write_all(descriptor_, lines, path_);
  } catch (const Error&) {
    // A full disk takes half of a line.
    if (end >= 0) static_cast<void>(!::ftruncate(descriptor_, end));
    throw;
  }
}

CsvWriter::CsvWriter(const std::string& path, Open how) : file_(path, how) {
  if (how == Open::anew) file_.append(csv_header());
}

void CsvWriter::append(const Row& row) { file_.append(csv_line(row)); }

std::string samples_path(const std::string& csv_path) { return csv_path + ".samples.csv"; }

SamplesWriter::SamplesWriter(const std::string& path, Open how) : file_(path, how) {
  if (how == Open::anew) file_.append(samples_header());
}

void SamplesWriter::append(const Sample& sample) { file_.append(sample_line(sample)); }

std::string samples_header() { return join(sample_columns, ",") + "\n"; }

std::string sample_line(const Sample& sample) {
  std::vector<std::string> cells = {std::to_string(sample.row), std::to_string(sample.launch),
                                    std::to_string(sample.round), print_real(sample.ns)};
  for (const auto& value :
       {sample.probe_ns, sample.h2d_ns, sample.kernel_ns, sample.d2h_ns, sample.e2e_ns}) {
    cells.push_back(value ? print_real(*value) : std::string());
  }
  cells.push_back(quoted(sample.disturbance));
  return join(cells, ",") + "\n";
}

std::vector<Row> parse_csv(std::string_view text, const std::string& name) {
  const std::vector<Record> records = parse_records(text, name);
  if (records.empty()) throw argument_error(fmt::format("{}: the file is empty", name));
  const Record& header = records.front();

  std::vector<const Column*> found(header.cells.size(), nullptr);
  for (const Column& column : columns()) {
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (header.cells[i] == column.name) found[i] = &column;
    }
  }
  for (const std::string_view needed : {"schema_version", "kernel", "variant", "shape", "status"}) {
    bool present = false;
    for (const Column* column : found) present = present || (column && column->name == needed);
    if (!present) {
      throw argument_error(
          fmt::format("{}: not a CSV of `rooflane bench`: column {} is missing", name, needed));
    }
  }

  std::vector<Row> rows;
  for (std::size_t r = 1; r < records.size(); ++r) {
    require_cells(records[r], found.size(), name);
    Row row;
    try {
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (found[i]) set_cell(row, *found[i], records[r].cells[i]);
      }
    } catch (const Error& error) {
      throw Error(error.kind(),
                  fmt::format("{}: line {}: {}", name, records[r].line, error.what()));
    }
    if (row.schema_version < 1 || row.schema_version > newest_schema) {
      throw argument_error(fmt::format("{}: line {}: unknown schema_version {}; allowed: 1", name,
                                       records[r].line, row.schema_version));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Row> read_csv(const std::string& path) {
  const std::string text = read_text_file(path);
  return parse_csv(without_half_line(text, path), path);
}

std::vector<Sample> read_samples(const std::string& path) {
  const std::string text = read_text_file(path);
  // A killed run may leave half a line: it holds no sample.
  const std::size_t whole = text.rfind('\n') + 1;
  const std::vector<Record> records = parse_records(std::string_view(text).substr(0, whole), path);
  std::vector<std::size_t> position(sample_columns.size(), std::string::npos);
  for (std::size_t c = 0; !records.empty() && c < sample_columns.size(); ++c) {
    const auto& names = records.front().cells;
    const auto found = std::find(names.begin(), names.end(), sample_columns[c]);
    if (found != names.end()) position[c] = static_cast<std::size_t>(found - names.begin());
  }
  for (std::size_t c = 0; c < needed_sample_columns; ++c) {
    if (position[c] == std::string::npos) {
      throw argument_error(
          fmt::format("{}: not a samples file: column {} is missing", path, sample_columns[c]));
    }
  }
  std::vector<Sample> samples;
  for (std::size_t r = 1; r < records.size(); ++r) {
    const Record& record = records[r];
    require_cells(record, records.front().cells.size(), path);
    const auto cell = [&](std::size_t column) {
      return position[column] == std::string::npos ? std::string() : record.cells[position[column]];
    };
    bool good = true;
    const auto integer = [&](std::size_t column) {
      const auto value = parse_integer(cell(column));
      good = good && value;
      return value.value_or(0);
    };
    const auto real = [&](std::size_t column) {
      const auto value = parse_real(cell(column));
      good = good && (value || cell(column).empty());
      return value;
    };
    Sample sample{integer(0), integer(1), integer(2), real(3).value_or(0),
                  real(4),    real(5),    real(6),    real(7),
                  real(8),    cell(9)};
    if (!good || cell(3).empty()) {
      throw argument_error(
          fmt::format("{}: line {} has a cell that is not a number", path, record.line));
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace rooflane
