// Rows as CSV and JSON, samples, and files that are replaced only when complete.
#include <doctest/doctest.h>

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <regex>
#include <set>

#include "core/error.hpp"
#include "core/temporary_folder.hpp"
#include "core/text.hpp"
#include "io/csv.hpp"
#include "io/files.hpp"
#include "io/json.hpp"
#include "io/output_lock.hpp"
#include "io/table.hpp"
#include "io/tracking.hpp"

namespace rooflane {
namespace {

// docs/reference.md, "Columns of the CSV".
constexpr const char* contract_header =
    "schema_version,run_id,test_time,build_commit,git_dirty,compiler,host,cpu,isa,threads,affinity,"
    "backend,library,device,driver,kernel,variant,tuning,math,dtype,shape,preset,seed,cache,timer,"
    "launch,status,reason,err_metric,err_value,err_threshold,max_abs_err,n_samples,runs_per_sample,"
    "min_ns,p20_ns,p50_ns,p80_ns,p99_ns,mean_ns,stdev_ns,noise_pct,flops,exps,bytes,gflops,gb_s,ai,"
    "peak_gflops,peak_gb_s,roof_gflops,roof_pct,roof_pct_lo,roof_pct_hi,roof_level,bound,plan_ns,"
    "h2d_ns,kernel_ns,d2h_ns,e2e_ns,workspace_bytes,packed_bytes,peak_rss_bytes,"
    "model_ns,model_pct,interval_pct,stop,n_disturbed,disturbance,"
    "empty_kernel_ns,tuning_source,step,calls,share_pct,path,group_s,placement,distribution\n";

// Every column holds something that a careless writer or reader would spoil.
Row filled_row() {
  Row row;
  std::int64_t n = 1;
  for (const Column& column : columns()) {
    if (std::string_view(column.name) == "schema_version") continue;
    if (std::holds_alternative<std::string Row::*>(column.member)) {
      set_cell(row, column, std::string(column.name) + ", \"quoted\"\r\nnext line");
    } else if (std::holds_alternative<std::optional<double> Row::*>(column.member)) {
      set_cell(row, column, "0.1");
      row.*std::get<std::optional<double> Row::*>(column.member) = 1.0 / 3 * static_cast<double>(n);
    } else {
      set_cell(row, column, std::to_string(9007199254740993 + n));
    }
    ++n;
  }
  return row;
}

void check_equal(const Row& x, const Row& y) {
  for (const Column& column : columns()) {
    CHECK_MESSAGE(cell_text(x, column) == cell_text(y, column), column.name);
  }
}

std::string error_of(const std::string& text) {
  try {
    parse_csv(text, "rows.csv");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::argument);
    return error.what();
  }
  return "no error";
}

TEST_CASE("the header is the contract's, to the letter") { CHECK(csv_header() == contract_header); }

TEST_CASE("a row survives the way through CSV in every column") {
  const Row row = filled_row();
  const std::vector<Row> read = parse_csv(csv_header() + csv_line(row) + csv_line(Row{}), "x");
  REQUIRE(read.size() == 2);
  check_equal(read[0], row);
  check_equal(read[1], Row{});
}

TEST_CASE("an empty cell is no zero") {
  const std::vector<Row> read = parse_csv(csv_header() + csv_line(Row{}), "x");
  CHECK_FALSE(read[0].threads);
  CHECK_FALSE(read[0].p50_ns);
}

TEST_CASE("numbers are in their shortest form and round-trip exactly") {
  Row row;
  row.p50_ns = 0.1;
  row.min_ns = 1e300;
  row.flops = 2147483648.0;
  const std::string line = csv_line(row);
  CHECK(line.find(",0.1,") != std::string::npos);
  CHECK(line.find(",2147483648,") != std::string::npos);
  CHECK(*parse_csv(csv_header() + line, "x")[0].min_ns == 1e300);
}

TEST_CASE(
    "the reader finds columns by name, takes CRLF, a byte order mark and a missing last end") {
  const std::string text =
      "\xEF\xBB\xBFstatus,later,shape,variant,kernel,schema_version,p50_ns\r\n"
      "PASSED,?,\"m=1,n=1,k=1\",hwy,gemm,1,12.5";
  const std::vector<Row> rows = parse_csv(text, "x");
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].shape == "m=1,n=1,k=1");
  CHECK(*rows[0].p50_ns == 12.5);
}

