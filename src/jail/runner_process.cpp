// See runner_process.hpp.
#include "jail/runner_process.hpp"

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
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "core/machine.hpp"
#include "core/shared_memory.hpp"
#include "core/spin.hpp"
#include "core/statistics.hpp"
#include "core/text.hpp"
#include "core/thread_pool.hpp"
#include "jail/processes.hpp"

namespace rooflane::jail {

namespace {

using Clock = std::chrono::steady_clock;

long futex(std::atomic<std::uint32_t>* word, int op, std::uint32_t value,
           const timespec* patience) {
  return syscall(SYS_futex, word, op, value, patience, nullptr, 0);
}

// Names of files of memory.
constexpr const char* operands_name = "rooflane-operands";  // core/shared_memory.cpp
constexpr const char* forged =
    "forged-result: a message came that nobody had asked for: the kernel wrote to its runner's "
    "socket";

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

// What of this process's environment reaches the kernel's: numbers of threads and their places.
std::vector<std::pair<std::string, std::string>> environment_of_runner(const JailedPlugin& plugin,
                                                                       int threads) {
  std::vector<std::pair<std::string, std::string>> kept = {
      {"PATH", "/usr/bin:/bin"},
      {"HOME", home_of(plugin.kind, plugin.folder)},
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

std::uint64_t most_processes(int threads) {
  return 256 + 4 * static_cast<std::uint64_t>(std::max(threads, 0));
}

}  // namespace

const std::vector<int>& kernel_cpus() {
  static const std::vector<int> cpus = cpus_of_this_thread();
  return cpus;
}

RunnerProcess::RunnerProcess(const JailedPlugin& plugin, int threads)
    : plugin_(plugin), group_(group_for(plugin.kind, most_processes(threads))) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    throw unavailable_error("no socket can be made for the runner");
  }
  socket_ = sockets[0];
  bell_file_ = memfd_create("rooflane-doorbell", MFD_CLOEXEC);
  if (bell_file_ < 0 || ftruncate(bell_file_, sizeof(Doorbell)) != 0) {
    throw unavailable_error("no shared memory can be had for the doorbell");
  }
  map_bell();
  use_cpus(kernel_cpus());
  Settings settings;
  settings.kind = plugin.kind;
  settings.folder = plugin.folder;
  settings.environment = environment_of_runner(plugin, threads);
  settings.socket = sockets[1];
  // A kernel has a workspace, a compiler of OpenCL too; neither takes half of a machine.
  free_before_ = available_memory_bytes();
  settings.limits = {std::max<std::uint64_t>(std::uint64_t{8} << 30, free_before_ / 2),
                     most_processes(threads), std::uint64_t{64} << 20, 0};
  process_ = start(settings, group_);
  ::close(sockets[1]);
  leave_cpus_to_kernel();
}

RunnerProcess::RunnerProcess(const JailedPlugin& plugin, pid_t process, int socket, int bell_file)
    : plugin_(plugin),
      process_(process),
      free_before_(available_memory_bytes()),
      socket_(socket),
      bell_file_(bell_file) {
  map_bell();
  leave_cpus_to_kernel();
}

RunnerProcess::~RunnerProcess() {
  if (process_ > 0) end(process_);
  if (bell_ != nullptr) munmap(bell_, sizeof(Doorbell));
  for (const int file : {socket_, bell_file_}) {
    if (file >= 0) ::close(file);
  }
}

void RunnerProcess::map_bell() {
  void* const page =
      mmap(nullptr, sizeof(Doorbell), PROT_READ | PROT_WRITE, MAP_SHARED, bell_file_, 0);
  if (page == MAP_FAILED) throw unavailable_error("no shared memory can be had for the doorbell");
  bell_ = static_cast<Doorbell*>(page);
}

void RunnerProcess::leave_cpus_to_kernel() {
  std::vector<int> spare;
  for (const int cpu : plugin_.cpus) {
    const auto& taken = kernel_cpus();
    if (std::find(taken.begin(), taken.end(), cpu) == taken.end()) spare.push_back(cpu);
  }
  has_spare_cpu_ = !spare.empty();
  use_cpus(spare);
}

void RunnerProcess::stay_on_cpu() const {
  if (!has_spare_cpu_) use_cpus({kernel_cpus().front()});
}

void RunnerProcess::check_memory() {
  if (group_.exists()) return;
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

bool RunnerProcess::has_ended() {
  if (process_ < 0) return true;
  if (waitpid(process_, &end_status_, WNOHANG) == 0) return false;
  process_ = -1;
  return true;
}

void RunnerProcess::fail(const std::string& reason) {
  if (failed_.empty()) failed_ = reason;
  if (process_ > 0) end(std::exchange(process_, -1));
  throw argument_error(failed_);
}

void RunnerProcess::fail_dead() {
  if (!failed_.empty()) fail(failed_);
  if (group_.ran_out_of_memory()) {
    fail(fmt::format("{}the kernel's processes took more than {:.1f} GiB of memory together",
                     crashed, static_cast<double>(group_.memory_bytes()) / 0x1p30));
  }
  // bubblewrap answers with 128 and the signal of what it ran.
  const int status =
      WIFSIGNALED(end_status_) ? 128 + WTERMSIG(end_status_) : WEXITSTATUS(end_status_);
  const std::string how = status > 128 ? fmt::format("ended by {}", signal_name(status - 128))
                                       : fmt::format("exited with status {}", status);
  const std::int64_t number = run_number();
  fail(number > 0 ? fmt::format("{}the kernel's process {} in call {}", crashed, how, number)
                  : fmt::format("{}the kernel's process {} before its first call", crashed, how));
}

void RunnerProcess::fail_silent() {
  const auto deadline = deadline_from_now();
  while (!has_ended() && Clock::now() < deadline) usleep(1000);
  if (process_ < 0) fail_dead();
  fail(fmt::format("{}the kernel's process closed its socket", crashed));
}

Answer RunnerProcess::ask(const Request& request, const std::vector<int>& descriptors) {
  if (!failed_.empty()) fail(failed_);
  if (rests_) wake();
  leave_bell();
  if (has_spoken()) fail(forged);
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
    fail_silent();
  }
  static Answer answer;  // too large for a stack
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(plugin_.plan_seconds));
  while (true) {
    pollfd wait = {socket_, POLLIN, 0};
    if (poll(&wait, 1, 50) > 0) {
      const ssize_t count = recv(socket_, &answer, sizeof answer, 0);
      if (count == static_cast<ssize_t>(sizeof answer)) return answer;
      if (count > 0) fail("crash: the kernel's process answered what is no answer");
      fail_silent();
    }
    if (has_ended()) fail_dead();
    check_memory();
    if (Clock::now() > deadline) {
      fail(fmt::format("{}loading or planning took more than {:g} s", hung, plugin_.plan_seconds));
    }
  }
}

