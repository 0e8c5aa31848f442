// The table of columns, and cells as text by it.
#include "io/row.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/placement.hpp"
#include "core/text.hpp"

namespace rooflane {
namespace {

const Column table[] = {
    {"schema_version", "version of this table", &Row::schema_version, false},
    {"run_id", "the run that wrote the row, UTC time and a random part", &Row::run_id, false},
    {"test_time", "when the measurement ended, ISO 8601, UTC", &Row::test_time, false},
    {"build_commit", "git commit of the build", &Row::build_commit},
    {"git_dirty", "1 when the build had uncommitted changes, else 0", &Row::git_dirty, true, "0|1"},
    {"compiler", "compiler and version", &Row::compiler},
    {"host", "node name", &Row::host},
    {"cpu", "model name of the CPU", &Row::cpu},
    {"isa", "Highway target of hwy, baseline for scalar", &Row::isa},
    {"threads", "threads used; empty on a GPU", &Row::threads},
    {"affinity", "logical CPUs the worker may use", &Row::affinity},
    {"backend", "scalar, cblas, highway, opencl", &Row::backend, false},
    {"library", "third-party library: name, version, core type", &Row::library},
    {"device", "OpenCL device", &Row::device},
    {"driver", "OpenCL driver version", &Row::driver},
    {"kernel", "the operation", &Row::kernel, false},
    {"variant", "the implementation", &Row::variant, false},
    {"tuning", "values of all tunables; step=I: rung I of the variant's ladder", &Row::tuning},
    {"math", "arithmetic used", &Row::math, false},
    {"dtype", "element type of the tensors", &Row::dtype, false},
    {"shape", "sizes and flags of the problem", &Row::shape, false},
    {"preset", "the preset the shape came from", &Row::preset},
    {"seed", "seed of inputs and order", &Row::seed, false},
    {"cache", "warm or cold", &Row::cache, false, "warm|cold"},
    {"timer", "steady (host clock) or event (device clock)", &Row::timer, false, "steady|event"},
    {"launch", "number of repetitions, each with fresh memory and a fresh plan", &Row::launch},
    {"status", "the result; only PASSED rows can win, INACCURATE ones count as peers", &Row::status,
     false,
     "PASSED|INACCURATE|FAILED|SKIPPED|UNSUPPORTED|TIMEOUT|BUILD_ERROR|RUNTIME_ERROR|SUSPECT"},
    {"reason", "the reason, in words", &Row::reason},
    {"err_metric", "meaning of err_value", &Row::err_metric},
    {"err_value", "error found", &Row::err_value},
    {"err_threshold", "largest err_value that passes", &Row::err_threshold},
    {"max_abs_err", "largest absolute error", &Row::max_abs_err},
    {"n_samples", "samples taken", &Row::n_samples},
    {"runs_per_sample", "back-to-back runs in a sample", &Row::runs_per_sample},
    {"min_ns", "least time of a run, ns", &Row::min_ns},
    {"p20_ns", "20th percentile, ns", &Row::p20_ns},
    {"p50_ns", "median, ns", &Row::p50_ns},
    {"p80_ns", "80th percentile, ns", &Row::p80_ns},
    {"p99_ns", "99th percentile, ns", &Row::p99_ns},
    {"mean_ns", "mean, ns", &Row::mean_ns},
    {"stdev_ns", "standard deviation, ns", &Row::stdev_ns},
    {"noise_pct", "median absolute deviation divided by the median, per cent", &Row::noise_pct},
    {"flops", "floating-point operations of a run", &Row::flops},
    {"exps", "exponentials of a run", &Row::exps},
    {"bytes", "compulsory bytes of a run", &Row::bytes},
    {"gflops", "1e9 flops per second, from p50", &Row::gflops},
    {"gb_s", "1e9 bytes per second, from p50", &Row::gb_s},
    {"ai", "arithmetic intensity, flops per byte", &Row::ai},
    {"peak_gflops", "measured compute ceiling", &Row::peak_gflops},
    {"peak_gb_s", "measured bandwidth ceiling at the row's footprint", &Row::peak_gb_s},
    {"roof_gflops", "min(peak_gflops, ai * peak_gb_s)", &Row::roof_gflops},
    {"roof_pct", "share of the roof reached, per cent", &Row::roof_pct},
    {"roof_pct_lo", "lower end of its 95 % interval", &Row::roof_pct_lo},
    {"roof_pct_hi", "upper end of its 95 % interval", &Row::roof_pct_hi},
    {"roof_level", "plateau of peak_gb_s", &Row::roof_level},
    {"bound", "compute or memory", &Row::bound, true, "compute|memory"},
    {"plan_ns",
     "planning, including packing of constants, ns; OpenCL programs may come from the cache on "
     "disk",
     &Row::plan_ns},
    {"h2d_ns", "upload by device events, median, ns", &Row::h2d_ns},
    {"kernel_ns", "kernel by device events, median, ns", &Row::kernel_ns},
    {"d2h_ns", "download by device events, median, ns", &Row::d2h_ns},
    {"e2e_ns", "upload, run and download, median, ns", &Row::e2e_ns},
    {"workspace_bytes", "held by the plan beyond operands", &Row::workspace_bytes},
    {"packed_bytes", "constants packed by prepack=1", &Row::packed_bytes},
    {"peak_rss_bytes", "peak resident memory of the worker", &Row::peak_rss_bytes},
    {"model_ns", "least time, with exps and unfused flops at their measured rates, ns",
     &Row::model_ns},
    {"model_pct", "model_ns divided by the median time of a run, per cent; may exceed 100",
     &Row::model_pct},
    {"interval_pct", "half width of the 95 % interval of the median, per cent of the median",
     &Row::interval_pct},
    {"stop", "why sampling ended: interval (narrow enough), time or rounds", &Row::stop, true,
     "interval|time|rounds"},
    {"n_disturbed", "samples among n_samples taken while something interfered", &Row::n_disturbed},
    {"disturbance", "causes of interference and their counts: steal 3, preempted 2, probe 1",
     &Row::disturbance},
    {"empty_kernel_ns",
     "time of an empty OpenCL kernel on the device, by the row's timer, median, ns",
     &Row::empty_kernel_ns},
    {"tuning_source",
     "source of the tuning: model (the variant itself), store (a tuned schedule), given (the "
     "user); empty without tunables",
     &Row::tuning_source, true, "model|store|given"},
    {"step",
     "of a model: PHASE/STEP, or PHASE for the whole; times are for one call; empty for a single "
     "kernel",
     &Row::step},
    {"calls", "of a model: calls per run", &Row::calls},
    {"share_pct", "of a model: its share of a run's time, per cent", &Row::share_pct},
    {"path",
     "instruction that multiplies: avx512-fma, avx2-fma, vdpbf16ps, vpdpbusd, amx-bf16…; empty: "
     "not reported",
     &Row::path},
    {"group_s", "time of the rounds of the row's group, all cases together, s", &Row::group_s},
    {"placement", "order in which threads take CPUs, or a list of CPUs; only the run's has a roof",
     &Row::placement},
    {"distribution", "distribution of the inputs; empty: uniform", &Row::distribution},
};

template <class Parsed>
auto parsed_or_throw(const Column& column, std::string_view text, const Parsed& parsed) {
  if (!parsed) {
    throw argument_error(
        fmt::format("column {} contains '{}', which is not a number", column.name, text));
  }
  return *parsed;
}

}  // namespace

std::span<const Column> columns() { return table; }

bool is_launch_bound(const Row& row) {
  constexpr double most = 3;  // a third of the time may then be the launch, or more
  return row.p50_ns && row.empty_kernel_ns && *row.p50_ns <= most * *row.empty_kernel_ns;
}

std::optional<std::int64_t> step_of(const Row& row) {
  constexpr std::string_view prefix = "step=";
  if (!row.tuning.starts_with(prefix)) return std::nullopt;
  return parse_integer(std::string_view(row.tuning).substr(prefix.size()));
}

std::string chosen_placement(const Row& row) {
  return row.placement == placement_orders().front().name ? "" : row.placement;
}

bool is_tuned(const Row& row) { return row.tuning_source == "store"; }

std::string cell_text(const Row& row, const Column& column) {
  struct Printer {
    const Row& row;
    std::string operator()(std::string Row::*m) const { return row.*m; }
    std::string operator()(std::int64_t Row::*m) const { return std::to_string(row.*m); }
    std::string operator()(std::optional<std::int64_t> Row::*m) const {
      return row.*m ? std::to_string(*(row.*m)) : std::string();
    }
    std::string operator()(std::optional<double> Row::*m) const {
      return row.*m ? print_real(*(row.*m)) : std::string();
    }
  };
  return std::visit(Printer{row}, column.member);
}

void set_cell(Row& row, const Column& column, std::string_view text) {
  struct Setter {
    Row& row;
    const Column& column;
    std::string_view text;
    void operator()(std::string Row::*m) const { row.*m = text; }
    void operator()(std::int64_t Row::*m) const {
      row.*m = parsed_or_throw(column, text, parse_integer(text));
    }
    void operator()(std::optional<std::int64_t> Row::*m) const {
      row.*m = std::nullopt;
      if (!text.empty()) row.*m = parsed_or_throw(column, text, parse_integer(text));
    }
    void operator()(std::optional<double> Row::*m) const {
      row.*m = std::nullopt;
      if (!text.empty()) row.*m = parsed_or_throw(column, text, parse_real(text));
    }
  };
  std::visit(Setter{row, column, text}, column.member);
}

}  // namespace rooflane