TEST_CASE("what is no CSV of rows is refused with file and line") {
  CHECK(error_of("") == "rows.csv: the file is empty");
  CHECK(error_of("a,b\n1,2\n").find("column schema_version is missing") != std::string::npos);
  const std::string header = "schema_version,kernel,variant,shape,status,p50_ns\n";
  CHECK(error_of(header + "1,gemm,hwy,s,PASSED\n") ==
        "rows.csv: line 2 has 5 cells, the header has 6");
  CHECK(error_of(header + "1,gemm,hwy,s,PASSED,fast\n") ==
        "rows.csv: line 2: column p50_ns contains 'fast', which is not a number");
  CHECK(error_of(header + "7,gemm,hwy,s,PASSED,1\n").find("schema_version 7") != std::string::npos);
  CHECK(error_of(header + "1,\"gemm,hwy,s,PASSED,1\n").find("never closed") != std::string::npos);
  CHECK(error_of(header + "1,\"gemm\"x,hwy,s,PASSED,1\n").find("line 2") != std::string::npos);
  CHECK_THROWS_AS(read_csv("/nonexistent/rows.csv"), Error);
}

TEST_CASE("appended rows and samples are in the file at once") {
  const TemporaryFolder folder;
  const std::string path = folder / "rows.csv";
  CsvWriter rows(path);
  CHECK(read_text_file(path) == contract_header);
  rows.append(filled_row());
  CHECK(read_csv(path).size() == 1);

  SamplesWriter samples(samples_path(path));
  samples.append({3, 1, 2, 12.5, 1000.25});
  samples.append({4, 1, 2, 13, std::nullopt});
  samples.append({5, 3, 2, 14, 1, 10, 11, 12, 13, "steal+probe"});
  CHECK(read_text_file(samples_path(path)) ==
        "row,launch,round,ns,probe_ns,h2d_ns,kernel_ns,d2h_ns,e2e_ns,disturbance\n"
        "3,1,2,12.5,1000.25,,,,,\n4,1,2,13,,,,,,\n5,3,2,14,1,10,11,12,13,steal+probe\n");
  std::vector<Sample> read = read_samples(samples_path(path));
  REQUIRE(read.size() == 3);
  CHECK(read[2].launch == 3);
  CHECK(*read[2].h2d_ns == 10);
  CHECK(*read[2].e2e_ns == 13);
  CHECK(read[2].disturbance == "steal+probe");
  CHECK_FALSE(read[1].e2e_ns);

  // New samples are appended. Half a line, as a kill leaves it, is not a sample.
  SamplesWriter(samples_path(path), Open::at_its_end).append({6, 1, 0, 15, 1});
  LineFile(samples_path(path), Open::at_its_end).append("7,1,0,1");
  read = read_samples(samples_path(path));
  REQUIRE(read.size() == 4);
  CHECK(read[3].row == 6);
  CHECK(read[0].row == 3);
  CHECK(read[0].ns == 12.5);
  CHECK(*read[0].probe_ns == 1000.25);
  CHECK_FALSE(read[1].probe_ns);
}

TEST_CASE("half a row at the end is none, and a whole one without its line end is one") {
  const TemporaryFolder folder;
  const std::string path = folder / "rows.csv";
  CsvWriter(path).append(filled_row());
  const std::string whole = read_text_file(path);
  const std::string line = whole.substr(whole.find('\n') + 1);
  Row quoted = filled_row();
  quoted.reason = "one, two";
  const std::string second = csv_line(quoted);
  for (const std::size_t cut : {std::size_t{1}, line.size() / 2, second.find("one, t") + 5}) {
    CAPTURE(cut);
    LineFile(path, Open::anew).append(whole + second.substr(0, cut));
    CHECK(read_csv(path).size() == 1);
  }
  LineFile(path, Open::anew).append(whole.substr(0, whole.size() - 1));
  CHECK(read_csv(path).size() == 1);
  LineFile(path, Open::anew).append(whole + "1,2\n");
  CHECK_THROWS_AS(read_csv(path), Error);
  Row plain;
  plain.kernel = "gemm";
  LineFile(path, Open::anew).append(whole + "1,\"never closed,\n" + csv_line(plain));
  CHECK_THROWS_AS(read_csv(path), Error);
}

