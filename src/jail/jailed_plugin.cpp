// The calling end of the runner. See jailed_plugin.hpp; the other end is runner.cpp.
#include "jail/jailed_plugin.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "backends/plugin.hpp"
#include "core/error.hpp"
#include "core/json_text.hpp"
#include "core/machine.hpp"
#include "core/shared_memory.hpp"
#include "core/statistics.hpp"
#include "core/text.hpp"
#include "core/thread_pool.hpp"
#include "jail/runner_protocol.hpp"
#include "measure/process_usage.hpp"

namespace rooflane::jail {

namespace {

using Clock = std::chrono::steady_clock;

long futex(std::atomic<std::uint32_t>* word, int op, std::uint32_t value,
           const timespec* patience) {
  return syscall(SYS_futex, word, op, value, patience, nullptr, 0);
}

template <std::size_t N>
void copy_text(char (&to)[N], std::string_view from, const char* what) {
  if (from.size() >= N) throw unavailable_error(fmt::format("{} '{}' is too long", what, from));
  std::memset(to, 0, N);
  std::memcpy(to, from.data(), from.size());
}

// Text from the runner ends where it says or at the end of its place.
template <std::size_t N>
std::string text_of(const char (&from)[N]) {
  std::string text(from, strnlen(from, N));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  return text;
}

// The process with the library, and what goes there.
class Runner {
 public:
  Runner(const JailedPlugin& plugin, int threads);
  ~Runner() {
    if (process_ > 0) end(process_);
    if (bell_ != nullptr) munmap(bell_, sizeof(Doorbell));
    for (const int file : {socket_, bell_file_}) {
      if (file >= 0) ::close(file);
    }
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  Answer ask(const Request& request, const std::vector<int>& descriptors);
  // One call of the kernel; throws Error.
  void run();
  void wake();
  void rest();
  double call_ns();
  double call_spread_ns() const { return spread_; }
  std::vector<std::string> mapped_files() const;
  int bell_file() const { return bell_file_; }

 private:
  // Rings and waits for the answer. False when it took too long or the process ended.
  void ring(bool empty);
  void leave_bell();
  void look_for_leftovers();
  bool wait_for(std::uint32_t number, Clock::time_point deadline);
  Clock::time_point deadline_from_now() const {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(plugin_.call_seconds));
  }
  [[noreturn]] void fail_dead();
  [[noreturn]] void fail(const std::string& reason);
  bool has_ended();
  // Ends the kernel when its processes together take half of the memory that was free before them:
  // limits of a process say nothing of what many of them take.
  void check_memory();

  const JailedPlugin& plugin_;
  pid_t process_ = -1;
  std::size_t free_before_ = 0;
  Clock::time_point memory_checked_;
  int socket_ = -1, bell_file_ = -1;
  int end_status_ = 0;
  Doorbell* bell_ = nullptr;
  bool has_spare_cpu_ = false, at_bell_ = false, rests_ = false, looked_for_leftovers_ = false;
  std::uint32_t rung_ = 0;
  std::int64_t calls_ = 0;
  double spread_ = 0;
  std::string failed_;  // what ended it
};

// Resident memory of a process and of all that descend from it, in bytes.
std::size_t resident_bytes_below(pid_t process) {
  auto bytes = static_cast<std::size_t>(resident_bytes(process));
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(tasks, gone)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) bytes += resident_bytes_below(child);
  }
  return bytes;
}

std::vector<int> cpus_of_this_thread() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void use_cpus(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  if (!cpus.empty()) sched_setaffinity(0, sizeof set, &set);
}

// Where kernels run: as this process was started.
const std::vector<int>& kernel_cpus() {
  static const std::vector<int> cpus = cpus_of_this_thread();
  return cpus;
}

