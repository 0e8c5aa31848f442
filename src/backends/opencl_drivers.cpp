// Each try is a child that opens the drivers as this process would. See opencl_drivers.hpp.
#include "backends/opencl_drivers.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "core/text.hpp"

namespace rooflane::opencl {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// The loader's variables: a folder of *.icd files, and libraries beside them, with colons between.
constexpr const char* folder_variable = "OCL_ICD_VENDORS";
constexpr const char* libraries_variable = "OCL_ICD_FILENAMES";

// Sets a variable for as long as it lives.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Setting() {
    if (old_) {
      setenv(name_, old_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

struct Driver {
  std::string name;
  fs::path file;  // empty: a library of $OCL_ICD_FILENAMES
};

// In the order of their files' names, libraries last; no file where the variable for the folder
// names a single driver.
std::vector<Driver> drivers_here() {
  const char* folder = std::getenv(folder_variable);
  std::vector<Driver> drivers;
  std::error_code failed;
  for (const auto& entry :
       fs::directory_iterator(folder != nullptr ? folder : "/etc/OpenCL/vendors", failed)) {
    if (entry.path().extension() != ".icd") continue;
    drivers.push_back({entry.path().filename().string(), fs::absolute(entry.path(), failed)});
  }
  std::sort(drivers.begin(), drivers.end(),
            [](const Driver& x, const Driver& y) { return x.name < y.name; });
  const char* libraries = std::getenv(libraries_variable);
  for (const std::string_view name : split(libraries != nullptr ? libraries : "", ':')) {
    if (!name.empty()) drivers.push_back({std::string(name), {}});
  }
  return drivers;
}

// What the child does; never returns. Its words go to `output`.
[[noreturn]] void open_in_child(const std::function<void()>& open, int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // Whoever handles these for this process must not handle them for a driver's sake.
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE}) ::signal(signal, SIG_DFL);
  const int nothing = ::open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  open();
  _exit(0);
}

// The last line that is not empty, fit for a reason.
std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \r\n");
  if (end == std::string::npos) return "";
  const std::size_t before = text.find_last_of('\n', end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  constexpr std::size_t most = 200;
  std::string line = text.substr(begin, std::min(end + 1 - begin, most));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return line;
}

// How a child ended that calls `open`; nothing where it returned.
std::optional<std::string> failure_of(const std::function<void()>& open,
                                      std::chrono::milliseconds patience) {
  int output[2];
  if (pipe2(output, O_CLOEXEC | O_NONBLOCK) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) open_in_child(open, output[1]);
  ::close(output[1]);
  std::string words;
  int status = 0;
  pid_t ended = child < 0 ? child : 0;
  const auto read_words = [&] {
    char chunk[4096];
    for (ssize_t n; (n = read(output[0], chunk, sizeof chunk)) > 0;) {
      words.append(chunk, static_cast<std::size_t>(n));
    }
  };
  const auto deadline = Clock::now() + patience;
  bool hangs = false;
  while (ended == 0) {
    pollfd waited{output[0], POLLIN, 0};
    // Its end closes the pipe; a pause where something that the driver started holds it open.
    if (poll(&waited, 1, 10) > 0 && (waited.revents & POLLIN) == 0)
      std::this_thread::sleep_for(1ms);
    read_words();
    if (!hangs && Clock::now() > deadline) {
      hangs = true;
      kill(child, SIGKILL);
    }
    ended = waitpid(child, &status, WNOHANG);
  }
  read_words();
  ::close(output[0]);
  // No child could be had, or somebody else waited for it: nothing is known against the driver.
  if (ended < 0) return std::nullopt;
  const std::string said = last_line(words);
  const std::string quoted = said.empty() ? "" : ": " + said;
  if (hangs) {
    return fmt::format("no answer within {:g} s{}", std::chrono::duration<double>(patience).count(),
                       quoted);
  }
  if (WIFSIGNALED(status)) return signal_name(WTERMSIG(status)) + quoted;
  if (WEXITSTATUS(status) != 0) {
    return fmt::format("it exited with status {}{}", WEXITSTATUS(status), quoted);
  }
  return std::nullopt;
}

}  // namespace

std::int64_t pocl_major(std::string_view platform_version) {
  constexpr std::string_view mark = "PoCL ";
  const std::size_t at = platform_version.find(mark);
  if (at == std::string_view::npos) return 0;
  const std::string_view release = platform_version.substr(at + mark.size());
  return parse_integer(release.substr(0, release.find('.'))).value_or(0);
}

// PoCL 5.0.1, Ubuntu 24.04's: an assertion in its Kernel.cc fails for GEMM (work-group methods
// loopvec and auto), and attention's tiles come out wrong under every method.
std::optional<std::string> compiler_fault(std::string_view platform_version) {
  if (pocl_major(platform_version) != 5) return std::nullopt;
  return "PoCL 5 aborts the process on barriers in loops and loses stores of groups of several "
         "items: install PoCL 3, 4 or 6, or another OpenCL driver";
}

TriedDrivers::TriedDrivers(const std::function<void()>& open, std::chrono::milliseconds patience) {
  const auto failure = failure_of(open, patience);
  if (!failure) return;
  const std::vector<Driver> drivers = drivers_here();
  any_works_ = false;
  if (drivers.size() <= 1) {
    const char* chosen = std::getenv(folder_variable);
    const std::string name = !drivers.empty()    ? drivers.front().name
                             : chosen != nullptr ? chosen
                                                 : "the loader";
    broken_.push_back({name, *failure});
    return;
  }
  folder_.emplace();
  for (const Driver& driver : drivers) {
    const TemporaryFolder alone;
    std::error_code failed;
    if (!driver.file.empty()) fs::create_symlink(driver.file, alone / driver.name, failed);
    const Setting folder(folder_variable, alone.path());
    const Setting library(libraries_variable, driver.file.empty() ? driver.name : "");
    if (auto reason = failure_of(open, patience)) {
      broken_.push_back({driver.name, std::move(*reason)});
      continue;
    }
    any_works_ = true;
    if (driver.file.empty()) {
      libraries_ += (libraries_.empty() ? "" : ":") + driver.name;
    } else {
      fs::create_symlink(driver.file, *folder_ / driver.name, failed);
    }
  }
  // Each works alone, so they do not work together: none can be trusted.
  if (broken_.empty()) {
    broken_.push_back({"the drivers together", *failure});
    any_works_ = false;
  }
}

void TriedDrivers::open_working(const std::function<void()>& open) const {
  if (!any_works_) return;
  if (!folder_) {
    open();
    return;
  }
  const Setting folder(folder_variable, folder_->path());
  const Setting libraries(libraries_variable, libraries_);
  open();
}

}  // namespace rooflane::opencl