bool RunnerProcess::wait_for(std::uint32_t number, Clock::time_point deadline) {
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

void RunnerProcess::ring(Work work, bool then_sleep) {
  if (!failed_.empty()) fail(failed_);
  if (rests_) wake();
  if (!at_bell_) {
    static Request request;
    request.op = Op::wait_for_bell;
    if (ask(request, {}).good == 0) fail("crash: the kernel's process does not take calls");
    at_bell_ = true;
  }
  bell_->runs = work.runs;
  bell_->steps = work.steps;
  // A third of a millisecond: longer than what lies between two calls of a series.
  bell_->spins = has_spare_cpu_ && !then_sleep ? 20000 : 0;
  bell_->cpu = has_spare_cpu_ ? -1 : kernel_cpus().front();
  if (++rung_ == 0) rung_ = 1;
  bell_->rung.store(rung_, std::memory_order_seq_cst);
  if (bell_->runner_sleeps.load(std::memory_order_seq_cst) != 0) {
    futex(&bell_->rung, FUTEX_WAKE, 1, nullptr);
  }
  const auto deadline = deadline_from_now();
  if (wait_for(rung_, deadline)) return;
  if (process_ < 0) fail_dead();
  fail(fmt::format("{}call {} took more than {:g} s", hung, run_number(), plugin_.call_seconds));
}

void RunnerProcess::leave_bell() {
  if (!at_bell_) return;
  at_bell_ = false;
  bell_->rung.store(0, std::memory_order_seq_cst);
  futex(&bell_->rung, FUTEX_WAKE, 1, nullptr);
  rung_ = 0;
  wait_for(0, Clock::now() + std::chrono::seconds(2));
}

std::int64_t RunnerProcess::run_number() const {
  if (running_ == 0) return calls_;
  return calls_ + std::clamp<std::int64_t>(bell_->begun, 1, running_);
}

void RunnerProcess::run(std::int64_t runs) {
  bell_->begun = 0;
  running_ = runs;
  ring({.runs = static_cast<std::uint32_t>(runs)});
  if (bell_->status != 0) {
    fail(fmt::format("run failed in call {}: {}", run_number(), text_of(bell_->error)));
  }
  running_ = 0;
  calls_ += runs;
  if (bell_->changed_state != 0) {
    fail(
        "low-precision: the kernel left another rounding mode behind, or denormals that are zeros");
  }
}

void RunnerProcess::wake() {
  if (std::exchange(rests_, false) && process_ > 0) {
    if (group_.exists()) {
      group_.thaw();
    } else {
      continue_below(process_);
    }
  }
  stay_on_cpu();
  if (at_bell_ && failed_.empty()) ring({});
}

void RunnerProcess::rest() {
  if (rests_ || process_ < 0) return;
  if (has_spoken()) failed_ = forged;
  constexpr std::int64_t enough_calls = 20;  // a thread of its own has begun by then
  // The first, the second, the fourth rest, and so on: later ones are looked at, too.
  const bool due = calls_ >= enough_calls && ++rest_count_ == next_look_;
  if (due) next_look_ *= 2;
  // Below bubblewrap's two processes is the kernel's. Whoever starts others is looked at at once.
  const std::size_t expected = plugin_.kind == Kind::bubblewrap ? 3 : 1;
  const bool forked = calls_ > 0 && processes_below(process_).size() > expected;
  if ((due || forked) && failed_.empty()) look_for_leftovers("");
  if (process_ < 0) return;
  if (!has_spare_cpu_) use_cpus(kernel_cpus());
  rests_ = true;
  if (group_.exists()) {
    group_.freeze();
  } else {
    stop_below(process_);
  }
}

bool RunnerProcess::has_spoken() const {
  char byte = 0;
  return recv(socket_, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) > 0;
}

// Runtimes spin for some milliseconds after a call or when they are loaded, and on a busy machine
// their threads get the CPU late: only what is busy whenever it is looked at works between calls. A
// thread on a busy machine may also wait for a CPU during a whole look; then it is looked at until
// it used the CPU for longer than a runtime spins.
void RunnerProcess::look_for_leftovers(const std::string& at_load) {
  constexpr unsigned grace_us = 60'000, glance_us = 5'000, looked_at_us = 20'000;
  constexpr double busy = 0.2, longest_spin_ns = 40e6;
  constexpr int least_looks = 10, most_looks = 60;
  const std::map<pid_t, double> at_first = cpu_times_below(process_);
  std::set<std::string> always_runnable = runnable_below(process_);
  const auto is_busy = [&](unsigned us) {
    const std::map<pid_t, double> before = cpu_times_below(process_);
    usleep(us);
    const double used_ns = cpu_time_since(before, process_);
    const std::set<std::string> runnable = runnable_below(process_);
    std::erase_if(always_runnable,
                  [&](const std::string& thread) { return !runnable.contains(thread); });
    return (!always_runnable.empty() || used_ns > busy * 1e3 * us) && !has_ended();
  };
  if (!is_busy(glance_us)) return;
  for (int look = 0; look < least_looks || cpu_time_since(at_first, process_) < longest_spin_ns;
       ++look) {
    if (look == most_looks) return;  // it gets too little of the CPU to disturb anybody
    usleep(grace_us);
    if (!is_busy(looked_at_us)) return;
  }
  if (!at_load.empty()) fail(at_load);
  // A page that is touched all the time may be noticed late.
  constexpr int looks = 10;
  const auto patience = Clock::now() + std::chrono::milliseconds(500);
  bool touches = false;
  for (int i = 0; i < looks && !touches && Clock::now() < patience; ++i) {
    touches = touches_memory(process_, operands_name, looked_at_us);
  }
  failed_ = fmt::format("{}: a thread or process of the kernel goes on between calls{}",
                        touches ? "cache-games" : "disturbs-peers",
                        touches ? ", and touches the operands" : "");
}

void RunnerProcess::sleep() {
  if (at_bell_) ring({}, /*then_sleep=*/true);
}

// A call of nothing would be answered before the caller waits, and what both ends do at the same
// time during a call of some length would be counted. A call of twice the steps takes as much more
// as the steps take, so the rest of the shorter one is the call itself. The steps take about a
// microsecond, or longer than it takes to fall asleep.
double RunnerProcess::call_ns() {
  constexpr int calls = 51;  // judge_document.cpp makes an interval of as many
  const std::uint32_t steps = has_spare_cpu_ ? 1000 : 10000;
  const auto time = [&](std::uint32_t of_steps) {
    const auto start = Clock::now();
    ring({.steps = of_steps});
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  };
  stay_on_cpu();
  ring({});
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const double once = time(steps);
    times.push_back(2 * once - time(2 * steps));
  }
  sleep();
  const double middle = median(times);
  for (double& time : times) time = std::abs(time - middle);
  spread_ = median(times);
  return std::max(middle, 0.0);
}

std::vector<std::string> RunnerProcess::mapped_files() const {
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

}  // namespace rooflane::jail