// What of this process's environment reaches the kernel's: numbers of threads and their places.
std::vector<std::pair<std::string, std::string>> environment_of_runner(int threads) {
  std::vector<std::pair<std::string, std::string>> kept = {
      {"PATH", "/usr/bin:/bin"},
      {"HOME", "/tmp"},
      {"POCL_MAX_PTHREAD_COUNT", std::to_string(threads)},
      {"POCL_CPU_MAX_CU_COUNT", std::to_string(threads)}};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    for (const std::string_view prefix :
         {"OMP_", "GOMP_", "KMP_", "OPENBLAS_", "BLIS_", "MKL_", "ONEDNN_", "OCL_"}) {
      if (!text.starts_with(prefix)) continue;
      const std::size_t equals = text.find('=');
      kept.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return kept;
}

// The innermost process below bubblewrap's.
pid_t innermost(pid_t process) {
  while (true) {
    std::ifstream file(fmt::format("/proc/{}/task/{}/children", process, process));
    pid_t child = 0;
    if (!(file >> child)) return process;
    process = child;
  }
}

// From now on the system notes which pages the process touches. False where it does not.
bool forget_references(pid_t process) {
  std::ofstream file(fmt::format("/proc/{}/clear_refs", process));
  return static_cast<bool>(file << 1 << std::flush);
}

bool referenced_operands(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/smaps", process));
  bool operands = false;
  for (std::string line; std::getline(file, line);) {
    if (line.find(" kB") == std::string::npos) {
      operands = line.find("/memfd:rooflane-operands") != std::string::npos;
    } else if (operands && line.starts_with("Referenced:") &&
               line.find(" 0 kB") == std::string::npos) {
      return true;
    }
  }
  return false;
}

Runner::Runner(const JailedPlugin& plugin, int threads) : plugin_(plugin) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    throw unavailable_error("no socket can be made for the runner");
  }
  socket_ = sockets[0];
  bell_file_ = memfd_create("rooflane-doorbell", MFD_CLOEXEC);
  void* page = MAP_FAILED;
  if (bell_file_ >= 0 && ftruncate(bell_file_, sizeof(Doorbell)) == 0) {
    page = mmap(nullptr, sizeof(Doorbell), PROT_READ | PROT_WRITE, MAP_SHARED, bell_file_, 0);
  }
  if (page == MAP_FAILED) throw unavailable_error("no shared memory can be had for the doorbell");
  bell_ = static_cast<Doorbell*>(page);

  use_cpus(kernel_cpus());
  Settings settings;
  settings.kind = plugin.kind;
  settings.folder = plugin.folder;
  settings.environment = environment_of_runner(threads);
  settings.socket = sockets[1];
  // A kernel has a workspace, a compiler of OpenCL too; neither takes half of a machine.
  free_before_ = available_memory_bytes();
  settings.limits = {std::max<std::uint64_t>(std::uint64_t{8} << 30, free_before_ / 2),
                     256u + 4u * static_cast<unsigned>(threads), std::uint64_t{64} << 20, 0};
  process_ = start(settings);
  ::close(sockets[1]);
  std::vector<int> spare;
  for (const int cpu : plugin.cpus) {
    const auto& taken = kernel_cpus();
    if (std::find(taken.begin(), taken.end(), cpu) == taken.end()) spare.push_back(cpu);
  }
  has_spare_cpu_ = !spare.empty();
  use_cpus(spare);
  // A third of a millisecond: longer than what lies between two calls of a series.
  bell_->spins = has_spare_cpu_ ? 20000 : 0;
}

void Runner::check_memory() {
  const auto now = Clock::now();
  if (now < memory_checked_ + std::chrono::milliseconds(20)) return;
  memory_checked_ = now;
  // The machine's memory first, which is one file: others may have taken it.
  if (available_memory_bytes() > free_before_ / 2) return;
  const std::size_t taken = resident_bytes_below(process_);
  if (taken < free_before_ / 4) return;
  fail(fmt::format("{}the kernel's processes take {:.1f} GiB of memory together", crashed,
                   static_cast<double>(taken) / 0x1p30));
}

bool Runner::has_ended() {
  if (process_ < 0) return true;
  if (waitpid(process_, &end_status_, WNOHANG) == 0) return false;
  process_ = -1;
  return true;
}

