// See judge.hpp. Reads top to bottom: build, verify, time, say.
#include "judge/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/groups.hpp"
#include "bench/row_assembly.hpp"
#include "bench/worker_pool.hpp"
#include "core/error.hpp"
#include "core/json_text.hpp"
#include "core/machine.hpp"
#include "core/statistics.hpp"
#include "core/temporary_folder.hpp"
#include "jail/group.hpp"
#include "jail/jailed_plugin.hpp"
#include "measure/distributions.hpp"
#include "measure/foreign.hpp"
#include "measure/series_guard.hpp"

namespace rooflane::judge {

namespace {

class Judge {
 public:
  Judge(const Request& request, const Catalogue& catalogue,
        const std::vector<std::string>& worker_command, const Row& stamp)
      : request_(request), catalogue_(catalogue), worker_command_(worker_command), stamp_(stamp) {}

  Judgement run() {
    jail::place_runner(folder_.path());
    if (request_.kind == jail::Kind::bubblewrap) {
      if (const std::string defect = jail::defect(folder_.path()); !defect.empty()) {
        throw unavailable_error(defect + "; --unsafe runs the kernel without a jail");
      }
    }
    result_.hidden = hidden_problems(request_.problems, request_.hidden, request_.seed);
    if (build_and_load() && verify() && endure()) time();
    result_.next = next_step(result_);
    return std::move(result_);
  }

 private:
  void tell(const std::string& doing) const {
    if (request_.progress) request_.progress(doing);
  }

  // Ends the judgement with a verdict against the source.
  bool against(Verdict verdict, const std::string& reason) {
    result_.verdict = verdict;
    result_.reason = reason;
    result_.cheat = cheat_in(reason);
    // The first calls verify; what crashes or hangs behind them was right until then.
    constexpr int verifying_calls = 20;
    const std::size_t call = reason.find("call ");
    const bool ended = verdict == Verdict::crash || verdict == Verdict::timeout;
    if (ended && call != std::string::npos &&
        std::strtol(reason.c_str() + call + 5, nullptr, 10) > verifying_calls) {
      result_.cheat = cheat_number(20);
    }
    return false;
  }

  bool build_and_load() {
    tell("building");
    result_.build = build(request_.source, signature_of(request_.problems.front()),
                          request_.threads > 1, request_.flags, request_.kind, folder_.path(),
                          std::clamp(30 * request_.budget_seconds, 10.0, 30.0));
    if (!result_.build.good) {
      return against(Verdict::build, result_.build.timed_out ? "the compiler took too long"
                                                             : "the source does not compile");
    }
    const std::string disassembly = disassembly_of(request_.kind, folder_.path());
    if (const std::string clock = clock_defined_in(disassembly); !clock.empty()) {
      return against(Verdict::suspect,
                     fmt::format("{}: the source defines {}, a clock of the system's libraries",
                                 cheat_number(1).name, clock));
    }
    // Of OpenCL the driver compiles the kernel, of a library its own file holds it.
    const bool compiled = request_.source.kind == Source::Kind::function ||
                          request_.source.kind == Source::Kind::table;
    if (compiled) result_.hot_loop = hot_loop_in(disassembly);
    jail::JailedPlugin plugin;
    // As long as a call on a busy machine may take; whoever asks for a quick answer waits less.
    plugin.call_seconds = std::clamp(10 * request_.budget_seconds, 5.0, 20.0);
    plugin.name = judged_name;
    plugin.folder = folder_.path();
    plugin.library = built_library;
    plugin.kind = request_.kind;
    plugin.cpus = machine().placement;
    plugin.report = report_path();
    jail::write_jailed_plugin(plugin, spec_path());
    ForeignWorker worker;
    worker.command = worker_command_;
    worker.command.insert(worker.command.end(), {"--judged", spec_path()});
    worker.option = {"--judged", spec_path()};
    worker.name = [](const Offer& offer) {
      return offer.backend == "plugin" ? offer.variant : std::string();
    };
    tell("loading");
    try {
      add_foreign(catalogue_, worker, std::chrono::seconds(60));
    } catch (const Error& error) {
      std::string reason = error.what();
      const std::size_t behind = reason.find(spec_path());
      if (behind != std::string::npos) reason.erase(0, behind + spec_path().size() + 2);
      const Verdict verdict = verdict_of(Status::failed, reason);
      if (verdict != Verdict::failed) reason = "load-time: " + reason;
      return against(verdict, without_prefix(reason));
    }
    const Kernel& kernel = request_.problems.front().kernel();
    const auto variants = catalogue_.variants(kernel);
    const bool found =
        std::any_of(variants.begin(), variants.end(),
                    [](const CatalogueEntry* entry) { return entry->name == judged_name; });
    if (found) return true;
    return against(Verdict::build, fmt::format("the library describes no variant of {} without a "
                                               "name of its own",
                                               kernel.name));
  }

