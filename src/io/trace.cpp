// Events as JSON text, one a line: a document of objects would take ten times the memory. See
// trace.hpp.
#include "io/trace.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "io/files.hpp"

namespace rooflane {

namespace {

// Whole nanoseconds as the microseconds of the format: 1234 is "1.234".
std::string microseconds(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string name_event(const char* what, int process, int thread, const std::string& name) {
  return nlohmann::json{
      {"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void Trace::append(const std::string& event) {
  if (!events_.empty()) events_ += ",\n";
  events_ += event;
}

void Trace::add(const std::string& name, const PhaseProfile& profile) {
  const int process = ++processes_;
  append(name_event("process_name", process, 0, name));
  std::set<int> threads;
  for (const PhaseEvent& event : profile.events) {
    if (threads.insert(event.thread).second) {
      append(
          name_event("thread_name", process, event.thread, fmt::format("thread {}", event.thread)));
    }
    const std::int64_t begin = std::llround(event.begin_ns), end = std::llround(event.end_ns);
    append(
        fmt::format(R"({{"ph":"X","cat":"phase","name":"{}","pid":{},"tid":{},"ts":{},"dur":{}}})",
                    name_of(event.phase), process, event.thread, microseconds(begin),
                    microseconds(end - begin)));
  }
}

void Trace::write(const std::string& path) const {
  ReplacedFile file(path);
  file.write("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  file.write(events_);
  file.write("\n]}\n");
  file.commit();
}

}  // namespace rooflane
