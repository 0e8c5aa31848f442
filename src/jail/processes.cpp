// See processes.hpp.
#include "jail/processes.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/parallel.hpp"
#include "measure/process_usage.hpp"

namespace rooflane::jail {

namespace {

// The folder of each of its threads.
void for_each_task(pid_t process, FunctionRef<void(const std::filesystem::path&)> see) {
  std::error_code gone;
  const std::string tasks = fmt::format("/proc/{}/task", process);
  for (std::filesystem::directory_iterator task(tasks, gone), end; !gone && task != end;
       task.increment(gone)) {
    see(task->path());
  }
}

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> children;
  for_each_task(process, [&](const std::filesystem::path& task) {
    std::ifstream file(task / "children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  });
  return children;
}

bool clear_references(pid_t process, const char* kind) {
  std::ofstream file(fmt::format("/proc/{}/clear_refs", process));
  return static_cast<bool>(file << kind << std::flush);
}

// From now on the system notes which pages the process touches. False where it does not.
bool forget_touches(pid_t process) {
  // The second kind is about writes; unlike the first it makes CPUs look at the page tables again.
  return clear_references(process, "1") && clear_references(process, "4");
}

bool touched(pid_t process, const std::string& name) {
  std::ifstream file(fmt::format("/proc/{}/smaps", process));
  bool named = false;
  for (std::string line; std::getline(file, line);) {
    if (line.find(" kB") == std::string::npos) {
      named = line.find("/memfd:" + name) != std::string::npos;
    } else if (named && line.starts_with("Referenced:") && line.find(" 0 kB") == line.npos) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<pid_t> processes_below(pid_t process) {
  std::vector<pid_t> found = {process};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const pid_t child : children_of(found[i])) found.push_back(child);
  }
  return found;
}

pid_t innermost(pid_t process) {
  while (true) {
    const std::vector<pid_t> children = children_of(process);
    if (children.empty()) return process;
    process = children.front();
  }
}

std::size_t resident_bytes_below(pid_t process) {
  std::size_t bytes = 0;
  for (const pid_t each : processes_below(process)) {
    bytes += static_cast<std::size_t>(resident_bytes(each));
  }
  return bytes;
}

std::map<pid_t, double> cpu_times_below(pid_t process) {
  std::map<pid_t, double> times;
  for (const pid_t each : processes_below(process)) times[each] = cpu_time_ns(each);
  return times;
}

double cpu_time_since(const std::map<pid_t, double>& before, pid_t process) {
  double used = 0;
  for (const auto& [each, time] : cpu_times_below(process)) {
    const auto then = before.find(each);
    used += std::max(0.0, time - (then != before.end() ? then->second : 0));
  }
  return used;
}

std::set<std::string> runnable_below(pid_t process) {
  std::set<std::string> found;
  for (const pid_t each : processes_below(process)) {
    for_each_task(each, [&](const std::filesystem::path& task) {
      std::string line;
      std::getline(std::ifstream(task / "stat"), line);
      // Its state comes behind its name, which may hold anything.
      const std::size_t name_end = line.rfind(')');
      if (name_end != line.npos && line.compare(name_end, 3, ") R") == 0) found.insert(task);
    });
  }
  return found;
}

void stop_below(pid_t process) {
  kill(-process, SIGSTOP);  // all that are in its group at once: a fork bomb is faster than a list
  std::set<pid_t> stopped;
  for (bool more = true; more;) {
    more = false;
    for (const pid_t each : processes_below(process)) {
      if (!stopped.insert(each).second) continue;
      more = kill(each, SIGSTOP) == 0 || more;
    }
  }
}

void continue_below(pid_t process) {
  kill(-process, SIGCONT);
  for (const pid_t each : processes_below(process)) kill(each, SIGCONT);
}

bool touches_memory(pid_t process, const std::string& name, unsigned within_us) {
  constexpr std::size_t most = 8;  // what their pages are costs a walk through all of them
  std::vector<pid_t> all = processes_below(process);
  all.resize(std::min(all.size(), most));
  // What looks for idle pages (DAMON, reclaim) moves an entry's mark to the page, which all
  // processes share: what this process touched earlier would count as touched by those.
  clear_references(getpid(), "1");
  std::vector<pid_t> watched;
  std::copy_if(all.begin(), all.end(), std::back_inserter(watched), forget_touches);
  usleep(within_us);
  return std::any_of(watched.begin(), watched.end(),
                     [&](pid_t each) { return touched(each, name); });
}

}  // namespace rooflane::jail