TEST_CASE("a file of results has one writer, and what a writer leaves blocks nobody") {
  const TemporaryFolder folder;
  const std::string path = folder / "rows.csv";
  {
    const OutputLock lock("--csv", path);
    CHECK(std::filesystem::exists(path + ".lock"));
    const pid_t child = fork();
    if (child == 0) {
      int status = 0;
      try {
        const OutputLock second("--csv", path);
      } catch (const Error& error) {
        const std::string text = error.what();
        status = text.find(fmt::format("another process ({})", getppid())) != std::string::npos;
      }
      _exit(status);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WEXITSTATUS(status) == 1);
  }
  CHECK_FALSE(std::filesystem::exists(path + ".lock"));
  LineFile(path + ".lock", Open::anew).append("left");
  { const OutputLock lock("--csv", path); }
  CHECK_FALSE(std::filesystem::exists(path + ".lock"));
}

TEST_CASE("a samples file without device times is read, one without times is refused") {
  const TemporaryFolder folder;
  LineFile(folder / "short.csv", Open::anew).append("row,launch,round,ns,probe_ns\n3,1,2,12.5,\n");
  const std::vector<Sample> read = read_samples(folder / "short.csv");
  REQUIRE(read.size() == 1);
  CHECK(read[0].ns == 12.5);
  CHECK(read[0].disturbance.empty());
  LineFile(folder / "bad.csv", Open::anew).append("row,launch,round,probe_ns\n3,1,2,12.5\n");
  CHECK_THROWS_AS(read_samples(folder / "bad.csv"), Error);
}

TEST_CASE(
    "JSON holds every column, null where a cell is empty, and survives bytes that are no text") {
  Row row = filled_row();
  row.device = "\xff\xfe";
  row.p50_ns = std::numeric_limits<double>::infinity();
  const auto object = row_json(row);
  CHECK(object.size() == columns().size());
  CHECK(row_json(Row{})["threads"].is_null());
  CHECK(row_json(Row{})["kernel"].is_null());
  const TemporaryFolder folder;
  const std::vector<Row> rows = {row};
  write_json(folder / "rows.json", document_json(rows, {{"machine", machine_json(machine())}}));
  const auto read = nlohmann::json::parse(read_text_file(folder / "rows.json"));
  CHECK(read["rows"][0]["kernel"] == row.kernel);
  CHECK(read["context"]["machine"]["cpu"] == machine().cpu);
}

TEST_CASE("a replaced file keeps its old content until commit, and nothing else stays behind") {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  std::ofstream(path) << "old";
  ::chmod(path.c_str(), 0640);
  {
    ReplacedFile file(path);
    file.write("half");
  }
  CHECK(read_text_file(path) == "old");
  {
    ReplacedFile file(path);
    file.write("new");
    CHECK(read_text_file(path) == "old");
    file.commit();
  }
  CHECK(read_text_file(path) == "new");
  struct stat facts {};
  ::stat(path.c_str(), &facts);
  CHECK((facts.st_mode & 0777) == 0640);
  require_writable(path);
  require_writable(folder / "another");
  CHECK(folder.names() == std::vector<std::string>{"file"});
}

TEST_CASE("a link is followed, not replaced") {
  const TemporaryFolder folder;
  std::ofstream(folder / "target") << "old";
  std::filesystem::create_symlink("target", folder / "link");
  ReplacedFile file(folder / "link");
  file.write("new");
  file.commit();
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(read_text_file(folder / "target") == "new");
}

TEST_CASE("paths that cannot be written are refused beforehand") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(require_writable(folder / "none/file"), Error);
  CHECK_THROWS_AS(require_writable(folder / ""), Error);
  CHECK_THROWS_AS(require_writable(folder / "."), Error);
  CHECK_THROWS_AS(require_writable("/proc/file"), Error);
  CHECK_THROWS_AS(CsvWriter(folder / "none/file"), Error);
  require_writable("/dev/null");
}

