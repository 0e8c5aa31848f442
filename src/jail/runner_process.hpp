// A process in which a judged kernel runs (runner.cpp), seen from the one that measures: asked over
// a socket, rung by a doorbell in shared memory, stopped while others are measured. What it says is
// checked like a file of a stranger's.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "jail/jailed_plugin.hpp"
#include "jail/runner_protocol.hpp"

namespace rooflane::jail {

// Text from the runner ends where it says or at the end of its place.
template <std::size_t N>
std::string text_of(const char (&from)[N]) {
  std::string text(from, strnlen(from, N));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  return text;
}

class RunnerProcess {
 public:
  // Starts one in the plugin's jail. Throws Error(unavailable).
  RunnerProcess(const JailedPlugin& plugin, int threads);
  // One that is there: it leads a process group, has the other end of `socket` (of whole messages)
  // and, once it is told to load, `bell_file`, of a Doorbell's size. All three are owned from now.
  RunnerProcess(const JailedPlugin& plugin, pid_t process, int socket, int bell_file);
  ~RunnerProcess();
  RunnerProcess(const RunnerProcess&) = delete;
  RunnerProcess& operator=(const RunnerProcess&) = delete;

  // Asks and waits for the answer. All of these throw Error, whose text begins with `crashed` or
  // `hung`, or a cheat's name (judge/findings.hpp), where the process is to blame; it is ended
  // then.
  Answer ask(const Request& request, const std::vector<int>& descriptors);
  // Runs of the kernel, one right behind the other; fewer than 2^32.
  void run(std::int64_t runs = 1);
  // Between rest() and wake() none of its processes runs.
  void wake();
  void rest();
  // What a call takes beyond the work that it asks for: the middle of many, and how far they lie
  // from it in the middle. For a runner that has loaded nothing: a kernel could answer for its own
  // and be late. Afterwards the runner sleeps.
  double call_ns();
  double call_spread_ns() const { return spread_; }
  // The runner sleeps until the next call instead of looking for it.
  void sleep();
  std::vector<std::string> mapped_files() const;
  int bell_file() const { return bell_file_; }
  // Where something goes on although nothing is asked, the next call fails. `at_load`: this one
  // does, with that reason.
  void look_for_leftovers(const std::string& at_load);

 private:
  void map_bell();
  // This thread keeps away from the CPUs that the kernel uses, where there are others.
  void leave_cpus_to_kernel();
  // Where there are none, calls are made from one CPU, on which the runner then sleeps, too:
  // between CPUs it takes up to thirty times as long to wake a thread (2 us and 18 to 70 on a
  // virtual Xeon).
  void stay_on_cpu() const;
  struct Work {
    std::uint32_t runs = 0;   // of the kernel
    std::uint32_t steps = 1;  // of 0 runs: multiplications
  };
  // Rings and waits for the answer. The runner then looks for the next call for a while, where it
  // has a CPU for that, or sleeps at once.
  void ring(Work work, bool then_sleep = false);
  // Of the run that goes on, or did when the process ended; from 1.
  std::int64_t run_number() const;
  void leave_bell();
  // Whether there is a message that nobody asked for.
  bool has_spoken() const;
  bool wait_for(std::uint32_t number, std::chrono::steady_clock::time_point deadline);
  std::chrono::steady_clock::time_point deadline_from_now() const {
    return std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(
               std::chrono::duration<double>(plugin_.call_seconds));
  }
  [[noreturn]] void fail_dead();
  // Nothing comes from the socket any more: it ends, as a rule.
  [[noreturn]] void fail_silent();
  [[noreturn]] void fail(const std::string& reason);
  bool has_ended();
  // Ends the kernel when its processes together take half of the memory that was free before them,
  // where no control group does: limits of a process say nothing of what many of them take.
  void check_memory();

  JailedPlugin plugin_;
  Group group_;
  pid_t process_ = -1;
  std::size_t free_before_ = 0;
  std::chrono::steady_clock::time_point memory_checked_;
  int socket_ = -1, bell_file_ = -1;
  int end_status_ = 0;
  Doorbell* bell_ = nullptr;
  bool has_spare_cpu_ = false, at_bell_ = false, rests_ = false;
  std::int64_t rest_count_ = 0, next_look_ = 1;
  std::uint32_t rung_ = 0;
  std::int64_t calls_ = 0;    // runs that came back
  std::int64_t running_ = 0;  // runs that were asked for and did not
  double spread_ = 0;
  std::string failed_;  // what ended it
};

// Where kernels run: as this process was when this was first called.
const std::vector<int>& kernel_cpus();

}  // namespace rooflane::jail
