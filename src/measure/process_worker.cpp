// A worker in a process of its own, spoken to over protocol 1. Whatever happens to it (a crash, a
// hang, memory without end, rubbish on its output) ends as a WorkerError here.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>

#include "core/error.hpp"
#include "core/json_text.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "measure/changed_runs.hpp"
#include "measure/output_file.hpp"
#include "measure/process_usage.hpp"
#include "measure/reference_file.hpp"
#include "measure/worker_protocol.hpp"

namespace rooflane {

namespace {

using nlohmann::json;
using namespace std::chrono_literals;

class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() { reset(); }
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int get() const { return descriptor_; }
  void reset() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

 private:
  int descriptor_ = -1;
};

// This process's environment with `changes` applied, in the form that execve needs.
std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool changed = std::any_of(changes.begin(), changes.end(),
                                     [&](const auto& change) { return change.first == name; });
    if (!changed) merged.emplace_back(text);
  }
  for (const auto& [name, value] : changes) merged.push_back(fmt::format("{}={}", name, value));
  return merged;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What a request asks for, as a reason says it.
std::string_view words_of(std::string_view op) {
  if (op == "open") return "asked to plan";
  if (op == "verify" || op == "output" || op == "reproduce") return "asked to run for verification";
  if (op == "calibrate" || op == "sample") return "asked to run for timing";
  if (op == "phases") return "asked to run with a recorder of phases";
  return "asked to close";
}

// The first bytes of a line that is not an answer, printable, for an error's reason.
std::string excerpt(std::string_view line) {
  constexpr std::size_t most = 60;
  std::string text;
  for (const char c : line.substr(0, most)) text += c >= ' ' && c < 0x7f ? c : '?';
  return line.size() > most ? text + "..." : text;
}

class ProcessWorker final : public Worker {
 public:
  explicit ProcessWorker(ProcessSettings settings) : settings_(std::move(settings)) {}
  ~ProcessWorker() override { end_gently(); }