TEST_CASE("no text in Markdown becomes a tag, a link or a line of its own") {
  CHECK(markdown_text("a < b [1.02, 1.05] m=4") == "a &lt; b [1.02, 1.05] m=4");
  CHECK(markdown_text("![x](http://y)") == "![x\\](http://y)");
  CHECK(markdown_text("[x]: http://y") == "[x\\]: http://y");
  CHECK(markdown_text("why\n\n# so\r") == "why  # so ");
  CHECK(markdown_text("\\](x)") == "\\\\\\](x)");
  const TextTable table{{{"name"}}, {{"a\\|b\nc"}}};
  CHECK(markdown_table(table) == "| name |\n| --- |\n| a\\\\\\|b c |\n");
}

// A table of words, numbers and intervals of any length.
TextTable random_table(std::mt19937& random) {
  const auto below = [&](int limit) {
    return std::uniform_int_distribution<int>(0, limit - 1)(random);
  };
  const auto word = [&] { return std::string(static_cast<std::size_t>(1 + below(30)), 'w'); };
  const auto text_of_words = [&] {
    std::string text = word();
    for (int more = below(4); more > 0; --more) text += (below(2) == 0 ? " " : ",") + word();
    return below(3) == 0 ? text + " [0.98, 1.14]" : text;
  };
  TextTable table;
  const int columns = 1 + below(9), rows = below(4);
  for (int c = 0; c < columns; ++c) table.columns.push_back({text_of_words(), below(2) == 0});
  for (int r = 0; r < rows; ++r) {
    std::vector<std::string>& cells = table.rows.emplace_back();
    for (const auto& column : table.columns) {
      cells.push_back(column.right ? std::to_string(below(1000)) + "x [0.98, 14.1]"
                                   : text_of_words());
    }
  }
  return table;
}

// Words and intervals, however they are laid out.
std::multiset<std::string> words_of(const std::string& text) {
  static const std::regex pattern(R"(\[[^\]]*\]|[^ ,\n]+)");
  std::multiset<std::string> words;
  for (std::sregex_iterator word(text.begin(), text.end(), pattern), end; word != end; ++word) {
    words.insert(word->str());
  }
  return words;
}

TEST_CASE("no table breaks a word, a number or an interval, and one is too wide for these only") {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const TextTable table = random_table(random);
    std::string all;
    std::size_t least = 2 * (table.columns.size() - 1);
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      all += table.columns[c].title + " ";
      std::size_t longest = 0;
      for (const std::string& w : words_of(table.columns[c].title)) {
        longest = std::max(longest, w.size() + 1);  // and its comma
      }
      for (const auto& cells : table.rows) {
        all += cells[c] + " ";
        if (table.columns[c].right) longest = std::max(longest, cells[c].size());
        for (const std::string& w : words_of(cells[c])) longest = std::max(longest, w.size() + 1);
      }
      least += longest;
    }
    const std::string text = terminal_table(table);
    CHECK_MESSAGE(words_of(text) == words_of(all), "seed ", seed, "\n", text);
    for (const std::string_view line : split(text, '\n')) {
      CHECK_MESSAGE(line.size() <= std::max(terminal_width, least), "seed ", seed, "\n", text);
    }
    CHECK_MESSAGE(words_of(wrapped(all)) == words_of(all), "seed ", seed);
  }
}

TEST_CASE("a title goes on in a second line before a cell does") {
  const std::string name(60, 'n');
  const TextTable table{{{"name"}, {"x best peer [95 %]", true}, {"use"}},
                        {{name, "1.06x", "one " + std::string(40, 'u')}}};
  CHECK(terminal_table(table) == "name" + std::string(59, ' ') + "x best peer  use\n" +
                                     std::string(68, ' ') + "[95 %]\n" + name + "         1.06x  " +
                                     table.rows[0][2] + "\n");
}

