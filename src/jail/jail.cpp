// Starting processes in bubblewrap. See jail.hpp.
#include "jail/jail.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/landlock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "jail/runner_protocol.hpp"
#include "jail/seccomp.hpp"

namespace rooflane::jail {

namespace {

namespace fs = std::filesystem;

// Behind runner_socket. bubblewrap reads its filter here.
constexpr int filter_descriptor = 4;
// Debian's `nobody`: who a jail's processes are when this one is root's.
constexpr unsigned nobody = 65534;
constexpr const char* folder_inside = "/judge";

std::string find_program(const char* name) {
  const char* const path = std::getenv("PATH");
  std::string folders = path != nullptr ? path : "/usr/bin:/bin";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string file = folders.substr(begin, end - begin) + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return {};
}

bool has_landlock() {
  return syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) > 0;
}

// Whether memory that two processes share may have huge pages, as a process's own has: where it
// does not, large operands cost a judged kernel more.
bool has_shared_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string words;
  std::getline(file, words);
  return file && words.find("[never]") == std::string::npos &&
         words.find("[deny]") == std::string::npos;
}

// The system as the jail has it, read-only: programs, libraries and what finds them. No home, no
// host's /tmp, no configuration beyond the loader's.
void bind_system(std::vector<std::string>& words) {
  words.insert(words.end(), {"--ro-bind", "/usr", "/usr"});
  for (const char* const folder : {"/bin", "/sbin", "/lib", "/lib32", "/lib64"}) {
    std::error_code ignored;
    if (fs::is_symlink(folder, ignored)) {
      words.insert(words.end(), {"--symlink", fs::read_symlink(folder, ignored), folder});
    } else {
      words.insert(words.end(), {"--ro-bind-try", folder, folder});
    }
  }
  for (const char* const path :
       {"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives",
        "/etc/OpenCL", "/opt", "/sys/devices/system/cpu", "/sys/devices/system/node"}) {
    words.insert(words.end(), {"--ro-bind-try", path, path});
  }
}

std::vector<std::string> words_of_runner(const Settings& settings) {
  const bool jailed = settings.kind == Kind::bubblewrap;
  const Limits& limits = settings.limits;
  // A compiler writes where it is told; its folder is writable and nothing else is.
  std::vector<std::string> words = {inside(settings) + "/" + runner_name,
                                    std::to_string(limits.memory_bytes),
                                    std::to_string(jailed ? limits.processes : 0),
                                    std::to_string(limits.file_bytes),
                                    std::to_string(limits.cpu_seconds),
                                    jailed && !settings.folder_writable ? "1" : "0"};
  words.insert(words.end(), settings.command.begin(), settings.command.end());
  return words;
}

std::vector<std::string> words_of(const Settings& settings, bool filtered) {
  std::vector<std::string> words;
  if (settings.kind == Kind::bubblewrap) {
    words = {find_program("bwrap"), "--unshare-all", "--die-with-parent", "--hostname", "judge"};
    bind_system(words);
    words.insert(words.end(), {"--proc", "/proc", "--dev", "/dev", "--size",
                               std::to_string(std::uint64_t{256} << 20), "--tmpfs", "/tmp",
                               settings.folder_writable ? "--bind" : "--ro-bind", settings.folder,
                               folder_inside, "--chdir", folder_inside, "--clearenv"});
    for (const auto& [name, value] : settings.environment) {
      words.insert(words.end(), {"--setenv", name, value});
    }
    if (filtered) {
      words.insert(words.end(), {"--seccomp", std::to_string(filter_descriptor)});
    }
    words.emplace_back("--");
  }
  const std::vector<std::string> runner = words_of_runner(settings);
  words.insert(words.end(), runner.begin(), runner.end());
  return words;
}

