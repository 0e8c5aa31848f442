// `judge` without a jail: signatures and tables from kernels' records, hidden problems, the hot
// loop of a disassembly, hashes, the archive, cheats by name, and the filter of system calls. What
// needs a jail stands in the Python tests.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/temporary_folder.hpp"
#include "io/measured_rows.hpp"
#include "jail/group.hpp"
#include "jail/jail.hpp"
#include "jail/processes.hpp"
#include "jail/seccomp.hpp"
#include "judge/attempts.hpp"
#include "judge/hot_loop.hpp"
#include "judge/judge.hpp"
#include "judge/sha256.hpp"
#include "judge/signature.hpp"
#include "judge/templates.hpp"
#include "measure/series_guard.hpp"
#include "measure/worker.hpp"

using namespace rooflane;

namespace {

const Catalogue& catalogue() {
  static const Catalogue all = Catalogue::built_in();
  return all;
}

Problem problem_of(const char* text) { return parse_problem(text, catalogue().kernels()); }

std::string signature(const char* text) { return judge::signature_of(problem_of(text)).text(); }

}  // namespace

TEST_CASE("a task's function has its tensors, then its sizes, then its numbers") {
  CHECK(signature("softmax:rows=4,cols=8") ==
        "void softmax(const float* x, float* y, int64_t rows, int64_t cols)");
  CHECK(signature("softmax:rows=4,cols=8,scale=0.5,type=f16") ==
        "void softmax(const uint16_t* x, uint16_t* y, int64_t rows, int64_t cols, float scale)");
  CHECK(signature("gemm:m=4,n=5,k=6") ==
        "void gemm(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k)");
  CHECK(
      signature("gemm:m=4,n=5,k=6,batch=2,beta=0.5") ==
      "void gemm(const float* a, const float* b, const float* c0, float* c, int64_t m, int64_t n, "
      "int64_t k, int64_t batch, float beta)");
  CHECK(signature("layernorm:rows=4,cols=8") ==
        "void layernorm(const float* x, const float* gamma, const float* beta, float* y, "
        "int64_t rows, int64_t cols, float eps)");
  CHECK(signature("attention:batch=1,heads=2,q_len=3,kv_len=4,head_dim=8") ==
        "void attention(const float* q, const float* k, const float* v, float* o, int64_t batch, "
        "int64_t heads, int64_t q_len, int64_t kv_len, int64_t head_dim, float scale)");
}

TEST_CASE("every kernel has signatures, and a template that begins with the plainest") {
  for (const Kernel* kernel : catalogue().kernels()) {
    CAPTURE(kernel->name);
    const std::vector<Problem> problems = judge::described_problems(*kernel);
    REQUIRE(!problems.empty());
    for (const Problem& problem : problems) {
      const judge::Signature of = judge::signature_of(problem);
      std::set<std::string> names;
      for (const judge::Argument& argument : of.arguments) names.insert(argument.name);
      CHECK(names.size() == of.arguments.size());
      const std::string table = judge::table_of(of, false);
      for (const std::string& name : names) CHECK(table.find("p->" + name) != std::string::npos);
    }
    const std::string source = judge::template_of(*kernel);
    CHECK(source.find(std::string("void ") + kernel->name + "(") != std::string::npos);
  }
}

TEST_CASE("hidden problems differ from those listed, follow from the seed and keep the flags") {
  const std::vector<Problem> listed = {
      problem_of("attention:batch=2,heads=4,q_len=64,kv_len=128,head_dim=64,causal=1"),
      problem_of("attention:batch=1,heads=4,q_len=1,kv_len=256,head_dim=64,causal=1")};
  const auto hidden = judge::hidden_problems(listed, 20, 7);
  REQUIRE(hidden.size() == 20);
  CHECK(hidden == judge::hidden_problems(listed, 20, 7));
  CHECK(!(hidden == judge::hidden_problems(listed, 20, 8)));
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    CAPTURE(hidden[i].text());
    CHECK(hidden[i].flag("causal"));
    if (i % 2 == 0) {
      CHECK(hidden[i].size("kv_len") % 64 == 0);
      CHECK(hidden[i].size("kv_len") != listed[i / 2 % 2].size("kv_len"));
    }
    CHECK(judge::signature_of(hidden[i]) == judge::signature_of(listed[0]));
  }
}