void Runner::fail(const std::string& reason) {
  if (failed_.empty()) failed_ = reason;
  if (process_ > 0) end(std::exchange(process_, -1));
  throw argument_error(failed_);
}

void Runner::fail_dead() {
  if (!failed_.empty()) fail(failed_);
  // bubblewrap answers with 128 and the signal of what it ran.
  const int status =
      WIFSIGNALED(end_status_) ? 128 + WTERMSIG(end_status_) : WEXITSTATUS(end_status_);
  const std::string how = status > 128 ? fmt::format("ended by {}", signal_name(status - 128))
                                       : fmt::format("exited with status {}", status);
  fail(calls_ > 0 ? fmt::format("{}the kernel's process {} in call {}", crashed, how, calls_)
                  : fmt::format("{}the kernel's process {} before its first call", crashed, how));
}

Answer Runner::ask(const Request& request, const std::vector<int>& descriptors) {
  if (!failed_.empty()) fail(failed_);
  if (rests_) wake();
  leave_bell();
  iovec part = {const_cast<Request*>(&request), sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * (most_tensors + 1))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof(int) * descriptors.size());
  }
  if (sendmsg(socket_, &message, MSG_NOSIGNAL) < 0) {
    while (!has_ended()) usleep(1000);
    fail_dead();
  }
  static Answer answer;  // too large for a stack
  const auto deadline = deadline_from_now();
  while (true) {
    pollfd wait = {socket_, POLLIN, 0};
    if (poll(&wait, 1, 50) > 0) {
      const ssize_t count = recv(socket_, &answer, sizeof answer, 0);
      if (count == static_cast<ssize_t>(sizeof answer)) return answer;
      if (count > 0) fail("crash: the kernel's process answered what is no answer");
      for (int i = 0; i < 2000 && !has_ended(); ++i) usleep(1000);
      fail_dead();
    }
    if (has_ended()) fail_dead();
    check_memory();
    if (Clock::now() > deadline) {
      fail(fmt::format("{}loading or planning took more than {:g} s", hung, plugin_.call_seconds));
    }
  }
}

bool Runner::wait_for(std::uint32_t number, Clock::time_point deadline) {
  const auto answered = [&] { return bell_->done.load(std::memory_order_acquire) == number; };
  constexpr int spins = 4000;
  while (true) {
    for (int i = 0; has_spare_cpu_ && i < spins; ++i) {
      if (answered()) return true;
      relax();
    }
    if (!has_spare_cpu_) {
      bell_->caller_sleeps.store(1, std::memory_order_seq_cst);
      const std::uint32_t seen = bell_->done.load(std::memory_order_seq_cst);
      const timespec patience = {0, 20'000'000};
      if (seen != number) futex(&bell_->done, FUTEX_WAIT, seen, &patience);
      bell_->caller_sleeps.store(0, std::memory_order_relaxed);
      if (answered()) return true;
    }
    if (has_ended() || Clock::now() > deadline) return answered();
    check_memory();
  }
}

void Runner::ring(bool empty) {
  if (!failed_.empty()) fail(failed_);
  if (rests_) wake();
  if (!at_bell_) {
    static Request request;
    request.op = Op::wait_for_bell;
    if (ask(request, {}).good == 0) fail("crash: the kernel's process does not take calls");
    at_bell_ = true;
  }
  bell_->empty = empty ? 1 : 0;
  if (++rung_ == 0) rung_ = 1;
  bell_->rung.store(rung_, std::memory_order_seq_cst);
  if (bell_->runner_sleeps.load(std::memory_order_seq_cst) != 0) {
    futex(&bell_->rung, FUTEX_WAKE, 1, nullptr);
  }
  const auto deadline = deadline_from_now();
  if (wait_for(rung_, deadline)) return;
  if (process_ < 0) fail_dead();
  fail(fmt::format("{}call {} took more than {:g} s", hung, calls_, plugin_.call_seconds));
}

