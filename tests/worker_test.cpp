// Workers, in this process and in others: cases as text, the sampler's loop on a clock of its own,
// the protocol, and everything that a worker can do wrong. Nothing here depends on speed.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>

#include "core/error.hpp"
#include "fakes.hpp"
#include "measure/sampler.hpp"
#include "measure/worker.hpp"
#include "measure/worker_protocol.hpp"

using namespace rooflane;

namespace {

const Catalogue& catalogue() {
  static const Catalogue all = fake_catalogue();
  return all;
}

// The real variant and all fakes are slow enough for a machine under load, and fast enough here.
ProcessSettings fake_program() {
  ProcessSettings settings;
  settings.argv = {FAKE_PROGRAM, "worker"};
  // Sanitizers would replace the fake's signal by an exit status of their own.
  const char* const given = std::getenv("ASAN_OPTIONS");
  settings.environment = {{"ASAN_OPTIONS", fmt::format("{}:handle_segv=0", given ? given : "")}};
  return settings;
}

Case gemm_case(const std::string& variant) {
  return parse_case("gemm:m=20,n=30,k=40 variant=" + variant, catalogue());
}

struct Outcome {
  Status status = Status::passed;
  std::string reason;
};

// What a row's life does to a worker: open, verify, measure, verify, close.
Outcome outcome_of(Worker& worker, const Case& c) {
  try {
    worker.open(c);
    for (int i = 0; i < 2; ++i) {
      const Verification verification = worker.verify("");
      if (!verification.passed()) return {Status::failed, verification.reason};
      if (i == 0) worker.sample(1, 1);
    }
    worker.close();
    return {};
  } catch (const WorkerError& error) {
    return {error.status(), error.what()};
  }
}

Outcome in_process(const std::string& variant) {
  return outcome_of(*local_worker(catalogue()), gemm_case(variant));
}

Outcome in_other_process(const std::string& variant, ProcessSettings settings = fake_program()) {
  return outcome_of(*process_worker(std::move(settings)), gemm_case(variant));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A worker of another language that answers the first request with `answer`.
ProcessSettings scripted(const std::string& answer) {
  ProcessSettings settings = fake_program();
  settings.argv = {
      "/bin/sh", "-c",
      "echo '{\"rooflane_worker\":1,\"name\":\"sh\",\"version\":\"1\"}'; read line; " + answer};
  return settings;
}

}  // namespace

TEST_CASE("a case prints what is not at its default and reads back the same") {
  Case c = gemm_case("scalar");
  CHECK(c.text() == "gemm:m=20,n=30,k=40 variant=scalar");
  c.threads = 2;
  c.seed = 18446744073709551615u;
  c.library = "/a b/50%\tlib.so";
  c.cache = CacheMode::cold;
  c.timer = Timer::event;
  c.device = 3;
  c.isa = "AVX2";
  const std::string text = c.text();
  CHECK(text ==
        "gemm:m=20,n=30,k=40 variant=scalar threads=2 isa=AVX2 library=/a%20b/50%25%09lib.so "
        "device=3 cache=cold timer=event seed=18446744073709551615");
  const Case again = parse_case(text, catalogue());
  CHECK(again.text() == text);
  CHECK(again.library == c.library);
  CHECK(again.environment().device_timer);
}

TEST_CASE("a case that is not as printed is refused and says why") {
  const auto refusal = [](const std::string& text) {
    try {
      parse_case(text, catalogue());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::string good = "gemm:m=1,n=1,k=1 variant=scalar";
  CHECK(refusal(good) == "accepted");
  CHECK(contains(refusal("gemm:m=1,n=1,k=1"), "variant is missing"));
  CHECK(contains(refusal("gemm:m=1,n=1,k=1 variant=scalor"), "scalar"));
  CHECK(contains(refusal(good + " thread=2"), "threads"));
  CHECK(contains(refusal(good + " threads=-1"), "from 0"));
  CHECK(contains(refusal(good + " threads=1x"), "integer"));
  CHECK(contains(refusal(good + " cache=hot"), "warm"));
  CHECK(contains(refusal(good + " timer=sundial"), "steady"));
  CHECK(contains(refusal(good + " seed=18446744073709551616"), "18446744073709551615"));
  CHECK(contains(refusal(good + " library=%2"), "%"));
  CHECK(contains(refusal(good + " seed"), "FIELD=VALUE"));
  CHECK(contains(refusal(good + " tuning=mc=3"), "mc"));
}

TEST_CASE("a variant named by --blas is found by its library where only blas is known") {
  const Case c = parse_case("gemm:m=1,n=1,k=1 variant=blas-mkl library=/lib/mkl.so", catalogue());
  CHECK(std::string(variant_of(c, catalogue()).name) == "blas");
  CHECK_THROWS_AS(parse_case("gemm:m=1,n=1,k=1 variant=blas-mkl", catalogue()), Error);
}

TEST_CASE("warming up ends when two runs agree within 5 %, after 20 runs, or after 20 ms") {
  double now = 0;
  int runs = 0;
  std::deque<double> lasting = {100, 80, 60, 58, 10};
  const auto run = [&] {
    ++runs;
    now += lasting.front();
    if (lasting.size() > 1) lasting.pop_front();
  };
  const auto clock = [&] { return now; };
  CHECK(warm_up(run, clock) == 58);
  CHECK(runs == 4);

  runs = 0;
  int sign = 1;
  const auto unsteady = [&] {
    ++runs;
    sign = -sign;
    now += 100 + 50 * sign;
  };
  warm_up(unsteady, clock);
  CHECK(runs == 20);

  runs = 0;
  const auto lengthy = [&] {
    ++runs;
    now += 30e6;
  };
  CHECK(warm_up(lengthy, clock) == 30e6);
  CHECK(runs == 1);
}

TEST_CASE("how long a run takes is told by the least of several timings") {
  double now = 0;
  int runs = 0;
  std::deque<double> disturbances;
  const auto run = [&] {
    ++runs;
    now += 30e3;
    if (disturbances.empty()) return;
    now += disturbances.front();
    disturbances.pop_front();
  };
  const auto clock = [&] { return now; };
  // Warming up ends in two runs that a preempted thread held up, and so does the first timing.
  disturbances = {4e6, 4e6, 4e6};
  CHECK(undisturbed_run_ns(run, clock) == doctest::Approx(30e3));
  CHECK(runs == 2 + 1 + 1 + 3 * 9);

  // The first run lasts beyond the warming up.
  disturbances = {21e6};
  CHECK(undisturbed_run_ns(run, clock) == doctest::Approx(30e3));

  runs = 0;
  const auto lengthy = [&] {
    ++runs;
    now += 30e6;
  };
  CHECK(undisturbed_run_ns(lengthy, clock) == 30e6);
  CHECK(runs == 2);
  runs = 0;
  const auto longer = [&] {
    ++runs;
    now += 60e6;
  };
  CHECK(undisturbed_run_ns(longer, clock) == 60e6);
  CHECK(runs == 1);
}

TEST_CASE("a sample is the mean of its runs and lasts at least 1 ms") {
  double now = 0;
  const auto run = [&] { now += 250; };
  CHECK(time_runs(run, 8, [&] { return now; }) == 250);
  CHECK(runs_for_sample(250) == 4000);
  CHECK(runs_for_sample(1e6) == 1);
  CHECK(runs_for_sample(3e5) == 4);
  CHECK(runs_for_sample(5e9) == 1);
  CHECK(runs_for_sample(0) == 1000000);
}

TEST_CASE("waiting ends when the CPU clock stands still, and gives up when it does not") {
  int reads = 0;
  CHECK(wait_until_still([&] { return reads++ < 4 ? reads * 1e12 : 5e12; }, 60));
  CHECK(reads >= 4);
  double cpu = 0;
  CHECK_FALSE(wait_until_still([&] { return cpu += 1e12; }, 0.01));
}

TEST_CASE("answers survive the protocol, non-finite numbers and bad UTF-8 included") {
  Verification verification;
  verification.value = INFINITY;
  verification.max_abs_error = NAN;
  verification.reason = "bad \xff byte";
  const auto message = nlohmann::json::parse(protocol::line_of(protocol::to_json(verification)));
  const Verification again = protocol::verification_from(message);
  CHECK(again.value == INFINITY);
  CHECK(std::isnan(again.max_abs_error));
  CHECK(contains(again.reason, "bad "));

  Opened opened;
  opened.facts.tuning = {{"mc", 96}, {"kc", 384}};
  opened.facts.library = "OpenBLAS 0.3.21 SkylakeX";
  opened.facts.packed_bytes = 1u << 31;
  opened.plan_ns = 12.5;
  const Opened reopened =
      protocol::opened_from(nlohmann::json::parse(protocol::line_of(protocol::to_json(opened))));
  CHECK(reopened.facts.tuning == opened.facts.tuning);
  CHECK(reopened.facts.library == opened.facts.library);
  CHECK(reopened.facts.packed_bytes == opened.facts.packed_bytes);
  CHECK(reopened.plan_ns == 12.5);
}

TEST_CASE("a right variant passes in this process and in another, warm and cold") {
  CHECK(in_process("scalar").status == Status::passed);
  CHECK(in_other_process("scalar").status == Status::passed);
  Case cold = gemm_case("scalar");
  cold.cache = CacheMode::cold;
  const auto worker = process_worker(fake_program());
  CHECK(outcome_of(*worker, cold).status == Status::passed);
  worker->open(cold);
  CHECK(worker->calibrate().runs_per_sample == 1);
  CHECK(worker->sample(3, 1).ns.size() == 3);
  CHECK(worker->peak_rss_bytes() > 0);
  worker->settle();
}

TEST_CASE(
    "every cheat fails: zeros, stale or kept output, swapped rows, TF32, changed inputs, overrun") {
  for (const char* kernel :
       {"gemm:m=20,n=30,k=40", "softmax:rows=20,cols=100", "layernorm:rows=20,cols=100",
        "attention:batch=1,heads=2,q_len=20,kv_len=30,head_dim=16"}) {
    for (const char* variant : {"fake-zeros", "fake-stale", "fake-memory", "fake-swapped",
                                "fake-tf32", "fake-input-changer", "fake-overrun"}) {
      INFO(kernel << " " << variant);
      const Case c = parse_case(fmt::format("{} variant={}", kernel, variant), catalogue());
      const Outcome outcome = outcome_of(*local_worker(catalogue()), c);
      CHECK(outcome.status == Status::failed);
      CHECK_FALSE(outcome.reason.empty());
    }
  }
  CHECK(contains(in_process("fake-input-changer").reason, "changed its inputs"));
  CHECK(contains(in_process("fake-memory").reason, "kept its output"));
  CHECK(contains(in_process("fake-overrun").reason, "outside the output"));
}

TEST_CASE("a run that may not read its inputs is no cheat: alpha = 0, k = 0, no visible key") {
  for (const char* problem : {"gemm:m=4,n=5,k=6,alpha=0", "gemm:m=4,n=5,k=0", "gemm:m=0,n=5,k=6",
                              "gemm:m=4,n=5,k=6,beta=2,prepack=1",
                              "attention:batch=1,heads=2,q_len=9,kv_len=3,head_dim=4,causal=1"}) {
    for (const char* variant : {"scalar", "hwy"}) {
      INFO(problem << " " << variant);
      const Case c = parse_case(fmt::format("{} variant={}", problem, variant), catalogue());
      CHECK(outcome_of(*local_worker(catalogue()), c).status == Status::passed);
    }
  }
}

TEST_CASE("what a variant throws becomes a status") {
  CHECK(in_process("fake-unsupported").status == Status::unsupported);
  CHECK(in_process("fake-unsupported").reason == "never in the mood");
  CHECK(in_other_process("fake-unsupported").status == Status::unsupported);
  CHECK(in_other_process("fake-unsupported").reason == "never in the mood");
  CHECK(in_other_process("fake-bad-alloc").status == Status::runtime_error);
  CHECK(in_other_process("fake-bad-alloc").reason == "out of memory");
}

TEST_CASE("a worker that crashes names its signal, and the next case gets a new one") {
  const auto worker = process_worker(fake_program());
  const Outcome crashed = outcome_of(*worker, gemm_case("fake-crash"));
  CHECK(crashed.status == Status::runtime_error);
  CHECK(contains(crashed.reason, "SIGSEGV when asked to run"));
  CHECK_THROWS_AS(worker->sample(1, 1), WorkerError);
  CHECK(outcome_of(*worker, gemm_case("scalar")).status == Status::passed);

  const Outcome left = in_other_process("fake-exit");
  CHECK(left.status == Status::runtime_error);
  CHECK(contains(left.reason, "status 3"));
}

TEST_CASE("a worker that hangs is killed after the timeout") {
  ProcessSettings settings = fake_program();
  const auto worker = process_worker(settings);
  CHECK(outcome_of(*worker, gemm_case("scalar")).status == Status::passed);
  settings.timeout = std::chrono::duration<double>(3);
  const Outcome hung = in_other_process("fake-hang", settings);
  CHECK(hung.status == Status::timeout);
  CHECK(contains(hung.reason, "3 s"));
}

TEST_CASE("a worker that takes memory without end is stopped") {
  ProcessSettings settings = fake_program();
  settings.memory_bytes = std::size_t{384} << 20;
  const Outcome hungry = in_other_process("fake-hungry", settings);
  CHECK(hungry.status == Status::runtime_error);
  CHECK(contains(hungry.reason, "out of memory"));
}

TEST_CASE("what a variant prints on standard output does not reach the protocol") {
  CHECK(in_other_process("fake-rubbish").status == Status::passed);
}

TEST_CASE("a program that is no worker is refused with what it said") {
  ProcessSettings settings = fake_program();
  settings.argv = {"/bin/echo", "hello"};
  Outcome outcome = in_other_process("scalar", settings);
  CHECK(outcome.status == Status::runtime_error);
  CHECK(contains(outcome.reason, "'hello'"));

  settings.argv = {"/bin/echo", "{\"rooflane_worker\":99}"};
  outcome = in_other_process("scalar", settings);
  CHECK(contains(outcome.reason, "protocol 1"));

  settings.argv = {"/bin/true"};
  outcome = in_other_process("scalar", settings);
  CHECK(contains(outcome.reason, "exited with status 0"));

  // Under the thread sanitizer a forked process writes what it inherited when it gives up.
  std::fflush(nullptr);
  settings.argv = {"/no/such/program"};
  outcome = in_other_process("scalar", settings);
  CHECK(contains(outcome.reason, "cannot be executed"));

  settings.argv = {"/bin/sh", "-c", "exec cat /dev/zero"};
  CHECK(in_other_process("scalar", settings).status == Status::runtime_error);
}

TEST_CASE("answers that are no answers make a RUNTIME_ERROR") {
  for (const char* answer : {"echo nonsense", "echo '[1,2]'", "echo '{}'", "echo '{\"ok\":true}'",
                             "echo '{\"ok\":1}'", "echo '{\"ok\":false}'", "exit 0",
                             "echo '{\"ok\":false,\"status\":\"GREAT\",\"reason\":\"x\"}'",
                             "kill -TERM $$", "exec >&-; sleep 5"}) {
    INFO(answer);
    const Outcome outcome = in_other_process("scalar", scripted(answer));
    CHECK(outcome.status == Status::runtime_error);
    CHECK_FALSE(outcome.reason.empty());
  }
  const Outcome refused = in_other_process(
      "scalar", scripted("echo '{\"ok\":false,\"status\":\"BUILD_ERROR\",\"reason\":\"why\"}'"));
  CHECK(refused.status == Status::build_error);
  CHECK(refused.reason == "why");
}

TEST_CASE("no worker is left behind as a zombie or running") {
  {
    const auto worker = process_worker(fake_program());
    outcome_of(*worker, gemm_case("scalar"));
    in_other_process("fake-crash");
  }
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);  // no children at all
}