TEST_CASE("the hot loop is the innermost one with the widest vectors") {
  const auto loop = judge::hot_loop_in(
      "0000000000001100 <softmax>:\n"
      "    1100:\tmov    $0x0,%eax\n"
      "    1105:\tvmovups (%rdi,%rax,1),%zmm0\n"
      "    110c:\tvmovups %zmm0,0x40(%rsp)\n"
      "    1110:\tvgatherdps (%rdi,%zmm2,4),%zmm1{%k1}\n"
      "    1117:\tcall   1050 <expf@plt>\n"
      "    111c:\tjne    1105 <softmax+0x5>\n"
      "    111e:\tjmp    1100 <softmax>\n"
      "0000000000001200 <other>:\n"
      "    1200:\tadd    $0x1,%eax\n"
      "    1203:\tjne    1200 <other>\n");
  REQUIRE(loop);
  CHECK(loop->function == "softmax");
  CHECK(loop->instructions.size() == 5);
  CHECK(loop->width_bits == 512);
  CHECK(loop->spills == 1);
  CHECK(loop->gathers == 1);
  CHECK(loop->calls == 1);
  CHECK(!judge::hot_loop_in("no code\n"));
}

TEST_CASE("a loop that calls expf is hotter than a wide one, an inner loop than one beside it") {
  const std::string vectors =
      "0000000000001000 <softmax>:\n"
      "    1000:\tvmovups (%rdi,%rax,1),%zmm0\n"
      "    1004:\tvmaxps %zmm0,%zmm1,%zmm1\n"
      "    1008:\tjne    1000 <softmax>\n";
  const auto calling = judge::hot_loop_in(vectors +
                                          "    1010:\tcall   900 <expf@plt>\n"
                                          "    1014:\tmovss  %xmm0,(%rsi)\n"
                                          "    1018:\tjne    1010 <softmax+0x10>\n");
  REQUIRE(calling);
  CHECK(calling->calls_math == "expf");
  const auto inner = judge::hot_loop_in(vectors +
                                        "    1010:\txor    %eax,%eax\n"
                                        "    1014:\tvfmadd231ps (%rsi),%zmm2,%zmm3\n"
                                        "    1018:\tvfmadd231ps (%rdi),%zmm2,%zmm4\n"
                                        "    101c:\tjne    1014 <softmax+0x14>\n"
                                        "    1020:\tjne    1010 <softmax+0x10>\n");
  REQUIRE(inner);
  CHECK(inner->depth == 1);
  CHECK(inner->instructions.front().starts_with("vfmadd231ps"));
  const auto other = judge::hot_loop_in(vectors +
                                        "    1010:\tcall   900 <malloc@plt>\n"
                                        "    1018:\tjne    1010 <softmax+0x10>\n");
  REQUIRE(other);
  CHECK(other->calls == 0);
}

TEST_CASE("a clock that the source defines is told from one that it calls") {
  CHECK(judge::clock_defined_in("0000000000001000 <clock_gettime>:\n    1000:\tret\n") ==
        "clock_gettime");
  CHECK(judge::clock_defined_in("0000000000001000 <clock_gettime@plt>:\n"
                                "    1000:\tcall   900 <clock_gettime@plt>\n") == "");
}