void Runner::leave_bell() {
  if (!at_bell_) return;
  at_bell_ = false;
  bell_->rung.store(0, std::memory_order_seq_cst);
  futex(&bell_->rung, FUTEX_WAKE, 1, nullptr);
  rung_ = 0;
  wait_for(0, Clock::now() + std::chrono::seconds(2));
}

void Runner::run() {
  ++calls_;
  ring(false);
  if (bell_->status != 0)
    fail(fmt::format("run failed in call {}: {}", calls_, text_of(bell_->error)));
  if (bell_->changed_state != 0) {
    fail(
        "low-precision: the kernel left another rounding mode behind, or denormals that are zeros");
  }
}

void Runner::wake() {
  if (std::exchange(rests_, false) && process_ > 0) kill(-process_, SIGCONT);
  if (at_bell_ && failed_.empty()) ring(true);
}

void Runner::rest() {
  if (rests_ || process_ < 0) return;
  constexpr std::int64_t enough_calls = 20;  // a thread of its own has begun by then
  if (calls_ >= enough_calls && !std::exchange(looked_for_leftovers_, true)) look_for_leftovers();
  if (process_ < 0) return;
  rests_ = true;
  kill(-process_, SIGSTOP);
}

// Runtimes spin for some milliseconds after a call; who goes on for longer works between calls.
void Runner::look_for_leftovers() {
  constexpr int grace_us = 60'000, looked_at_us = 20'000;
  constexpr double busy = 0.2;
  usleep(grace_us);
  const pid_t process = innermost(process_);
  const bool counts = forget_references(process);
  const double before = cpu_time_ns(process);
  usleep(looked_at_us);
  if (cpu_time_ns(process) - before < busy * 1e3 * looked_at_us || has_ended()) return;
  const bool reads = counts && referenced_operands(process);
  failed_ = fmt::format("{}: a thread of the kernel goes on between calls{}",
                        reads ? "cache-games" : "disturbs-peers",
                        reads ? ", and reads the operands" : "");
}

double Runner::call_ns() {
  constexpr int calls = 101;
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const auto start = Clock::now();
    ring(true);
    times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  const double middle = median(times);
  for (double& time : times) time = std::abs(time - middle);
  spread_ = median(times);
  return middle;
}

std::vector<std::string> Runner::mapped_files() const {
  std::set<std::string> files;
  std::ifstream maps(fmt::format("/proc/{}/maps", innermost(process_)));
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::string path = line.substr(slash);
    const std::string name = path.substr(path.rfind('/') + 1);
    const bool expected = name == runner_name || name == plugin_.library ||
                          name.starts_with("libc.so") || name.starts_with("libc-") ||
                          name.starts_with("ld-linux") || name.starts_with("libdl.") ||
                          path.starts_with("/memfd:") || path.starts_with("/dev/");
    if (!expected) files.insert(path);
  }
  return {files.begin(), files.end()};
}

// A table like a library's, whose functions ask a runner.
struct Table {
  JailedPlugin plugin;
  std::vector<rooflane_variant> variants;
  std::vector<std::vector<const char*>> dtypes;
  std::vector<std::vector<rooflane_tunable>> tunables;
  rooflane_plugin described{};
  std::string error;
};
Table table;

struct JailedPlan {
  explicit JailedPlan(int with) : runner(table.plugin, with), threads(with) {}
  Runner runner;
  std::string problem;
  int threads;
  std::vector<std::string> written;  // names of the outputs
  bool reported = false;
};

const char* last_error() { return table.error.empty() ? nullptr : table.error.c_str(); }

// Calls `step`; what it throws becomes the table's error.
template <class Step>
bool succeeds(Step&& step) {
  try {
    table.error.clear();
    step();
    return true;
  } catch (const std::exception& error) {
    table.error = error.what();
    return false;
  }
}

void require_good(const Answer& answer) {
  if (answer.good == 0) throw unavailable_error(text_of(answer.text));
}