  BenchOptions options() const {
    BenchOptions options;
    options.catalogue = &catalogue_;
    options.worker_command = worker_command_;
    options.stamp = stamp_;
    options.seed = request_.seed;
    options.threads = {request_.threads};
    return options;
  }

  // Every problem with its inputs of every distribution, the listed ones shrunk where they are
  // large; with other numbers of threads; each twice.
  bool verify() {
    const BenchOptions options = this->options();
    WorkerPool workers(options);
    std::vector<int> counts = {request_.threads};
    for (const int other : {1, 3}) {
      if (other < request_.threads) counts.push_back(other);
    }
    for (const bool hidden : {false, true}) {
      const auto& problems = hidden ? result_.hidden : request_.problems;
      for (std::size_t i = 0; i < problems.size(); ++i) {
        tell(fmt::format("verifying {}",
                         hidden ? fmt::format("hidden shape {}", i + 1) : problems[i].text()));
        for (const int threads : counts) {
          if (!verify_problem(workers, problems[i], threads, hidden, i)) return false;
        }
      }
    }
    return true;
  }

  bool verify_problem(WorkerPool& workers, const Problem& problem, int threads, bool hidden,
                      std::size_t index) {
    const auto all = all_distributions();
    for (std::size_t d = 0; d < all.size(); ++d) {
      // Hidden problems meet uniform inputs and two further kinds each.
      if (hidden && d != 0 && d % 3 != (index + request_.seed) % 3) continue;
      if (threads != request_.threads && d != 0) continue;
      Case c;
      c.problem = d == 0 ? problem : shrunk(problem, full_comparison_flops);
      c.variant = judged_name;
      c.math = math_for(problem, c.math);
      c.threads = threads;
      c.seed = request_.seed + index;
      c.distribution = all[d];
      if (!verify_case(workers.worker_for(c), c, hidden, index)) return false;
    }
    return true;
  }

  bool verify_case(Worker& worker, const Case& c, bool hidden, std::size_t index) {
    const bool uniformly = c.distribution == &uniform;
    try {
      if (distribution_defect(c.problem, c.math_record(), *c.distribution)) return true;
      const std::string reference = references_.path_for(c.problem, c.inputs(), c.math_record());
      worker.open(c);
      Verification found = worker.verify(reference);
      if (found.usable()) found = worker.verify(reference);
      worker.close();
      if (found.passed()) return true;
      if (found.usable()) {
        if (inaccurate_.empty()) {
          inaccurate_ = fmt::format("{} inputs of {}: {}", c.distribution->name, c.problem.text(),
                                    found.reason);
          note_wrong(c, found.reason);
        }
        return true;
      }
      note_wrong(c, found.reason);
      std::string reason = found.reason;
      if (!cheat_in(reason)) {
        reason = fmt::format(
            "{}{} inputs of {}, {} thread{}: {}",
            suspicion(reason, result_.first_wrong,
                      {uniformly, hidden, index % 2 == 0, c.threads != request_.threads}),
            c.distribution->name, c.problem.text(), c.threads, c.threads == 1 ? "" : "s", reason);
      }
      return against(Verdict::failed, reason);
    } catch (const WorkerError& error) {
      if (error.status() == Status::unsupported && !ended_in_a_call(error.what())) {
        // A table may refuse problems; a hidden one is then left out.
        if (hidden) return true;
        return against(Verdict::failed, fmt::format("{} refuses {}: {}", judged_name,
                                                    c.problem.text(), error.what()));
      }
      return against(verdict_of(error.status(), error.what()), without_prefix(error.what()));
    }
  }

  void note_wrong(const Case& c, const std::string& reason) {
    result_.first_wrong = wrong_element(reason, c.problem);
    if (!result_.first_wrong) return;
    result_.first_wrong->distribution = c.distribution->name;
    result_.first_wrong->threads = c.threads;
  }

  // More than a thousand calls in one process, as far as a few seconds carry: what goes wrong late
  // does so here, and not among others.
  bool endure() {
    constexpr double most_calls = 1200, most_ns = 3e9;
    tell("calling it a thousand times");
    const BenchOptions options = this->options();
    WorkerPool workers(options);
    Case c;
    c.problem = request_.problems.front();
    c.variant = judged_name;
    c.math = math_for(c.problem, c.math);
    c.threads = request_.threads;
    c.seed = request_.seed;
    try {
      Worker& worker = workers.worker_for(c);
      worker.open(c);
      const double run_ns = std::max(worker.calibrate().run_ns, 1.0);
      const auto calls = static_cast<std::int64_t>(std::clamp(most_ns / run_ns, 3.0, most_calls));
      // In several series: what they hold is compared when there is enough of it.
      const int series = calls < most_calls ? 1 : 6;
      worker.sample(series, calls / series);
      worker.close();
      return true;
    } catch (const WorkerError& error) {
      note_wrong(c, error.what());
      return against(verdict_of(error.status(), error.what()), without_prefix(error.what()));
    }
  }