TEST_CASE("where a source fails says why") {
  const std::optional<judge::FirstWrong> none;
  judge::FirstWrong nan, close;
  nan.got = std::nan("");
  nan.expected = 1;
  close.got = 1.01;
  close.expected = 1;
  CHECK(judge::suspicion("", nan, {}) == "nan-games: ");
  CHECK(judge::suspicion("", nan, {.uniform = false}) == "easy-inputs: ");
  CHECK(judge::suspicion("", none, {.hidden = true, .round = true}) == "knows-shapes: ");
  CHECK(judge::suspicion("", none, {.hidden = true}) == "");
  CHECK(judge::suspicion("", none, {.other_threads = true}) == "race: ");
  CHECK(judge::suspicion("", close, {}) == "low-precision: ");
  CHECK(judge::suspicion("the run wrote outside the output", none, {}) == "unwritten-or-outside: ");
}

TEST_CASE("what to try next depends on how far it is from what memory allows") {
  judge::Judgement judgement;
  judgement.verdict = judge::Verdict::loser;
  judge::ShapeFigures shape;
  shape.problem = problem_of("softmax:rows=4,cols=8");
  shape.row.bound = "memory";
  const auto next = [&](double roof_pct) {
    shape.row.roof_pct = roof_pct;
    judgement.shapes = {shape};
    return judge::next_step(judgement);
  };
  CHECK(next(1).find("use vectors") != std::string::npos);
  CHECK(next(50).find("read and write each element once") != std::string::npos);
  CHECK(next(95).find("little is left") != std::string::npos);
}