TensorMessage message_of(const rooflane_tensor& from) {
  TensorMessage to = {};
  copy_text(to.name, from.name, "tensor");
  copy_text(to.dtype, from.dtype, "dtype");
  if (from.quantisation != nullptr) {
    to.has_quantisation = 1;
    to.bits = from.quantisation->bits;
    to.block = from.quantisation->block;
    to.block_bytes = from.quantisation->block_bytes;
    copy_text(to.scale, from.quantisation->scale, "dtype");
    if (from.quantisation->zero != nullptr) copy_text(to.zero, from.quantisation->zero, "dtype");
  }
  to.rank = from.rank;
  std::copy(std::begin(from.shape), std::end(from.shape), to.shape);
  std::copy(std::begin(from.strides), std::end(from.strides), to.strides);
  to.memory = no_memory;
  return to;
}

// The tensors, and the files of memory that they lie in. What is not written cannot be.
std::vector<int> add_tensors(Request& request, const rooflane_tensors* tensors,
                             const std::vector<std::string>& written) {
  if (tensors->count > most_tensors) throw unavailable_error("too many tensors");
  std::vector<int> descriptors;
  request.tensor_count = static_cast<std::uint32_t>(tensors->count);
  for (std::size_t i = 0; i < tensors->count; ++i) {
    const rooflane_tensor& from = tensors->tensors[i];
    TensorMessage& to = request.tensors[i] = message_of(from);
    if (from.data == nullptr) continue;  // empty
    const SharedMemory memory = shared_memory_of(from.data);
    if (memory.descriptor < 0) {
      throw unavailable_error(fmt::format("tensor {} lies in no shared memory", from.name));
    }
    const bool writable = std::find(written.begin(), written.end(), from.name) != written.end();
    if (!writable) seal_against_writes(memory);
    to.memory = static_cast<std::uint32_t>(descriptors.size());
    to.offset = memory.offset;
    request.memory_bytes[to.memory] = memory.bytes;
    request.memory_writable[to.memory] = writable ? 1 : 0;
    descriptors.push_back(memory.descriptor);
  }
  return descriptors;
}

Request& new_request(Op op) {
  static Request request;  // too large for a stack
  request = {};
  request.op = op;
  return request;
}

Answer load_into(Runner& runner) {
  Request& request = new_request(Op::load);
  Settings settings;
  settings.kind = table.plugin.kind;
  settings.folder = table.plugin.folder;
  copy_text(request.path, inside(settings) + "/" + table.plugin.library, "path");
  const Answer answer = runner.ask(request, {runner.bell_file()});
  require_good(answer);
  return answer;
}

Request& request_about(Op op, std::size_t variant, const rooflane_problem& problem, int threads) {
  Request& request = new_request(op);
  request.variant = static_cast<std::uint32_t>(variant);
  request.threads = threads;
  copy_text(request.kernel, problem.kernel, "kernel");
  if (problem.param_count > most_params) throw unavailable_error("too many parameters");
  request.param_count = static_cast<std::uint32_t>(problem.param_count);
  for (std::size_t i = 0; i < problem.param_count; ++i) {
    ParamMessage& param = request.params[i];
    copy_text(param.name, problem.params[i].name, "parameter");
    param.value = problem.params[i].value;
    param.has_text = problem.params[i].text != nullptr ? 1 : 0;
    if (param.has_text != 0) copy_text(param.text, problem.params[i].text, "choice");
  }
  return request;
}

std::string text_of_problem(const rooflane_problem& problem) {
  std::string text = problem.kernel;
  for (std::size_t i = 0; i < problem.param_count; ++i) {
    const rooflane_param& param = problem.params[i];
    text += fmt::format(
        "{}{}={}", i == 0 ? ':' : ',', param.name,
        param.text != nullptr ? std::string(param.text) : fmt::format("{:g}", param.value));
  }
  return text;
}