  // Starts the process if there is none, and says what it greeted with when it started.
  const Greeting& greet() {
    if (process_ < 0) start();
    return greeting_;
  }
  Opened open(const Case& c) override {
    greet();
    changed_runs_.reset();
    open_ = c;
    if (!settings_.variant.empty()) open_.variant = settings_.variant;
    Opened opened = answer_as(protocol::opened_from, protocol::open_request(open_));
    const Math* const own = find_math(open_.problem.kernel(), opened.math);
    own_math_ = own != &open_.math_record() ? own : nullptr;
    return opened;
  }
  Verification verify(const std::string& reference_path) override {
    if (!verifies()) {
      try {
        const OutputFile output(open_.problem, open_.inputs());
        ask({{"op", "output"}, {"path", output.path()}, {"output_bytes", output.bytes()}});
        Verification asked = output.verify(reference_path, open_.math_record());
        if (own_math_ != nullptr && !asked.passed()) asked = by_own_math(output, asked);
        asked.output_hash = output.hash();
        return asked;
      } catch (const Error& error) {
        throw WorkerError(Status::runtime_error, error.what());
      }
    }
    return answer_as(protocol::verification_from,
                     {{"op", "verify"}, {"reference", reference_path}});
  }
  bool reproduces(std::uint64_t output_hash, bool follow) override {
    if (output_hash == 0) return false;
    if (verifies()) {
      return answer_as(protocol::reproduced_from,
                       {{"op", "reproduce"}, {"output_hash", output_hash}, {"follow", follow}});
    }
    try {
      const OutputFile output(open_.problem, open_.inputs());
      ask({{"op", "output"}, {"path", output.path()}, {"output_bytes", output.bytes()}});
      return output.hash() == output_hash;
    } catch (const Error& error) {
      throw WorkerError(Status::runtime_error, error.what());
    }
  }
  Calibration calibrate() override {
    const Calibration calibration = answer_as(protocol::calibration_from, {{"op", "calibrate"}});
    require_times({calibration.run_ns});
    if (calibration.runs_per_sample < 1) {
      give_up(Status::runtime_error,
              fmt::format("the worker wants {} runs in a sample", calibration.runs_per_sample));
    }
    return calibration;
  }
  Samples sample(int n, std::int64_t runs) override {
    const json answer = ask({{"op", "sample"}, {"n", n}, {"runs", runs}});
    Samples samples = read_as(protocol::samples_from, answer);
    if (samples.ns.size() != static_cast<std::size_t>(n)) {
      give_up(
          Status::runtime_error,
          fmt::format("the worker answered {} samples, asked for were {}", samples.ns.size(), n));
    }
    require_times(samples.ns);
    check_changes(answer);
    return samples;
  }
  std::optional<PhaseProfile> profile(const PhaseRequest& request) override {
    return answer_as(protocol::profile_from, {{"op", "phases"},
                                              {"threads", request.threads},
                                              {"runs", request.runs},
                                              {"events", request.events}});
  }
  bool draws(const Distribution& distribution) override {
    return &distribution == &uniform || greet().draws_distributions;
  }
  void close() override {
    if (process_ >= 0) ask({{"op", "close"}});
  }
  bool settle() override { return process_ < 0 || rooflane::settle(process_); }
  pid_t process() override { return process_; }
  std::int64_t peak_rss_bytes() override {
    return process_ >= 0 ? peak_resident_bytes(process_) : 0;
  }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  // What misses the bound of the math asked for, judged by that of the worker's own.
  Verification by_own_math(const OutputFile& output, Verification asked) {
    const Verification own = output.verify(
        own_reference_.path_for(open_.problem, open_.inputs(), *own_math_), *own_math_);
    if (own.status == Status::failed) {
      asked.status = Status::failed;
      asked.reason = fmt::format("beyond the bound of math {} that it computes in: {}",
                                 own_math_->name, own.reason);
      return asked;
    }
    asked.status = Status::inaccurate;
    asked.reason = fmt::format(
        "computes in {} and errs by {:.2g} of that math's bound, by {:.3g} "
        "times the bound of {}",
        own_math_->name, own.value, asked.value, open_.math);
    return asked;
  }

  // What runs within the series made of inputs that had changed.
  void check_changes(const json& answer) {
    if (!answer.contains("changes")) return;
    std::string reason;
    try {
      if (!changed_runs_) changed_runs_.emplace(open_);
      for (const json& sample : answer.at("changes")) {
        reason = changed_runs_->defect(sample);
        if (!reason.empty()) break;
      }
    } catch (const json::exception&) {
      rubbish(protocol::line_of(answer));
    }
    if (!reason.empty()) throw WorkerError(Status::failed, reason);
  }

