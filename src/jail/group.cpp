// Folders and files below /sys/fs/cgroup. See group.hpp.
#include "jail/group.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "core/control_group.hpp"

namespace rooflane::jail {

namespace {

namespace fs = std::filesystem;

template <class Value>
bool put(const std::string& path, const Value& value) {
  std::ofstream file(path);
  return static_cast<bool>(file << value << std::flush);
}

std::string first_word_of(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

// Whether what leaves this group is rid of limits that peers, which stay, obey.
bool has_limits(const std::string& group) {
  const auto is_limit = [](const std::string& word) { return !word.empty() && word != "max"; };
  return is_limit(first_word_of(group + "/cpu.max")) ||
         is_limit(first_word_of(group + "/memory.max")) ||
         !first_word_of(group + "/cpuset.cpus").empty();
}

// The number behind a word of a file of lines of both; 0 where there is none.
std::uint64_t number_behind(const std::string& path, std::string_view word) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  for (std::string name; file >> name >> number;) {
    if (name == word) return number;
  }
  return 0;
}

// Numbers of processes mean something in one namespace of processes only; containers of several may
// lie in one group.
std::string prefix_here() {
  struct stat names = {};
  stat("/proc/self/ns/pid", &names);
  return fmt::format("rooflane-jail-{}-", names.st_ino);
}

std::string name_of_group(int number) {
  return fmt::format("{}{}-{}", prefix_here(), getpid(), number);
}

void remove_orphans(const std::string& folder) {
  const std::string prefix = prefix_here();
  std::error_code gone;
  for (fs::directory_iterator entry(folder, gone), end; !gone && entry != end;
       entry.increment(gone)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(prefix)) continue;
    pid_t owner = 0;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), owner);
    if (owner > 0 && kill(owner, 0) != 0 && errno == ESRCH) rmdir(entry->path().c_str());
  }
}

// Whether a process can move into a group that is made there, and be frozen: who may write the
// files may still lie outside the namespace of groups.
bool can_be_used(const std::string& folder) {
  const std::string group = folder + "/" + name_of_group(0);
  std::error_code error;
  if (!fs::create_directory(group, error)) return false;
  const int procs = open((group + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
  bool moves = false;
  if (procs >= 0) {
    const pid_t child = fork();
    if (child == 0) _exit(write(procs, "0", 1) == 1 ? 0 : 1);
    int status = 1;
    moves = child > 0 && waitpid(child, &status, 0) == child && status == 0;
    close(procs);
  }
  const bool freezes = put(group + "/cgroup.freeze", 0);
  rmdir(group.c_str());
  return moves && freezes;
}

// Empty: none.
const std::string& parent_of_groups() {
  static const std::string parent = [] {
    const std::string folder = folder_of_groups();
    if (!folder.empty()) remove_orphans(folder);  // of a judge that was killed
    return !folder.empty() && can_be_used(folder) ? folder : std::string();
  }();
  return parent;
}

}  // namespace

std::string folder_of_groups(const std::string& root) {
  for (const ControlGroups& groups : control_groups("memory", root)) {
    if (groups.version != 2) continue;
    // A group with processes gives its controllers to none below it, unless it is the outermost.
    const bool is_outermost = groups.folders.size() == 1;
    if (!is_outermost && has_limits(groups.folders[0])) continue;
    const std::string& folder = groups.folders.at(is_outermost ? 0 : 1);
    std::ifstream file(folder + "/cgroup.subtree_control");
    bool memory = false, processes = false;
    for (std::string controller; file >> controller;) {
      memory = memory || controller == "memory";
      processes = processes || controller == "pids";
    }
    const bool may =
        access(folder.c_str(), W_OK) == 0 && access((folder + "/cgroup.procs").c_str(), W_OK) == 0;
    if (memory && processes && may) return folder;
  }
  return {};
}

bool Group::can_be_made() { return !parent_of_groups().empty(); }

void Group::remove_left_ones() {
  if (can_be_made()) remove_orphans(parent_of_groups());
}

Group::Group(std::uint64_t memory_bytes, std::uint64_t processes) : memory_bytes_(memory_bytes) {
  static int made = 0;
  if (!can_be_made()) return;
  const std::string folder = parent_of_groups() + "/" + name_of_group(++made);
  std::error_code error;
  if (!fs::create_directory(folder, error)) return;
  procs_ = open((folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
  if (procs_ < 0 || !put(folder + "/memory.max", memory_bytes) ||
      (processes > 0 && !put(folder + "/pids.max", processes))) {
    if (procs_ >= 0) close(procs_);
    procs_ = -1;
    rmdir(folder.c_str());
    return;
  }
  folder_ = folder;
  put(folder + "/memory.swap.max", 0);   // where there is swap
  put(folder + "/memory.oom.group", 1);  // all of them, not the largest
}

Group::~Group() {
  if (!exists()) return;
  close(procs_);
  put(folder_ + "/cgroup.kill", 1);
  constexpr int patience = 400;  // 2 s: a process that was killed still frees its memory
  for (int i = 0; i < patience && rmdir(folder_.c_str()) != 0 && errno == EBUSY; ++i) usleep(5000);
}

void Group::freeze() const {
  put(folder_ + "/cgroup.freeze", 1);
  constexpr int patience = 2000;  // 0.1 s
  for (int i = 0; i < patience && number_behind(folder_ + "/cgroup.events", "frozen") == 0; ++i) {
    usleep(50);
  }
}

void Group::thaw() const { put(folder_ + "/cgroup.freeze", 0); }

bool Group::ran_out_of_memory() const {
  const std::string events = folder_ + "/memory.events";
  // "oom" alone: what was asked for was refused; "oom_kill" alone: all of the machine's memory.
  return exists() && number_behind(events, "oom") > 0 && number_behind(events, "oom_kill") > 0;
}

}  // namespace rooflane::jail
