// Folders and files below /sys/fs/cgroup. See group.hpp.
#include "jail/group.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
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
constexpr std::string_view prefix = "rooflane-jail-";

bool put(const std::string& path, std::uint64_t value) {
  std::ofstream file(path);
  return static_cast<bool>(file << value << std::flush);
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

// A process that was killed leaves its groups behind, empty.
void remove_orphans(const std::string& folder) {
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

}  // namespace

std::string folder_of_groups(const std::string& root) {
  for (const ControlGroups& groups : control_groups("memory", root)) {
    if (groups.version != 2) continue;
    // A group with processes gives its controllers to none below it, unless it is the outermost.
    const std::string& folder = groups.folders.at(groups.folders.size() > 1 ? 1 : 0);
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

Group::Group(std::uint64_t memory_bytes, std::uint64_t processes) {
  static const std::string parent = folder_of_groups();
  static int made = 0;
  if (parent.empty()) return;
  remove_orphans(parent);
  const std::string folder = fmt::format("{}/{}{}-{}", parent, prefix, getpid(), ++made);
  std::error_code error;
  if (!fs::create_directory(folder, error)) return;
  door_ = open((folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
  if (door_ < 0 || !put(folder + "/memory.max", memory_bytes) ||
      !put(folder + "/pids.max", processes)) {
    if (door_ >= 0) close(door_);
    door_ = -1;
    rmdir(folder.c_str());
    return;
  }
  folder_ = folder;
  put(folder + "/memory.swap.max", 0);   // where there is swap
  put(folder + "/memory.oom.group", 1);  // all of them, not the largest
}

Group::~Group() {
  if (!exists()) return;
  close(door_);
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
  return exists() && number_behind(folder_ + "/memory.events", "oom_kill") > 0;
}

}  // namespace rooflane::jail
