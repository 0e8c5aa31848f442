// Fits of the cost models' constants to made-up times: planted constants are found, and nothing is
// kept where nothing is gained. Nothing is measured.
#include "bench/learn.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "backends/highway.hpp"
#include "bench/model_times.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/temporary_folder.hpp"
#include "made_up_traits.hpp"

namespace rooflane {
namespace {

// Puts back the traits of this machine.
struct TraitsAsTheyWere {
  TraitsAsTheyWere() = default;
  ~TraitsAsTheyWere() { use_traits(std::nullopt); }
  TraitsAsTheyWere(const TraitsAsTheyWere&) = delete;
  TraitsAsTheyWere& operator=(const TraitsAsTheyWere&) = delete;
};

void use(const MeasuredTraits& traits, const ModelConstants& constants) {
  MeasuredTraits changed = traits;
  changed.at_isa.constants = constants;
  use_traits(changed);
}

constexpr int problems = 300;

// Problems with the candidates' times as a machine with these constants would take them.
MachineTimes times_by(const Catalogue& catalogue, std::uint64_t seed,
                      const ModelConstants& constants) {
  const TraitsAsTheyWere after;
  const test::MadeUpMachine made = test::made_up_machine(seed);
  MachineTimes machine{made.measured, {}};
  const std::string isa = isa_targets().front();
  machine.traits.isa = isa;
  machine.traits.fma = {{isa, made.measured.fma.at("AVX3")}};
  const Kernel& gemm = catalogue.kernel("gemm");
  test::Draws draw(seed);
  for (int i = 0; i < problems; ++i) {
    ProblemTimes times;
    times.variant = catalogue.variant(gemm, "hwy").variant;
    times.problem = parse_problem(
        "gemm:m=" + std::to_string(draw.size(4, 800)) + ",n=" + std::to_string(draw.size(4, 800)) +
            ",k=" + std::to_string(draw.size(4, 800)) + (i % 3 == 0 ? ",trans_b=1" : ""),
        catalogue.kernels());
    times.env.isa = isa;
    times.env.threads = i % 2 == 0 ? 1 : 16;
    use(machine.traits, ModelConstants());
    for (const Tuning& tuning : times.variant->tunings(times.problem, times.env)) {
      if (times.candidates.size() < 16) times.candidates.push_back({tuning, 1});
    }
    use(machine.traits, constants);
    const std::vector<double> ns = predictions_of(times);
    for (std::size_t j = 0; j < ns.size(); ++j) times.candidates[j].ns = ns[j];
    machine.problems.push_back(std::move(times));
  }
  return machine;
}

ModelConstants planted() {
  ModelConstants constants;
  constants.gemm.setup_ops *= 6;
  constants.gemm.taken_share *= 5;
  constants.gemm.block_ops *= 4;
  return constants;
}

TEST_CASE("a fit finds constants that were planted, and they gain on unseen problems") {
  const Catalogue catalogue = Catalogue::built_in();
  const std::vector<MachineTimes> machines = {times_by(catalogue, 3, planted())};
  const ModelConstants found = fitted("gemm", machines, {});
  CHECK(found.gemm.setup_ops > 1.5 * ModelConstants().gemm.setup_ops);
  CHECK(found.gemm.block_ops > ModelConstants().gemm.block_ops);
  const Gain gain = gain_of("gemm", machines, {}, found);
  CAPTURE(gain.changed);
  CAPTURE(gain.log_ratio.value);
  CAPTURE(gain.log_ratio.error);
  CHECK(gain.seen + gain.unseen == problems);
  CHECK(gain.unseen > problems / 5);
  CHECK(gain.mean_after < 0.5 * gain.mean_before);
  CHECK(gain.is_certain());
  // The errors of predicted ratios fall with the regret.
  for (const ClassRegret& of : gain.classes) CHECK(of.error_after < 0.75 * of.error_before);
  // No made-up machine is left behind.
  CHECK(traits(isa_targets().front(), 1).constants == ModelConstants());
  SUBCASE("the same times give the same constants") {
    CHECK(fitted("gemm", machines, {}) == found);
  }
  SUBCASE("several machines are fitted together") {
    const std::vector<MachineTimes> two = {machines.front(), times_by(catalogue, 4, planted())};
    CHECK(gain_of("gemm", two, {}, fitted("gemm", two, {})).is_certain());
  }
}

TEST_CASE("where the shipped constants are right nothing changes, and nothing is gained") {
  const Catalogue catalogue = Catalogue::built_in();
  const std::vector<MachineTimes> machines = {times_by(catalogue, 5, {})};
  const ModelConstants found = fitted("gemm", machines, {});
  const Gain gain = gain_of("gemm", machines, {}, found);
  CHECK(!gain.is_certain());
  CHECK(gain.mean_before < 1e-9);
  for (const ClassRegret& of : gain.classes) CHECK(of.error_before < 1e-9);
}

TEST_CASE("constants that lose on unseen problems are no gain") {
  const Catalogue catalogue = Catalogue::built_in();
  const std::vector<MachineTimes> machines = {times_by(catalogue, 3, planted())};
  CHECK(!gain_of("gemm", machines, planted(), {}).is_certain());
}

TEST_CASE("times are read as they were written, and what is wrong with a file is named") {
  const Catalogue catalogue = Catalogue::built_in();
  const MachineTimes machine = times_by(catalogue, 3, {});
  const TemporaryFolder folder;
  const std::string path = folder / "times.csv";
  {
    TimesFile file(path, machine.traits);
    for (const ProblemTimes& times : machine.problems) file.append(times);
  }
  const RecordedTimes read = read_times(path, catalogue);
  REQUIRE(read.traits);
  CHECK(print_traits(*read.traits) == print_traits(machine.traits));
  REQUIRE(read.problems.size() == machine.problems.size());
  for (std::size_t i = 0; i < read.problems.size(); ++i) {
    const ProblemTimes &x = read.problems[i], &y = machine.problems[i];
    CHECK(x.problem == y.problem);
    CHECK(x.env.threads == y.env.threads);
    REQUIRE(x.candidates.size() == y.candidates.size());
    for (std::size_t j = 0; j < x.candidates.size(); ++j) {
      CHECK(x.candidates[j].tuning == y.candidates[j].tuning);
      CHECK(std::abs(x.candidates[j].ns - y.candidates[j].ns) <= 0.5);  // whole nanoseconds
    }
  }

  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto message = [&](const std::string& changed) -> std::string {
    std::ofstream(path) << changed;
    try {
      read_times(path, catalogue);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  // A killed run leaves half a line, which is left out.
  CHECK(message(text.substr(0, text.size() - 20)) == "");
  CHECK(message("") == path + ": no recorded times");
  CHECK(message("problem,ns\n").find("line 1: 'variant,math") != std::string::npos);
  CHECK(message(text + "hwy,fp32,,1\n").find("4 fields, not 7") != std::string::npos);
  CHECK(message(text + "hwy,fp32,,0,\"gemm:m=1,n=1,k=1\",5,\"\"\n").find("threads '0'") !=
        std::string::npos);
  CHECK(message(text + "hwy,fp32,,1,\"gemm:m=1,n=1,k=1\",-5,\"\"\n").find("ns '-5'") !=
        std::string::npos);
  CHECK(message(text + "scalar,fp32,,1,\"gemm:m=1,n=1,k=1\",5,\"\"\n").find("no cost model") !=
        std::string::npos);
  CHECK(message("# rooflane-traits 1\n" + text.substr(text.find("variant,"))).find("its traits") !=
        std::string::npos);
  CHECK_THROWS_AS(read_times(folder / "none.csv", catalogue), Error);
  CHECK_THROWS_AS(TimesFile(folder / "no/times.csv", machine.traits), Error);
}

}  // namespace
}  // namespace rooflane