  // Who it is timed beside: those named, or all but the plainest and what runs on devices.
  std::vector<std::string> opponents() const {
    const Kernel& kernel = request_.problems.front().kernel();
    std::vector<std::string> names;
    if (!request_.against.empty()) {
      names = request_.against;
    } else {
      for (const CatalogueEntry* entry : catalogue_.variants(kernel)) {
        const bool plain = std::string_view(entry->variant->backend->name) == "scalar";
        const bool device = entry->variant->threads == Threads::device;
        if (plain || device || entry->name == judged_name || absent_reason(*entry)) continue;
        names.push_back(entry->name);
      }
    }
    names.emplace_back(judged_name);
    return names;
  }

  class Keeper final : public RowSink {
   public:
    void on_sample(const Sample& sample) override { samples.push_back(sample); }
    void on_row(const Row& row) override { rows.push_back({row, {}}); }
    void join() {
      for (const Sample& sample : samples) {
        const auto position = static_cast<std::size_t>(sample.row);
        if (position < rows.size()) rows[position].samples.push_back(sample);
      }
    }
    std::vector<MeasuredRow> rows;
    std::vector<Sample> samples;
  };

  void time() {
    BenchOptions options = this->options();
    for (const Problem& problem : request_.problems) options.problems.push_back({problem, ""});
    options.variants = opponents();
    options.max_time = request_.budget_seconds / static_cast<double>(request_.problems.size());
    options.budget_seconds = request_.budget_seconds;
    options.ceilings_seconds = std::min(2.0, request_.budget_seconds);
    options.short_ceilings = true;
    options.progress = [&](const Progress& progress) { tell("timing " + progress.doing); };
    Keeper keeper;
    run_bench(options, make_suite(options), {&keeper});
    keeper.join();
    for (const SummaryGroup& group : summarise_rows(keeper.rows)) add_shape(group);
    // A row without speed is in no line.
    for (const MeasuredRow& measured : keeper.rows) {
      const Row& row = measured.row;
      const auto status = parse_status(row.status);
      if (row.variant != judged_name || !status ||
          (!is_bad(*status) && *status != Status::unsupported)) {
        continue;
      }
      against(verdict_of(*status, row.reason), without_prefix(row.reason));
      result_.first_wrong = wrong_element(row.reason, problem_of(row, catalogue_));
      return;
    }
    read_report();
    doubt_short_victories();
    conclude();
  }

  void add_shape(const SummaryGroup& group) {
    const auto mine = std::find_if(group.lines.begin(), group.lines.end(), [](const auto& line) {
      return line.row->variant == judged_name;
    });
    if (mine == group.lines.end() || !has_time(*mine->row)) return;
    ShapeFigures figures;
    figures.problem = problem_of(*mine->row, catalogue_);
    figures.row = *mine->row;
    using Line = SummaryLine::Verdict;
    figures.verdict = mine->verdict == Line::winner      ? Verdict::winner
                      : mine->verdict == Line::tie       ? Verdict::tie
                      : mine->verdict == Line::undecided ? Verdict::undecided
                                                         : Verdict::loser;
    if (group.lines.size() == 1) figures.verdict = Verdict::undecided;
    double best_peer_ns = 0;
    for (const SummaryLine& line : group.lines) {
      if (line.row == mine->row || !has_time(*line.row)) continue;
      PeerFigure peer{line.row->variant, *line.row->p50_ns / 1e3, std::nullopt};
      peer.ratio = time_ratio(line.same, mine->same);
      if (best_peer_ns == 0 || *line.row->p50_ns < best_peer_ns) best_peer_ns = *line.row->p50_ns;
      figures.peers.push_back(std::move(peer));
    }
    compare_with_inaccurate(figures);
    const double ns = *mine->row->p50_ns;
    if (mine->row->roof_pct) {
      const double roof_ns = ns * *mine->row->roof_pct / 100;
      figures.roof_us = roof_ns / 1e3;
      if (best_peer_ns > roof_ns) figures.sol = (best_peer_ns - ns) / (best_peer_ns - roof_ns);
    }
    result_.shapes.push_back(std::move(figures));
  }

