// Which core type OpenBLAS runs best at on this CPU, and which architecture BLIS: each one that the
// CPU can run is timed once, in a child process of its own, and the answer is kept on disk (BLIS
// 0.9 takes Zen 5 for `generic`, a tenth of its speed). Opening a library: cblas.cpp.
//
// Why children: OpenBLAS reads OPENBLAS_CORETYPE in its constructor and never again, and a kernel
// for another CPU may die by SIGILL. A child is a fork without exec, because the program that links
// this library has no verb to re-execute. In the child the environment is set, the library opened,
// one thread's sgemm timed and one line written to a pipe; then it leaves by _exit, so no handler
// of the parent runs. Where the parent already holds the library, its constructor has run; the
// child then opens a copy in memory, which the loader takes for another file.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "backends/cblas.hpp"
#include "backends/cblas_load.hpp"
#include "core/cache_folder.hpp"
#include "core/seeds.hpp"
#include "core/text.hpp"

namespace rooflane::cblas {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A core type and what /proc/cpuinfo must list for its kernels to run.
struct CoreType {
  const char* name;
  std::vector<std::string_view> needs;
};

const std::vector<CoreType>& core_types() {
  static const std::vector<CoreType> types = {
      {"SapphireRapids", {"avx512bw", "avx512_bf16", "avx512_fp16", "amx_tile"}},
      {"Cooperlake", {"avx512bw", "avx512dq", "avx512vl", "avx512_bf16"}},
      {"SkylakeX", {"avx512bw", "avx512dq", "avx512vl", "avx512cd"}},
      {"Zen", {"avx2", "fma"}},
      {"Haswell", {"avx2", "fma"}},
      {"Sandybridge", {"avx"}},
      {"Nehalem", {"sse4_2"}},
  };
  return types;
}

// BLIS knows its architectures by number, which BLIS_ARCH_TYPE takes; here they are `blis:NUMBER`.
// It aborts for those that it was built without. BLIS 1.0 has 26.
constexpr std::string_view blis_prefix = "blis:";
constexpr int blis_architectures = 32;

struct Cpu {
  std::string identity;  // name, family, model, stepping, flags
  std::vector<std::string> flags;
};

const Cpu& cpu() {
  static const Cpu result = [] {
    Cpu read;
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line) && !line.empty();) {  // the first CPU's block
      const auto colon = line.find(':');
      if (colon == std::string::npos) continue;
      const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
      const std::string value = line.substr(std::min(line.size(), colon + 2));
      if (key == "flags") {
        for (const std::string_view flag : split(value, ' ')) read.flags.emplace_back(flag);
      }
      // x86's facts, and ARM's; what else is there changes from one reading to the next.
      constexpr std::string_view facts[] = {
          "model name",      "cpu family", "model",       "stepping",     "flags",
          "CPU implementer", "CPU part",   "CPU variant", "CPU revision", "Features"};
      if (std::find(std::begin(facts), std::end(facts), key) != std::end(facts)) {
        read.identity += value + "/";
      }
    }
    return read;
  }();
  return result;
}

bool runs_here(const CoreType& type) {
  const auto& flags = cpu().flags;
  return std::all_of(type.needs.begin(), type.needs.end(), [&](std::string_view need) {
    return std::find(flags.begin(), flags.end(), need) != flags.end();
  });
}

// --- the child -----------------------------------------------------------------------------------

// A copy of `file` in memory, under a path that dlopen accepts.
std::string copy_in_memory(const std::string& file) {
  const int copy = memfd_create("cblas", 0);
  std::ifstream in(file, std::ios::binary);
  std::vector<char> block(std::size_t{1} << 20);
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0) {
    const char* at = block.data();
    for (std::streamsize left = in.gcount(); left > 0;) {
      const ssize_t written = write(copy, at, static_cast<std::size_t>(left));
      if (written <= 0) _exit(1);
      at += written;
      left -= written;
    }
  }
  return fmt::format("/proc/self/fd/{}", copy);
}