  void start() {
    // A socket for its input, so that writing to a dead worker is an error and no signal.
    int input[2], output[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0) fail_to_start("socketpair");
    File in_ours(input[0]), in_theirs(input[1]);
    if (pipe2(output, O_CLOEXEC) != 0) fail_to_start("pipe2");
    File out_ours(output[0]), out_theirs(output[1]);

    // Everything that allocates happens before fork: other threads may hold the heap's lock.
    std::vector<std::string> environment = merged_environment(settings_.environment);
    const std::vector<char*> argv = pointers_to(settings_.argv);
    const std::vector<char*> envp = pointers_to(environment);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (const int cpu : settings_.cpus) CPU_SET(cpu, &cpus);
    // A tenth of the free memory is left to this process and the rest of the system.
    memory_limit_ =
        settings_.memory_bytes != 0 ? settings_.memory_bytes : available_memory_bytes() / 10 * 9;
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) fail_to_start("fork");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(127);
      setpgid(0, 0);  // so that what it starts can be ended with it
      if (!settings_.cpus.empty()) sched_setaffinity(0, sizeof cpus, &cpus);
      dup2(in_theirs.get(), STDIN_FILENO);
      dup2(out_theirs.get(), STDOUT_FILENO);
      execve(argv[0], argv.data(), envp.data());
      _exit(127);
    }
    setpgid(child, child);
    process_ = child;
    when_ = "started";
    input_ = std::move(in_ours);
    output_ = std::move(out_ours);
    pending_.clear();
    in_theirs.reset();
    out_theirs.reset();

    const TimePoint deadline = deadline_from_now();
    const json greeting = read_answer(deadline);
    const auto version = greeting.find("rooflane_worker");
    if (version == greeting.end() || *version != protocol::version) {
      give_up(Status::runtime_error,
              fmt::format("no worker of protocol {}: '{}'", protocol::version,
                          excerpt(protocol::line_of(greeting))));
    }
    try {
      greeting_ = protocol::greeting_from(greeting);
    } catch (const json::exception&) {
      rubbish(protocol::line_of(greeting));
    }
    if (!greeting_.error.empty()) give_up(Status::runtime_error, greeting_.error);
  }

  // Whether the worker compares the open case with the reference itself.
  bool verifies() const {
    if (!greeting_.variants) return true;
    const auto& offers = *greeting_.variants;
    const auto offer = std::find_if(offers.begin(), offers.end(), [&](const Offer& o) {
      return o.kernel == open_.problem.kernel().name && o.variant == open_.variant;
    });
    return offer == offers.end() || offer->verifies;
  }

  void require_times(const std::vector<double>& ns) {
    for (const double time : ns) {
      if (std::isfinite(time) && time >= 0) continue;
      give_up(Status::runtime_error, fmt::format("the worker answered a time of {:g} ns", time));
    }
  }

  [[noreturn]] void fail_to_start(const char* call) {
    throw WorkerError(Status::runtime_error, fmt::format("the worker cannot be started: {}: {}",
                                                         call, std::strerror(errno)));
  }

  TimePoint deadline_from_now() const {
    return std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(settings_.timeout);
  }

  // Sends a request and returns the answer if its "ok" is true.
  json ask(const json& request) {
    if (process_ < 0) throw WorkerError(Status::runtime_error, "the worker has ended");
    when_ = words_of(request.at("op").get_ref<const std::string&>());
    const TimePoint deadline = deadline_from_now();
    const std::string line = protocol::line_of(request) + "\n";
    for (std::size_t sent = 0; sent < line.size();) {
      const ssize_t count =
          send(input_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) end_of_output();
      sent += static_cast<std::size_t>(count);
    }
    json answer = read_answer(deadline);
    const auto ok = answer.find("ok");
    if (ok == answer.end() || !ok->is_boolean()) rubbish(protocol::line_of(answer));
    if (ok->get<bool>()) return answer;
    Status status = Status::runtime_error;
    std::string reason;
    try {
      status = parse_status(answer.at("status").get<std::string>()).value();
      reason = answer.at("reason");
    } catch (const std::exception&) {
      rubbish(protocol::line_of(answer));
    }
    if (answer.value("restart", json(false)) == true) give_up(status, reason);
    throw WorkerError(status, reason);
  }

  template <class Answer>
  Answer answer_as(Answer (*read)(const json&), const json& request) {
    return read_as(read, ask(request));
  }

  template <class Answer>
  Answer read_as(Answer (*read)(const json&), const json& answer) {
    try {
      return read(answer);
    } catch (const json::exception&) {
      rubbish(protocol::line_of(answer));
    }
  }

  json read_answer(TimePoint deadline) {
    const std::string line = read_line(deadline);
    try {
      json answer = parse_json(line);
      if (answer.is_object()) return answer;
    } catch (const json::exception&) {
      // Said below.
    }
    rubbish(line);
  }

  std::string read_line(TimePoint deadline) {
    constexpr auto memory_check_interval = 20ms;
    while (true) {
      if (const std::size_t end = pending_.find('\n'); end != std::string::npos) {
        std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        return line;
      }
      if (pending_.size() > protocol::longest_line) rubbish(pending_);
      const auto left = deadline - std::chrono::steady_clock::now();
      pollfd waited{output_.get(), POLLIN, 0};
      const auto pause = std::clamp<std::chrono::nanoseconds>(left, 0ns, memory_check_interval);
      if (poll(&waited, 1, 1 + static_cast<int>(pause / 1ms)) <= 0) {
        // After poll: this process may have been stopped itself while the worker answered.
        if (left <= 0s) time_out();
        check_memory();
        continue;
      }
      char chunk[65536];
      const ssize_t count = read(output_.get(), chunk, sizeof chunk);
      if (count == 0) end_of_output();
      if (count > 0) pending_.append(chunk, static_cast<std::size_t>(count));
    }
  }

  [[noreturn]] void time_out() {
    give_up(Status::timeout,
            fmt::format("no answer within {:g} s when {}{}", settings_.timeout.count(), when_,
                        is_stopped(process_) ? ": the worker was stopped by a signal" : ""));
  }

  // A worker that grows without end is stopped before the system has to choose a victim.
  void check_memory() {
    const auto resident = static_cast<std::size_t>(resident_bytes(process_));
    if (resident <= memory_limit_) return;
    give_up(Status::runtime_error,
            fmt::format("out of memory: the worker held {:.1f} MiB when {}, allowed were {:.1f}",
                        resident / 0x1p20, when_, memory_limit_ / 0x1p20));
  }

  // Its output ended: it is dead or dying. Says how.
  [[noreturn]] void end_of_output() {
    int status = 0;
    const TimePoint patience = std::chrono::steady_clock::now() + 2s;
    while (waitpid(process_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > patience) {
        give_up(Status::runtime_error, "the worker closed its output");
      }
      std::this_thread::sleep_for(1ms);
    }
    kill(-process_, SIGKILL);  // what it may have started
    forget();
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      throw WorkerError(Status::runtime_error,
                        fmt::format("the worker was ended by {}{} when {}", signal_name(signal),
                                    signal == SIGKILL ? " (out of memory?)" : "", when_));
    }
    throw WorkerError(
        Status::runtime_error,
        WEXITSTATUS(status) == 127
            ? fmt::format("the worker '{}' cannot be executed", settings_.argv[0])
            : fmt::format("the worker exited with status {} when {}", WEXITSTATUS(status), when_));
  }

  [[noreturn]] void rubbish(std::string_view line) {
    give_up(Status::runtime_error,
            fmt::format("the worker's answer is no protocol line: '{}'", excerpt(line)));
  }

  [[noreturn]] void give_up(Status status, const std::string& reason) {
    kill(-process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    forget();
    throw WorkerError(status, reason);
  }

  void forget() {
    process_ = -1;
    input_.reset();
    output_.reset();
  }

  // End of input ends a worker; one that does not hear it is killed.
  void end_gently() {
    if (process_ < 0) return;
    input_.reset();
    const TimePoint patience = std::chrono::steady_clock::now() + 2s;
    while (waitpid(process_, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > patience) {
        kill(-process_, SIGKILL);
        waitpid(process_, nullptr, 0);
        break;
      }
      std::this_thread::sleep_for(1ms);
    }
    forget();
  }

  ProcessSettings settings_;
  Greeting greeting_;
  Case open_;                       // as the worker was told
  const Math* own_math_ = nullptr;  // what the open case is computed in, where that is another
  ReferenceFile own_reference_;
  std::optional<ChangedRuns> changed_runs_;  // of the open case
  std::string_view when_;                    // what was last asked of it
  pid_t process_ = -1;
  std::size_t memory_limit_ = 0;
  File input_, output_;
  std::string pending_;  // read, not yet a whole line
};

}  // namespace

std::unique_ptr<Worker> process_worker(ProcessSettings settings) {
  return std::make_unique<ProcessWorker>(std::move(settings));
}

Greeting greeting_of(const ProcessSettings& settings) { return ProcessWorker(settings).greet(); }

}  // namespace rooflane