std::unique_ptr<JailedPlan> make_jailed_plan(std::size_t variant, const rooflane_problem& problem,
                                             int threads, const std::int64_t* tuning,
                                             const rooflane_tensors* constants) {
  auto plan = std::make_unique<JailedPlan>(threads);
  load_into(plan->runner);
  plan->problem = text_of_problem(problem);
  Request& request = request_about(Op::plan, variant, problem, threads);
  request.tuning_count = static_cast<std::uint32_t>(table.tunables[variant].size());
  std::copy_n(tuning, request.tuning_count, request.tuning);
  const std::vector<int> memory = add_tensors(request, constants, {});
  require_good(plan->runner.ask(request, memory));
  return plan;
}

template <std::size_t I>
void* plan_of(const rooflane_problem* problem, std::int32_t threads, const std::int64_t* tuning,
              const rooflane_tensors* constants) {
  std::unique_ptr<JailedPlan> plan;
  succeeds([&] { plan = make_jailed_plan(I, *problem, threads, tuning, constants); });
  return plan.release();
}

// Asks a runner of its own, which may refuse the problem or crash over it.
template <std::size_t I>
const char* unsupported_of(const rooflane_problem* problem, std::int32_t threads) {
  static std::string reason;
  reason.clear();
  try {
    Runner runner(table.plugin, threads);
    load_into(runner);
    const Request& request = request_about(Op::ask, I, *problem, threads);
    const Answer answer = runner.ask(request, {});
    if (answer.good == 0) reason = text_of(answer.text);
  } catch (const Error& error) {
    return nullptr;  // planning, which is asked next, fails in the same way and says it
  }
  return reason.empty() ? nullptr : reason.c_str();
}

std::int32_t bind_plan(void* plan, const rooflane_tensors* tensors) {
  auto& jailed = *static_cast<JailedPlan*>(plan);
  return succeeds([&] {
    Request& request = new_request(Op::bind);
    const std::vector<int> memory = add_tensors(request, tensors, jailed.written);
    require_good(jailed.runner.ask(request, memory));
  })
             ? 0
             : 1;
}

std::int32_t run_plan(void* plan) {
  return succeeds([&] { static_cast<JailedPlan*>(plan)->runner.run(); }) ? 0 : 1;
}

void destroy_plan(void* plan) { delete static_cast<JailedPlan*>(plan); }

// Appends what is known of a plan to the report, once it has run.
void report(JailedPlan& plan, double call_ns) {
  if (table.plugin.report.empty() || std::exchange(plan.reported, true)) return;
  std::ofstream file(table.plugin.report, std::ios::app);
  file << nlohmann::json{{"problem", plan.problem},
                         {"threads", plan.threads},
                         {"call_ns", call_ns},
                         {"call_spread_ns", plan.runner.call_spread_ns()},
                         {"maps", plan.runner.mapped_files()}}
              .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
       << '\n';
}

double call_ns_of(void* plan) {
  auto& jailed = *static_cast<JailedPlan*>(plan);
  const double ns = jailed.runner.call_ns();
  report(jailed, ns);
  return ns;
}

constexpr plugin::Elsewhere elsewhere = {
    .will_write =
        [](void* plan, const std::vector<std::string>& names) {
          static_cast<JailedPlan*>(plan)->written = names;
        },
    .wake = [](void* plan) { static_cast<JailedPlan*>(plan)->runner.wake(); },
    .rest = [](void* plan) { static_cast<JailedPlan*>(plan)->runner.rest(); },
    .call_ns = call_ns_of,
    .library =
        [](void*) {
          return table.plugin.kind == Kind::unsafe
                     ? std::string("judged without a jail (--unsafe)")
                     : fmt::format("judged in {}", name_of(table.plugin.kind));
        }};

// A table's functions carry no data of their own: each variant has its own, which know its number.
struct Functions {
  decltype(rooflane_variant::unsupported) unsupported;
  decltype(rooflane_variant::plan) plan;
};
template <std::size_t... I>
constexpr std::array<Functions, sizeof...(I)> functions_of(std::index_sequence<I...>) {
  return {Functions{unsupported_of<I>, plan_of<I>}...};
}
constexpr auto functions = functions_of(std::make_index_sequence<most_variants>());