TEST_CASE("hashes are those of FIPS 180") {
  CHECK(judge::sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(judge::sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(judge::sha256(std::string(1000, 'a')) ==
        "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

TEST_CASE("the archive numbers attempts, keeps their sources and passes over broken lines") {
  const TemporaryFolder folder;
  const std::string path = folder / "attempts";
  const nlohmann::ordered_json document = {
      {"kernel", "softmax"}, {"verdict", "TIE"}, {"source", {{"path", "a.c"}}}};
  CHECK(judge::attempts_in(path, "").empty());
  CHECK(judge::keep_attempt(path, document, "int a;") == 1);
  std::ofstream(path, std::ios::app) << "{\"kernel\":\"gemm\n";
  CHECK(judge::keep_attempt(path, document, "int b;") == 2);
  const auto attempts = judge::attempts_in(path, "softmax");
  REQUIRE(attempts.size() == 2);
  CHECK(attempts[1]["attempt"] == 2);
  CHECK(attempts[1]["source"]["text"] == "int b;");
  CHECK(judge::attempts_in(path, "gemm").empty());
  CHECK_THROWS_AS(judge::keep_attempt(folder / "no/such", document, ""), Error);
}

TEST_CASE("a reason names the cheat that it begins with") {
  const auto cheat = judge::cheat_in("replay: after x had changed");
  REQUIRE(cheat);
  CHECK(cheat->number == 4);
  CHECK(!judge::cheat_in("element y[0,0] is 1"));
  CHECK(!judge::cheat_in("replayed"));
}

TEST_CASE("a setting that refuses user namespaces is named") {
  const TemporaryFolder folder;
  const auto refusing = [&] { return jail::who_refuses_namespaces(folder.path()); };
  std::filesystem::create_directories(folder / "kernel");
  CHECK(refusing() == "a container or a chroot may refuse");
  std::ofstream(folder / "kernel/apparmor_restrict_unprivileged_userns") << "1\n";
  CHECK(refusing().find("kernel.apparmor_restrict_unprivileged_userns=1") != std::string::npos);
  std::ofstream(folder / "kernel/unprivileged_userns_clone") << "1\n";
  std::filesystem::create_directories(folder / "user");
  std::ofstream(folder / "user/max_user_namespaces") << "0\n";
  CHECK(refusing().find("user.max_user_namespaces=0") != std::string::npos);
}

TEST_CASE(
    "a jail has a control group beside the judge's own where memory and processes are given") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  };
  const auto found = [&] { return jail::folder_of_groups(folder.path()); };
  CHECK(found() == "");
  write("proc/self/mountinfo", "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
  write("proc/self/cgroup", "0::/app.slice/run.scope");
  const std::string slice = "sys/fs/cgroup/app.slice";
  write(slice + "/cgroup.procs", "");
  CHECK(found() == "");
  write(slice + "/cgroup.subtree_control", "cpu memory");
  CHECK(found() == "");
  write(slice + "/cgroup.subtree_control", "cpu memory pids");
  CHECK(found() == folder / slice);
  // Limits of the judge's own group would not hold in one beside it.
  write(slice + "/run.scope/cpu.max", "50000 100000");
  CHECK(found() == "");
  write(slice + "/run.scope/cpu.max", "max 100000");
  write(slice + "/run.scope/memory.max", "max");
  write(slice + "/run.scope/cpuset.cpus", "");
  CHECK(found() == folder / slice);
  std::filesystem::remove(folder / (slice + "/cgroup.procs"));  // nothing can be moved from there
  CHECK(found() == "");
}

TEST_CASE("a control group freezes what is in it, and ends it") {
  if (!jail::Group::can_be_made()) {
    MESSAGE("skipped: no control group can be made here");
    return;
  }
  pid_t child = 0;
  {
    const jail::Group group(std::uint64_t{1} << 30, 0);
    REQUIRE(group.exists());
    child = fork();
    if (child == 0) {
      if (write(group.procs(), "0", 1) != 1) _exit(1);
      for (;;) sched_yield();
    }
    const auto ran_for = [&](auto until) {
      // Of a test on a busy machine no time is asked.
      for (int i = 0; i < 2000 && !until(); ++i) usleep(5000);
      return until();
    };
    const auto used = [&] { return jail::cpu_time_since({}, child); };
    CHECK(ran_for([&] { return used() > 0; }));
    group.freeze();
    const double frozen_at = used();
    usleep(200'000);
    CHECK(used() == frozen_at);
    group.thaw();
    CHECK(ran_for([&] { return used() > frozen_at; }));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
}

TEST_CASE("the filter of system calls ends by allowing, and refuses more to kernels") {
  const auto kernels = jail::system_call_filter(false), compilers = jail::system_call_filter(true);
  REQUIRE(!compilers.empty());
  CHECK(kernels.size() > compilers.size());
  CHECK(compilers.back().k == 0x7fff0000U);
}

namespace {

// A softmax by hand, and ways to time it that are no work.
struct Guarded {
  Guarded() : operands(problem, seed, 1), guard(problem, operands, seed, fp32) {}
  void compute() const {
    const View &x = operands.all().at("x"), &y = operands.all().at("y");
    for (std::int64_t r = 0; r < x.shape[0]; ++r) {
      const float* const in = x.f32() + r * x.strides[0];
      float* const out = y.f32() + r * y.strides[0];
      const float most = *std::max_element(in, in + x.cols());
      double sum = 0;
      for (std::int64_t i = 0; i < x.cols(); ++i) sum += out[i] = std::exp(in[i] - most);
      for (std::int64_t i = 0; i < x.cols(); ++i) out[i] = static_cast<float>(out[i] / sum);
    }
  }
  // Why a series of such runs is refused; empty: it is not.
  std::string reason(RunCall run) {
    double now = 0;
    const auto often = [&](std::int64_t runs) {
      for (std::int64_t i = 0; i < runs; ++i) run();
    };
    try {
      guard.time(often, 64, [&] { return now += 1e5; });
    } catch (const WorkerError& error) {
      return error.what();
    }
    return {};
  }

  Problem problem = problem_of("softmax:rows=20,cols=50");
  InputSeed seed = 3;
  OwnedOperands operands;
  SeriesGuard guard;
  int series = 0;  // that is timed
};

}  // namespace

TEST_CASE("a timed series of honest runs passes and leaves the inputs as they were") {
  Guarded guarded;
  const std::uint64_t before = guarded.operands.input_hash();
  for (int i = 0; i < 5; ++i) CHECK(guarded.reason([&] { guarded.compute(); }) == "");
  CHECK(guarded.operands.input_hash() == before);
}

namespace {

// The time of a softmax whose runs take 1000 ns, by a planted clock: a call takes `call_ns` beyond
// them and is thought to take `thought_ns`.
double planted_ns(double call_ns, double thought_ns) {
  Guarded guarded;
  double now = 0;
  const auto often = [&](std::int64_t runs) {
    guarded.compute();
    now += call_ns + 1000 * static_cast<double>(runs);
  };
  double ns = 0;
  for (int i = 0; i < 3; ++i)
    ns = guarded.guard.time(often, 1000, [&] { return now; }, {thought_ns, 0});
  return ns;
}

}  // namespace

TEST_CASE("what a call takes is subtracted once a call, not once a run") {
  CHECK(planted_ns(0, 0) == doctest::Approx(1000));
  CHECK(planted_ns(600, 600) == doctest::Approx(1000));
}

TEST_CASE("on a machine where calls take less than they did when measured nobody wins by that") {
  // Rounds of a kernel beside itself; load makes calls dear and cheap from slot to slot.
  MeasuredRow judged, peer;
  for (MeasuredRow* const measured : {&judged, &peer}) {
    measured->row.status = "PASSED";
    measured->row.p50_ns = 1000;
  }
  for (int launch = 1; launch <= 3; ++launch) {
    for (int round = 0; round < 5; ++round) {
      const double thought = 120 + 100 * ((launch + round) % 5);
      Sample sample{};
      sample.launch = launch;
      sample.round = round;
      sample.ns = planted_ns(thought - 60, thought);
      judged.samples.push_back(sample);
      sample.ns = 1000 + 2 * (round % 3 - 1);
      peer.samples.push_back(sample);
    }
  }
  const std::vector<Contender> field = {{{&judged}, 1000}, {{&peer}, 1000}};
  CHECK(rank(field).state != Ranking::State::winner);
}

TEST_CASE("a time is never nothing") { CHECK(planted_ns(0, 1e9) > 0); }

namespace {

// Why series of short runs are refused whose calls take `call_ns(runs)`; empty: they are not.
std::string planted_reason(Guarded& guarded, FunctionRef<double(std::int64_t)> call_ns,
                           std::int64_t runs = 1000) {
  double now = 0;
  const auto often = [&](std::int64_t asked) {
    now += call_ns(asked);
    guarded.compute();
  };
  try {
    for (guarded.series = 0; guarded.series < 30; ++guarded.series) {
      guarded.guard.time(often, runs, [&] { return now; });
    }
  } catch (const WorkerError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("threads that slept between calls accuse nobody, and no short run wins by them") {
  Guarded guarded;
  double now = 0;
  const auto often = [&](std::int64_t runs) {
    now += 60e3 + 5e3 * static_cast<double>(runs);  // all threads wake once a call
    guarded.compute();
  };
  const CallCost call{2400, 3000, 2};
  for (int i = 0; i < 30; ++i) {
    CHECK_NOTHROW(guarded.guard.time(
        often, 200, [&] { return now; }, call));
  }
  CHECK(unseen_ns(call) > 1e9);
  CHECK(unseen_ns({2400, 100, 1}) < 1e3);
  CHECK(changed_each_from_ns(call) == doctest::Approx(48e3));
}

TEST_CASE("a run that takes less among others than by itself is told") {
  const auto reason = [](auto call_ns, std::int64_t runs = 1000) {
    Guarded guarded;
    return planted_reason(
        guarded, [&](std::int64_t asked) { return call_ns(guarded.series, asked); }, runs);
  };
  const auto halves = [](int, std::int64_t runs) {
    return 2000 * static_cast<double>((runs + 1) / 2);
  };
  CHECK(reason(halves).starts_with("skipped-calls: "));
  const auto last_alone = [](int, std::int64_t) { return 2000.0; };
  CHECK(reason(last_alone).starts_with("skipped-calls: "));
  int call = 0;
  const auto two_of_five = [&](int, std::int64_t runs) {
    return 2000 * static_cast<double>(runs > 1 && ++call % 5 < 2 ? 1 : runs);
  };
  CHECK(reason(two_of_five).starts_with("skipped-calls: "));
  const auto few_at_once = [](int, std::int64_t runs) {
    return 2000 * static_cast<double>(runs < 8 ? 1 : runs);
  };
  CHECK(reason(few_at_once, 30).starts_with("skipped-calls: "));
  // Half of the series, and few runs of many series: the mean of these is close to a single run's.
  const auto half_of_series = [](int series, std::int64_t runs) {
    return 2000 * static_cast<double>(series / 3 % 2 == 0 ? 1 : runs);
  };
  CHECK(reason(half_of_series).starts_with("skipped-calls: "));
  const auto most_series = [](int series, std::int64_t runs) {
    const bool slow = series % 3 == 0;
    return static_cast<double>(runs) * (runs == 1 ? 2000 : slow ? 4000 : 1400);
  };
  CHECK(reason(most_series).starts_with("skipped-calls: "));
  // Two of three series in seven of ten rounds, half of the runs; the others take longer.
  const auto some_rounds = [](int series, std::int64_t runs) {
    const bool quick = series % 3 < 2 && series / 3 % 10 < 7;
    return static_cast<double>(runs) * (runs == 1 ? 2000 : quick ? 1000 : 2400);
  };
  CHECK(reason(some_rounds).starts_with("skipped-calls: "));
  // What a call takes is known to some 50 ns, and a single run finds the CPU's predictors cold: 340
  // ns more, beside 600 of a BLAS.
  const auto honest = [](int, std::int64_t runs) { return 50 + 1000 * static_cast<double>(runs); };
  CHECK(reason(honest) == "");
  const auto cold = [](int, std::int64_t runs) { return 340 + 600 * static_cast<double>(runs); };
  CHECK(reason(cold) == "");
  const auto too_cold = [](int, std::int64_t runs) {
    return 400 + 600 * static_cast<double>(runs);
  };
  CHECK(reason(too_cold).starts_with("skipped-calls: "));
}

TEST_CASE("a single run may take longer by lines that come from a distant CPU") {
  const auto distant = [](double call_ns) {
    Guarded guarded;
    double now = 0;
    const auto often = [&](std::int64_t runs) {
      guarded.compute();
      now += call_ns + 430 + 800 * static_cast<double>(runs);
    };
    for (int i = 0; i < 10; ++i) {
      guarded.guard.time(often, 1000, [&] { return now; }, {call_ns, 20});
    }
  };
  distant(600);
  CHECK_THROWS_AS(distant(100), WorkerError);
}

TEST_CASE("a run that takes less where its inputs are as before is told") {
  Guarded guarded;
  const View& x = guarded.operands.all().at("x");
  std::vector<float> known;
  const auto compares = [&](std::int64_t runs) {
    const std::vector<float> now(x.f32(), x.f32() + x.elements());
    const double first = std::exchange(known, now) == now ? 300 : 1000;
    return first + 300 * static_cast<double>(runs - 1);
  };
  CHECK(planted_reason(guarded, compares).starts_with("replay: "));
}

TEST_CASE("a result that is given again is told within the series") {
  Guarded guarded;
  guarded.compute();
  const View& y = guarded.operands.all().at("y");
  const std::vector<float> kept(y.f32(), y.f32() + y.elements());
  const auto replay = [&] { std::copy(kept.begin(), kept.end(), y.f32()); };
  std::string reason;
  for (int i = 0; i < 20 && reason.empty(); ++i) reason = guarded.reason(replay);
  CHECK(reason.starts_with("replay: "));
}

TEST_CASE("a run that is left out is told within the series") {
  Guarded guarded;
  guarded.compute();
  int call = 0;
  const auto skip = [&] {
    if (++call % 8 != 0) guarded.compute();
  };
  // Which runs are watched is drawn each time: a series may show none of those left out.
  std::string reason;
  for (int i = 0; i < 20 && reason.empty(); ++i) reason = guarded.reason(skip);
  INFO(reason);
  // What a run left as it was may also look like an earlier result.
  CHECK((reason.starts_with("skipped-calls: ") || reason.starts_with("replay: ")));
}
