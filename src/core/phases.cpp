// Logs of phases, and the recorder that hands them to threads. See phases.hpp, phase_recorder.hpp.
#include "phases.hpp"

#include <algorithm>
#include <iterator>

#include "phase_recorder.hpp"

namespace rooflane {

namespace {

// In the order of the enumeration.
constexpr std::string_view names[] = {"compute", "tail",  "pack", "reduce",
                                      "store",   "start", "wait", "run"};
static_assert(std::size(names) == phase_count);

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string_view name_of(RunPhase phase) { return names[static_cast<int>(phase)]; }

std::optional<RunPhase> parse_phase(std::string_view name) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<RunPhase>(found - std::begin(names));
}

void PhaseLog::clear() {
  inside_ = 0;
  std::fill(std::begin(totals_), std::end(totals_), Total());
  events_.clear();
  dropped_ = 0;
}

void PhaseLog::close(RunPhase phase, const Opened& opened, std::int64_t now) {
  // Cores' counters agree to within some ticks only.
  const std::int64_t elapsed = std::max<std::int64_t>(now - opened.begin, inside_);
  Total& total = totals_[static_cast<int>(phase == RunPhase::run ? RunPhase::compute : phase)];
  total.ticks += elapsed - inside_;
  ++total.times;
  inside_ = opened.inside_before + elapsed;
  if (events_.size() < most_events_) {
    events_.push_back({opened.begin, opened.begin + elapsed, phase});
  } else {
    ++dropped_;
  }
}

PhaseRecorder::PhaseRecorder(int threads, std::size_t events_of_thread) {
  for (int thread = 0; thread < std::max(threads, 1); ++thread) {
    logs_.emplace_back(*this, events_of_thread);
  }
  visits_.resize(logs_.size());
}

void PhaseRecorder::begin() {
  for (PhaseLog& log : logs_) log.clear();
  for (Visit& visit : visits_) visit = {};
  last_region_ = 0;
  begin_ns_ = steady_ns();
  begin_ticks_ = phase_clock();
  phase_log = &logs_.front();
  computing_ = phase_log->open(begin_ticks_);
}

void PhaseRecorder::end() {
  phase_log = nullptr;
  end_ticks_ = phase_clock();
  const std::int64_t passed_ns = steady_ns() - begin_ns_, ticks = end_ticks_ - begin_ticks_;
  ns_per_tick_ = ticks > 0 ? static_cast<double>(passed_ns) / static_cast<double>(ticks) : 1;
  for (std::size_t i = 0; i < logs_.size(); ++i) add_wait(i, last_region_, last_end_);
  logs_.front().close(RunPhase::compute, computing_, end_ticks_);
}

void PhaseRecorder::add_wait(std::size_t thread, std::int64_t last_region, std::int64_t last_end) {
  Visit& visit = visits_[thread];
  if (visit.region == 0) return;
  if (visit.region == last_region) logs_[thread].add(RunPhase::wait, visit.left, last_end);
  visit.region = 0;
}

PhaseTimes PhaseRecorder::times() const {
  PhaseTimes times;
  times.wall_ns = ns(end_ticks_ - begin_ticks_);
  for (std::size_t i = 0; i < logs_.size(); ++i) {
    const PhaseLog& log = logs_[i];
    const int thread = static_cast<int>(i);
    for (int p = 0; p < phase_count; ++p) {
      const auto phase = static_cast<RunPhase>(p);
      const PhaseLog::Total& total = log.total(phase);
      if (total.times == 0) continue;
      times.phases.push_back({thread, phase, ns(total.ticks), static_cast<double>(total.times)});
    }
    const std::size_t first = times.events.size();
    for (const PhaseLog::Event& event : log.events()) {
      times.events.push_back(
          {thread, event.phase, ns(event.begin - begin_ticks_), ns(event.end - begin_ticks_)});
    }
    // A phase ends after those inside it.
    std::stable_sort(times.events.begin() + static_cast<std::ptrdiff_t>(first), times.events.end(),
                     [](const PhaseEvent& x, const PhaseEvent& y) {
                       return x.begin_ns != y.begin_ns ? x.begin_ns < y.begin_ns
                                                       : x.end_ns > y.end_ns;
                     });
    times.dropped += log.dropped();
  }
  return times;
}

PhaseRecorder* PhaseRegion::recorder() {
  if (phase_log == nullptr || phase_log->recorder().in_region_) return nullptr;
  return &phase_log->recorder();
}

PhaseRegion::PhaseRegion(PhaseRecorder& recorder, int threads)
    : recorder_(recorder),
      last_region_(recorder.last_region_),
      last_end_(recorder.last_end_),
      begin_(phase_clock()) {
  // Those who come add their own wait for the last region's end.
  for (auto i = static_cast<std::size_t>(threads); i < recorder_.logs_.size(); ++i) {
    recorder_.add_wait(i, last_region_, last_end_);
  }
  recorder_.in_region_ = true;
}

void PhaseRegion::enter(int thread) {
  const auto index = static_cast<std::size_t>(thread);
  if (index >= recorder_.logs_.size()) return;
  PhaseRecorder::Visit& visit = recorder_.visits_[index];
  PhaseLog& log = recorder_.logs_[index];
  visit.before = phase_log;
  phase_log = &log;
  const std::int64_t now = phase_clock();
  recorder_.add_wait(index, last_region_, last_end_);
  visit.region = last_region_ + 1;
  log.add(RunPhase::start, begin_, now);
  visit.computing = log.open(now);
}

void PhaseRegion::leave(int thread) {
  const auto index = static_cast<std::size_t>(thread);
  if (index >= recorder_.logs_.size()) return;
  PhaseRecorder::Visit& visit = recorder_.visits_[index];
  visit.left = phase_clock();
  recorder_.logs_[index].close(RunPhase::compute, visit.computing, visit.left);
  phase_log = visit.before;
}

void PhaseRegion::end() {
  recorder_.last_end_ = phase_clock();
  recorder_.last_region_ = last_region_ + 1;
  recorder_.in_region_ = false;
  // The first thread may be inside another phase by the next region.
  recorder_.add_wait(0, recorder_.last_region_, recorder_.last_end_);
}

}  // namespace rooflane