TEST_CASE("tables align for terminals and escape bars and tags in Markdown") {
  const TextTable tags{{{"name"}}, {{"<b>"}}};
  CHECK(markdown_table(tags) == "| name |\n| --- |\n| &lt;b> |\n");
  const TextTable table{{{"name"}, {"time", true}}, {{"a|b", "1"}, {"c", "1000"}}};
  CHECK(terminal_table(table) == "name  time\na|b      1\nc     1000\n");
  CHECK(markdown_table(table) == "| name | time |\n| --- | ---: |\n| a\\|b | 1 |\n| c | 1000 |\n");
}

MeasuredRow passed_row(const std::string& variant, double p50_ns) {
  MeasuredRow measured;
  Row& row = measured.row;
  row.kernel = "gemm";
  row.shape = "m=1,n=2,k=3";
  row.variant = variant;
  row.status = "PASSED";
  row.math = "fp32";
  row.cache = "warm";
  row.threads = 2;
  row.p50_ns = p50_ns;
  return measured;
}

TEST_CASE("a name holds what identifies a row, and nothing that a run of its own changes") {
  Row row = passed_row("hwy", 100).row;
  row.isa = "AVX3";
  row.math = "bf16";
  row.run_id = "20260101T000000Z-1a2b";
  row.tuning = "mc=96";
  CHECK(benchmark_name(row) == "gemm/hwy/m=1,n=2,k=3/threads:2/warm/isa:AVX3/bf16");
  row = passed_row("blas", 100).row;
  row.library = "OpenBLAS 0.3.21 Haswell";
  row.tuning = "step=1";
  CHECK(benchmark_name(row) == "gemm/blas/m=1,n=2,k=3/threads:2/warm/OpenBLAS/step=1");
}

TEST_CASE(
    "of several rows with one name the median is tracked; those that did not pass are named") {
  std::vector<MeasuredRow> rows = {passed_row("hwy", 300), passed_row("hwy", 100),
                                   passed_row("hwy", 200), passed_row("amx", 10),
                                   passed_row("hwy@old", 50)};
  rows[3].row.status = "SUSPECT";
  const TrackedRows all = tracked_rows(rows, true);
  REQUIRE(all.rows.size() == 2);
  CHECK(*all.rows[0].measured->row.p50_ns == 200);
  CHECK(all.rows[1].name == "gemm/hwy@old/m=1,n=2,k=3/threads:2/warm");
  CHECK(all.left_out ==
        std::vector<std::string>{"1 row left out, SUSPECT: gemm/amx/m=1,n=2,k=3/threads:2/warm"});
  const TrackedRows own = tracked_rows(rows, false);
  CHECK(own.rows.size() == 1);
  CHECK(own.left_out.size() == 2);
}

TEST_CASE("a tuned row has a name of its own only beside the variant's own choice") {
  std::vector<MeasuredRow> rows = {passed_row("hwy", 100), passed_row("hwy", 90)};
  rows[1].row.tuning_source = "store";
  const TrackedRows both = tracked_rows(rows, true);
  REQUIRE(both.rows.size() == 2);
  CHECK(both.rows[1].name == both.rows[0].name + "/tuned");
  CHECK(tracked_rows({&rows[1], 1}, true).rows[0].name == both.rows[0].name);
}

TEST_CASE("metrics have the ends of their intervals, rates with time's turned around") {
  MeasuredRow measured = passed_row("hwy", 100);
  measured.row.flops = 12;
  measured.row.interval_pct = 20;
  const auto metrics = bmf_json(tracked_rows({&measured, 1}, true)).begin().value();
  CHECK(metrics["latency"] ==
        nlohmann::ordered_json({{"value", 100.0}, {"lower_value", 80.0}, {"upper_value", 120.0}}));
  CHECK(metrics["throughput"]["lower_value"].get<double>() == doctest::Approx(12e9 / 120));
  CHECK(metrics["throughput"]["upper_value"].get<double>() == doctest::Approx(12e9 / 80));
  CHECK_FALSE(metrics.contains("bandwidth"));
  measured.row.interval_pct.reset();
  const auto point = bmf_json(tracked_rows({&measured, 1}, true)).begin().value();
  CHECK(point["latency"] == nlohmann::ordered_json({{"value", 100.0}}));
}

}  // namespace
}  // namespace rooflane