  // A peer that is right for ordinary inputs only wins nothing, and still it is faster.
  static void compare_with_inaccurate(ShapeFigures& figures) {
    for (const PeerFigure& peer : figures.peers) {
      if (!peer.ratio || figures.verdict == Verdict::loser) continue;
      const PairVerdict pair = rooflane::verdict_of(peer.ratio->log);
      if (pair == PairVerdict::faster) figures.verdict = Verdict::loser;
      if (figures.verdict != Verdict::winner) continue;
      if (pair == PairVerdict::undecided) figures.verdict = Verdict::undecided;
      if (pair == PairVerdict::equal) figures.verdict = Verdict::tie;
    }
  }

  // What the workers wrote of the kernel's processes. A call's cost is their median.
  void read_report() {
    std::set<std::string> maps;
    std::vector<std::vector<double>> costs(result_.shapes.size()), spreads(result_.shapes.size());
    std::ifstream file(report_path());
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json fact = parse_json(line);
      for (const auto& path : fact.at("maps")) maps.insert(path.get<std::string>());
      for (std::size_t i = 0; i < result_.shapes.size(); ++i) {
        if (fact.at("threads") != request_.threads ||
            fact.at("problem") != jail::full_text(result_.shapes[i].problem)) {
          continue;
        }
        costs[i].push_back(fact.at("call_ns").get<double>() / 1e3);
        spreads[i].push_back(fact.at("call_spread_ns").get<double>() / 1e3);
      }
    }
    for (std::size_t i = 0; i < result_.shapes.size(); ++i) {
      if (costs[i].empty()) continue;
      result_.shapes[i].overhead_us = median(costs[i]);
      result_.shapes[i].overhead_spread_us = median(spreads[i]);
    }
    result_.maps = {maps.begin(), maps.end()};
  }

  // A source that leaves out runs among others could gain as much as is unknown of a call. Where
  // that is a large part of the time, nothing shows that the victory is one.
  void doubt_short_victories() {
    for (ShapeFigures& shape : result_.shapes) {
      const CallCost call{1e3 * shape.overhead_us, 1e3 * shape.overhead_spread_us,
                          request_.threads};
      const double ns = *shape.row.p50_ns;
      const bool checked = call.wakes_threads() ? ns >= changed_each_from_ns(call)
                                                : unseen_ns(call) <= (unseen_ratio - 1) * ns;
      if (shape.verdict != Verdict::winner || checked) continue;
      shape.verdict = Verdict::undecided;
      doubted_ = shape.problem.text();
    }
  }

  void conclude() {
    const auto any = [&](Verdict verdict) {
      return std::any_of(result_.shapes.begin(), result_.shapes.end(),
                         [&](const ShapeFigures& shape) { return shape.verdict == verdict; });
    };
    if (!inaccurate_.empty()) {
      against(Verdict::inaccurate, inaccurate_);
      return;
    }
    if (result_.shapes.empty()) {
      against(Verdict::failed, "no time was taken");
      return;
    }
    result_.verdict = any(Verdict::loser)       ? Verdict::loser
                      : any(Verdict::undecided) ? Verdict::undecided
                      : any(Verdict::tie)       ? Verdict::tie
                                                : Verdict::winner;
    const ShapeFigures& shape = result_.shapes.front();
    const std::string doubt =
        doubted_.empty() || result_.verdict != Verdict::undecided
            ? ""
            : fmt::format(
                  "; a run of {} is too short beside a call into the jail for a victory: "
                  "judge a larger problem, or leave a CPU to the judge",
                  doubted_);
    if (shape.peers.empty()) {
      result_.reason =
          fmt::format("{:.3g} us, with nobody to compare with", *shape.row.p50_ns / 1e3);
      return;
    }
    const auto best = std::min_element(
        shape.peers.begin(), shape.peers.end(),
        [](const PeerFigure& a, const PeerFigure& b) { return a.p50_us < b.p50_us; });
    result_.reason = fmt::format("{}: {:.4g} us, {} {:.4g} us{}", shape.problem.text(),
                                 *shape.row.p50_ns / 1e3, best->variant, best->p50_us, doubt);
  }

  std::string spec_path() const { return folder_.path() + "/judged.json"; }
  std::string report_path() const { return folder_.path() + "/report.jsonl"; }

  const Request& request_;
  Catalogue catalogue_;
  std::vector<std::string> worker_command_;
  Row stamp_;
  TemporaryFolder folder_;
  ReferenceFile references_;
  std::string inaccurate_;  // where it was so first
  std::string doubted_;     // the problem whose victory cannot be checked
  Judgement result_;
};

}  // namespace

Judgement judge(const Request& request, const Catalogue& catalogue,
                const std::vector<std::string>& worker_command, const Row& stamp) {
  Judgement judgement = Judge(request, catalogue, worker_command, stamp).run();
  jail::Group::remove_left_ones();  // of workers that were killed
  return judgement;
}

}  // namespace rooflane::judge