// Least time of one thread's c = a·b, [n,n]·[n,n], in nanoseconds.
double time_sgemm(const Library& library) {
  constexpr int n = 640;   // 0.5 GFLOP: some 10 ms at 50 GFLOPS, far above the cost of a call
  constexpr int runs = 6;  // the first pays page faults and warms the clock; the least counts
  constexpr std::size_t elements = std::size_t{n} * n;
  std::vector<float> a(elements, 0.5f), b(elements, 0.25f), c(elements);
  library.set_num_threads(1);
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < runs; ++run) {
    const auto start = Clock::now();
    library.sgemm(row_major, no_trans, no_trans, n, n, n, 1.0f, a.data(), n, b.data(), n, 0.0f,
                  c.data(), n);
    least = std::min(least, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  return least;
}

[[noreturn]] void child(int out, const std::string& file, const std::string& core_type) {
  const int null = ::open("/dev/null", O_RDWR);
  dup2(null, STDOUT_FILENO);  // the library may warn of a core type it lacks
  dup2(null, STDERR_FILENO);
  const rlimit no_core_dump = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core_dump);
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGTERM}) {
    std::signal(signal, SIG_DFL);  // not the parent's handlers
  }
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  setenv("BLIS_NUM_THREADS", "1", 1);
  unsetenv("OPENBLAS_CORETYPE");
  unsetenv("BLIS_ARCH_TYPE");
  if (core_type.starts_with(blis_prefix)) {
    setenv("BLIS_ARCH_TYPE", core_type.c_str() + blis_prefix.size(), 1);
  } else if (!core_type.empty()) {
    setenv("OPENBLAS_CORETYPE", core_type.c_str(), 1);
  }
  try {
    const bool held = dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD) != nullptr;
    const auto library = load(held ? copy_in_memory(file) : file, file);
    const bool openblas = library->description.starts_with("OpenBLAS");
    const bool blis = library->description.starts_with("BLIS");
    const std::string core = library->description.substr(library->description.rfind(' ') + 1);
    const std::string line =
        openblas || blis
            ? fmt::format("{}{} {:.0f}\n", blis ? blis_prefix : "", core, time_sgemm(*library))
            : "- 0\n";
    _exit(write(out, line.data(), line.size()) == static_cast<ssize_t>(line.size()) ? 0 : 1);
  } catch (...) {
    _exit(1);
  }
}

// --- the parent ----------------------------------------------------------------------------------

struct Answer {
  std::string core_type;  // as read back from the library; "-": neither OpenBLAS nor BLIS
  double ns = 0;
};

// What a child found at `core_type` (empty: the library's own choice). Nothing when it crashed,
// hung or wrote something else.
std::optional<Answer> ask_child(const std::string& file, const std::string& core_type) {
  constexpr auto patience = std::chrono::seconds(20);  // 100 times what the slowest should take
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  const pid_t pid = fork();
  if (pid == 0) child(ends[1], file, core_type);
  close(ends[1]);
  std::string line;
  const auto deadline = Clock::now() + patience;
  while (pid > 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready = {ends[0], POLLIN, 0};
    const int polled = left > 0 ? poll(&ready, 1, static_cast<int>(left)) : 0;
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) break;
    char block[128];
    const ssize_t got = read(ends[0], block, sizeof block);
    if (got <= 0) break;
    line.append(block, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  if (pid < 0) return std::nullopt;
  kill(pid, SIGKILL);  // it has written all it will ever write, or hangs
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (line.empty() || line.back() != '\n') return std::nullopt;
  line.pop_back();
  const auto words = split(line, ' ');
  const auto ns = words.size() == 2 ? parse_real(words[1]) : std::nullopt;
  if (!ns) return std::nullopt;
  return Answer{std::string(words[0]), *ns};
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return std::tolower(x) == std::tolower(y); });
}

constexpr double noise = 0.03;  // equal kernels under two names differ by this much