int file_with(const std::vector<sock_filter>& program) {
  const int file = memfd_create("rooflane-filter", MFD_CLOEXEC);
  const std::size_t bytes = program.size() * sizeof(sock_filter);
  if (file < 0 || write(file, program.data(), bytes) != static_cast<ssize_t>(bytes) ||
      lseek(file, 0, SEEK_SET) != 0) {
    throw unavailable_error("no file in memory can be made for the filter of system calls");
  }
  return file;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Behind fork: only what is safe there.
struct Prepared {
  const char* const* words;
  const char* const* environment;
  int socket, filter, output, group;
  pid_t parent;
  bool drops_root;
  const char* folder;  // to begin in; null where bubblewrap goes there
};

// Why nothing could be started, for whoever reads the output.
[[noreturn]] void give_up(int status, const char* reason) {
  if (write(STDERR_FILENO, reason, std::strlen(reason)) < 0) _exit(status);
  _exit(status);
}

[[noreturn]] void become(const Prepared& prepared) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != prepared.parent) _exit(125);
  setpgid(0, 0);
  if (prepared.group >= 0 && write(prepared.group, "0", 1) != 1) {
    give_up(125, "the process cannot move into its control group\n");
  }
  const int nowhere = open("/dev/null", O_RDWR);
  const int output = prepared.output >= 0 ? prepared.output : nowhere;
  dup2(nowhere, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  // Both may stand where the other goes.
  const int socket = prepared.socket >= 0 ? fcntl(prepared.socket, F_DUPFD, 16) : -1;
  const int filter = prepared.filter >= 0 ? fcntl(prepared.filter, F_DUPFD, 16) : -1;
  if (socket >= 0) dup2(socket, runner_socket);
  if (filter >= 0) dup2(filter, filter_descriptor);
  if (socket < 0) close(runner_socket);
  syscall(SYS_close_range, filter >= 0 ? filter_descriptor + 1 : filter_descriptor, ~0u, 0);
  if (prepared.drops_root) {
    if (setgroups(0, nullptr) != 0 || setresgid(nobody, nobody, nobody) != 0 ||
        setresuid(nobody, nobody, nobody) != 0) {
      give_up(125, "root cannot become the user nobody, as in some containers: be another user\n");
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // other credentials forget it
  }
  if (prepared.folder != nullptr && chdir(prepared.folder) != 0) {
    give_up(125, "the folder cannot be entered\n");
  }
  execve(prepared.words[0], const_cast<char* const*>(prepared.words),
         const_cast<char* const*>(prepared.environment));
  give_up(127, "the program cannot be executed\n");
}

}  // namespace

std::string_view name_of(Kind kind) { return kind == Kind::bubblewrap ? "bubblewrap" : "unsafe"; }

Means means_of(Kind kind) {
  Means means;
  const auto note = [&](bool there, const char* what) {
    (there && kind == Kind::bubblewrap ? means.has : means.lacks).emplace_back(what);
  };
  note(true, "namespaces");
  note(!system_call_filter(false).empty(), "seccomp");
  note(has_landlock(), "landlock");
  (has_shared_huge_pages() ? means.has : means.lacks).emplace_back("huge pages");
  note(Group::can_be_made(), "cgroup");
  means.has.emplace_back("limits");
  return means;
}

std::string inside(const Settings& settings) {
  return settings.kind == Kind::bubblewrap ? folder_inside : settings.folder;
}

std::string home_of(Kind kind, const std::string& folder) {
  return kind == Kind::bubblewrap ? "/tmp" : folder;
}

std::string runner_program() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path program = self.parent_path() / runner_name;
  if (error || access(program.c_str(), R_OK) != 0) {
    throw unavailable_error(
        fmt::format("'{}' is missing, in which judged kernels run", program.string()));
  }
  return program;
}

void place_runner(const std::string& folder) {
  std::error_code error;
  const fs::path placed = fs::path(folder) / runner_name;
  fs::copy_file(runner_program(), placed, fs::copy_options::overwrite_existing, error);
  if (!error) fs::permissions(placed, fs::perms(0755), error);
  if (!error) fs::permissions(folder, fs::perms(0755), error);
  if (error) {
    throw unavailable_error(
        fmt::format("the runner cannot be copied to '{}': {}", folder, error.message()));
  }
}