const char* kept(const char* text) {
  static std::set<std::string> texts;
  return texts.insert(text).first->c_str();
}
template <std::size_t N>
const char* kept_text(const char (&text)[N]) {
  return kept(text_of(text).c_str());
}

// The variants as the runner described them; whether that makes sense, plugin_table.cpp says.
void take_description(const Answer& answer) {
  table.variants.clear();
  const std::size_t count = std::min<std::size_t>(answer.variant_count, most_variants);
  table.dtypes.resize(count);
  table.tunables.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const VariantMessage& from = answer.variants[i];
    for (std::size_t j = 0; j < std::min<std::size_t>(from.dtype_count, most_dtypes); ++j) {
      table.dtypes[i].push_back(kept_text(from.dtypes[j]));
    }
    if (from.dtype_count > 0) table.dtypes[i].push_back(nullptr);
    for (std::size_t j = 0; j < std::min<std::size_t>(from.tunable_count, most_tunables); ++j) {
      const TunableMessage& tunable = from.tunables[j];
      table.tunables[i].push_back({kept_text(tunable.name), kept_text(tunable.meaning),
                                   tunable.least, tunable.most, tunable.value});
    }
    rooflane_variant variant = {};
    variant.kernel = kept_text(from.kernel);
    variant.name = from.name[0] != '\0' ? kept_text(from.name) : nullptr;
    variant.library = from.library[0] != '\0' ? kept_text(from.library) : nullptr;
    variant.many_threads = from.many_threads;
    variant.constants = from.constants;
    variant.dtypes = from.dtype_count > 0 ? table.dtypes[i].data() : nullptr;
    variant.tunables = table.tunables[i].data();
    variant.tunable_count = table.tunables[i].size();
    variant.unsupported = functions[i].unsupported;
    variant.plan = functions[i].plan;
    variant.bind = bind_plan;
    variant.run = run_plan;
    variant.destroy = destroy_plan;
    table.variants.push_back(variant);
  }
  table.described = {answer.abi, static_cast<std::uint32_t>(count), table.variants.data(),
                     last_error};
}

}  // namespace

void write_jailed_plugin(const JailedPlugin& plugin, const std::string& path) {
  std::ofstream file(path);
  file << nlohmann::json{{"name", plugin.name},
                         {"folder", plugin.folder},
                         {"library", plugin.library},
                         {"kind", name_of(plugin.kind)},
                         {"cpus", plugin.cpus},
                         {"report", plugin.report},
                         {"call_seconds", plugin.call_seconds}};
  if (!file.flush()) throw argument_error(fmt::format("'{}' cannot be written", path));
}

JailedPlugin read_jailed_plugin(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  try {
    const nlohmann::json document = parse_json(text.str());
    const bool unsafe = document.at("kind").get<std::string>() == name_of(Kind::unsafe);
    return {document.at("name"),        document.at("folder"),
            document.at("library"),     unsafe ? Kind::unsafe : Kind::bubblewrap,
            document.at("cpus"),        document.at("report"),
            document.at("call_seconds")};
  } catch (const nlohmann::json::exception&) {
    throw argument_error(fmt::format("'{}' describes no judged kernel", path));
  }
}

std::string full_text(const Problem& problem) {
  std::string text = problem.kernel().name;
  for (const ParamSpec& param : problem.kernel().params) {
    const bool in_words = param.kind == ParamKind::choice || param.kind == ParamKind::chain;
    const double value = problem.value(param.name);
    text += fmt::format("{}{}={}", text.find(':') == text.npos ? ':' : ',', param.name,
                        in_words ? print_value(param, value) : fmt::format("{:g}", value));
  }
  return text;
}

void load_jailed(Catalogue& catalogue, const JailedPlugin& plugin) {
  share_buffers();
  kernel_cpus();
  table.plugin = plugin;
  Answer answer;
  {
    Runner runner(plugin, 1);
    answer = load_into(runner);
  }
  take_description(answer);
  plugin::load_table(catalogue, plugin.name, &table.described, &elsewhere);
}

}  // namespace rooflane::jail