// The fastest of BLIS's architectures as `blis:NUMBER`; "-": the one that it takes by itself.
std::string measure_architecture(const std::string& file, double least) {
  std::string best = "-";
  for (int number = 0; number < blis_architectures; ++number) {
    const std::string candidate = fmt::format("{}{}", blis_prefix, number);
    const std::optional<Answer> answer = ask_child(file, candidate);
    if (!answer || answer->ns >= least) continue;
    best = candidate;
    least = answer->ns * (1 - noise);
  }
  return best;
}

// The fastest core type's name as OPENBLAS_CORETYPE takes it, or of BLIS `blis:NUMBER`; "-":
// nothing to set. Nothing when the library could not be opened in a child.
std::optional<std::string> measure_core_type(const std::string& file) {
  const std::optional<Answer> own_choice = ask_child(file, "");
  if (!own_choice) return std::nullopt;
  std::string best = own_choice->core_type;
  if (best == "-") return best;
  double least = own_choice->ns * (1 - noise);
  if (best.starts_with(blis_prefix)) return measure_architecture(file, least);
  for (const CoreType& type : core_types()) {
    if (!runs_here(type) || same_name(type.name, own_choice->core_type)) continue;
    const std::optional<Answer> answer = ask_child(file, type.name);
    // The library reports another name: the build lacks this type and took another one, which is
    // timed under its own name.
    if (!answer || !same_name(answer->core_type, type.name) || answer->ns >= least) continue;
    best = answer->core_type;
    least = answer->ns * (1 - noise);
  }
  return best;
}

// --- the cache -----------------------------------------------------------------------------------

// One small file per CPU and library: a line that repeats the key, the answer, an end mark.
// Anything else in it is corrupted and measured again.
struct CacheEntry {
  std::string key;
  fs::path file;  // empty: no directory to keep it in
};

CacheEntry cache_entry(const std::string& file) {
  CacheEntry entry;
  std::error_code failed;
  const fs::path real = fs::canonical(file, failed);
  struct stat facts {};
  if (failed || stat(real.c_str(), &facts) != 0) return entry;
  entry.key = fmt::format("{}{} {} {} {}.{:09}", cpu().identity, real.string(), facts.st_ino,
                          facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
  const fs::path directory = cache_folder();
  if (directory.empty()) return entry;
  entry.file = directory / fmt::format("blas-core-type-{:016x}", fnv1a64(entry.key));
  return entry;
}

constexpr const char* last_line = "end";  // a file cut short lacks it

std::optional<std::string> read_cache(const CacheEntry& entry) {
  std::ifstream in(entry.file);
  std::string key, answer, end;
  std::getline(in, key);
  std::getline(in, answer);
  std::getline(in, end);
  if (key != entry.key || answer.empty() || end != last_line) return std::nullopt;
  return answer;
}

// A cache that cannot be written costs the next process a second, nothing else.
void write_cache(const CacheEntry& entry, const std::string& answer) {
  if (entry.file.empty()) return;
  std::error_code failed;
  fs::create_directories(entry.file.parent_path(), failed);
  const fs::path fresh = fmt::format("{}.{}", entry.file.string(), getpid());
  {
    std::ofstream out(fresh);
    out << entry.key << '\n' << answer << '\n' << last_line << '\n';
    if (!out.flush()) {
      fs::remove(fresh, failed);
      return;
    }
  }
  fs::rename(fresh, entry.file, failed);
  if (failed) fs::remove(fresh, failed);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> best_environment(const std::string& path) {
  const std::string file = library_file(path);
  const CacheEntry entry = cache_entry(file);
  std::optional<std::string> answer = read_cache(entry);
  if (!answer) {
    answer = measure_core_type(file);
    if (!answer) return {};
    write_cache(entry, *answer);
  }
  if (*answer == "-") return {};
  if (answer->starts_with(blis_prefix)) {
    return {{"BLIS_ARCH_TYPE", answer->substr(blis_prefix.size())}};
  }
  return {{"OPENBLAS_CORETYPE", *answer}};
}

}  // namespace rooflane::cblas