Group group_for(Kind kind, std::uint64_t processes) {
  constexpr std::uint64_t of_bubblewrap = 8;  // two processes, and threads that begin
  constexpr std::uint64_t least_bytes = std::uint64_t{1} << 30;  // as compilers may take
  const std::uint64_t memory = available_memory_bytes() / 2;
  if (kind != Kind::bubblewrap || memory < least_bytes) return {};
  return {memory, processes > 0 ? processes + of_bubblewrap : 0};
}

pid_t start(const Settings& settings, const Group& group) {
  const std::vector<sock_filter> filter = system_call_filter(settings.compiles);
  const bool jailed = settings.kind == Kind::bubblewrap;
  std::vector<std::string> words = words_of(settings, !filter.empty());
  if (words.front().empty()) throw unavailable_error("bubblewrap (bwrap) is not installed");
  std::vector<std::string> environment;
  for (const auto& [name, value] : settings.environment) {
    environment.push_back(fmt::format("{}={}", name, value));
  }
  const std::vector<char*> word_pointers = pointers_to(words);
  const std::vector<char*> environment_pointers = pointers_to(environment);
  Prepared prepared{word_pointers.data(),
                    environment_pointers.data(),
                    settings.socket,
                    -1,
                    -1,
                    group.procs(),
                    getpid(),
                    jailed && geteuid() == 0,
                    jailed ? nullptr : settings.folder.c_str()};
  if (jailed && !filter.empty()) prepared.filter = file_with(filter);
  if (!settings.output_path.empty()) {
    prepared.output =
        open(settings.output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  }
  const pid_t child = fork();
  if (child == 0) become(prepared);
  for (const int file : {prepared.filter, prepared.output}) {
    if (file >= 0) close(file);
  }
  if (child < 0) throw unavailable_error("no process can be started for the jail");
  setpgid(child, child);
  return child;
}

Outcome run(const Settings& settings, double seconds) {
  const Group group = group_for(settings.kind, settings.limits.processes);
  const pid_t child = start(settings, group);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      end(child);
      return {128 + SIGKILL, true, false};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  kill(-child, SIGKILL);  // what it may have left
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), false,
          group.ran_out_of_memory()};
}

void end(pid_t group) {
  kill(-group, SIGKILL);
  kill(group, SIGKILL);
  waitpid(group, nullptr, 0);
}

std::string defect(const std::string& folder) {
  if (find_program("bwrap").empty()) {
    return "bubblewrap is not installed (Debian's package bubblewrap, scripts/setup.sh)";
  }
  Settings settings;
  settings.folder = folder;
  settings.command = {"/bin/true"};
  settings.output_path = folder + "/jail.log";
  const Outcome outcome = run(settings, 20);
  if (outcome.status == 0) return {};
  std::ifstream file(settings.output_path);
  std::string line;
  std::getline(file, line);
  return fmt::format("bubblewrap makes no jail here ({}). It needs user namespaces, which {}",
                     line.empty() ? fmt::format("status {}", outcome.status) : line,
                     who_refuses_namespaces("/proc/sys"));
}

std::string who_refuses_namespaces(const std::string& settings) {
  constexpr struct {
    const char *path, *refusing;
  } known[] = {{"user/max_user_namespaces", "0"},
               {"kernel/unprivileged_userns_clone", "0"},
               {"kernel/apparmor_restrict_unprivileged_userns", "1"}};
  for (const auto& setting : known) {
    std::ifstream file(settings + "/" + setting.path);
    std::string value;
    if (!(file >> value) || value != setting.refusing) continue;
    std::string name = setting.path;
    std::replace(name.begin(), name.end(), '/', '.');
    return fmt::format("the setting {}={} refuses (docs/judge.md says what to do)", name, value);
  }
  return "a container or a chroot may refuse";
}

}  // namespace rooflane::jail
