// Traits: derived ones, other targets and numbers of threads than measured, and the file.
#include "core/traits.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

#include "backends/highway.hpp"
#include "core/error.hpp"
#include "core/temporary_folder.hpp"

namespace rooflane {
namespace {

Machine sixteen_cores() {
  Machine m;
  m.cpu = "Some CPU";
  m.all_cpus = 32;
  m.all_cores = 16;
  m.l1d_bytes = 48 << 10;
  m.l2_bytes = 2 << 20;
  m.l3_bytes = 60 << 20;
  return m;
}

// 16 threads: FMAs and L1 are each core's own, four of them use all of the memory's rate.
MeasuredTraits measured() {
  MeasuredTraits out;
  out.machine = machine_key(machine());
  out.date = "2026-01-31 12:00:00 UTC";
  out.isa = "AVX3";
  out.fma = {{"AVX3", {160e9, 128e9}}, {"AVX2", {80e9, 72e9}}};
  Traits& t = out.at_isa;
  t.l1_bytes = 48 << 10;
  t.l2_bytes = 2 << 20;
  t.l3_bytes = 40 << 20;
  t.threads = 16;
  t.one = {160e9, {400e9, 150e9, 40e9, 12e9}, {200e9, 75e9, 20e9, 8e9}, 10e9};
  t.many = {128e9, {400e9, 150e9, 20e9, 3e9}, {200e9, 75e9, 10e9, 2e9}, 2.5e9};
  t.transpose = 30e9;
  t.region = 4e-6;
  t.task = 80e-9;
  t.jitter = 0.4;
  t.pages = 2048;
  t.page_walk = 5e-9;
  t.units = {{"pmaddwd", {300e9, 240e9}}, {"amx-bf16", {2000e9, 1500e9}}};
  return out;
}

void check_ordered(const Traits::Rates& rates) {
  CHECK(rates.fma > 0);
  CHECK(rates.stream > 0);
  for (int level = 0; level < levels; ++level) {
    CHECK(rates.read[level] > 0);
    CHECK(rates.write[level] > 0);
    CHECK(rates.write[level] <= rates.read[level]);
    if (level == 0) continue;
    CHECK(rates.read[level] <= rates.read[level - 1]);
    CHECK(rates.write[level] <= rates.write[level - 1]);
  }
}

std::string complaint(const std::string& text) {
  try {
    parse_traits(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string with(std::string text, const std::string& old, const std::string& fresh) {
  const std::size_t at = text.find(old);
  REQUIRE(at != std::string::npos);
  return text.replace(at, old.size(), fresh);
}

TEST_CASE("derived traits are positive and fall from level to level, at every target") {
  for (const Machine& m : {machine(), sixteen_cores(), Machine()}) {
    for (const std::string& isa : generated_isa_targets()) {
      for (int threads : {1, 2, 16, 64}) {
        CAPTURE(isa);
        CAPTURE(threads);
        const Traits t = derived_traits(m, isa, threads);
        CHECK(t.origin == "derived");
        CHECK(t.threads == threads);
        CHECK(0 < t.l1_bytes);
        CHECK(t.l1_bytes <= t.l2_bytes);
        CHECK(t.l2_bytes * threads <= t.l3_bytes);
        check_ordered(t.one);
        check_ordered(t.many);
        CHECK(t.many.fma <= t.one.fma);
        CHECK(t.transpose > 0);
        CHECK(t.task > 0);
        CHECK((t.region > 0) == (threads > 1));
      }
    }
  }
}

TEST_CASE("a target's FMA rate follows its lanes, and SSE has half for want of a fused one") {
  const double avx3 = derived_traits(sixteen_cores(), "AVX3", 1).one.fma;
  CHECK(derived_traits(sixteen_cores(), "AVX2", 1).one.fma == doctest::Approx(avx3 / 2));
  CHECK(derived_traits(sixteen_cores(), "SSE4", 1).one.fma == doctest::Approx(avx3 / 8));
  for (const char* quarter : {"NEON", "NEON_WITHOUT_AES", "SVE2_128"}) {
    CHECK(derived_traits(sixteen_cores(), quarter, 1).one.fma == doctest::Approx(avx3 / 4));
  }
  CHECK(derived_traits(sixteen_cores(), "SVE_256", 1).one.fma == doctest::Approx(avx3 / 2));
  CHECK(derived_traits(sixteen_cores(), "SVE", 1).one.fma == doctest::Approx(avx3));
}

TEST_CASE("Intel's cores read half as much again from L2") {
  Machine intel = sixteen_cores();
  intel.cpu = "13th Gen Intel(R) Core(TM) i9";
  const double other = derived_traits(sixteen_cores(), "AVX3", 1).one.read[in_l2];
  CHECK(derived_traits(intel, "AVX3", 1).one.read[in_l2] == doctest::Approx(1.5 * other));
}

TEST_CASE("without a measurement the last of many threads is later than that of two") {
  const auto jitter = [](int threads) {
    return derived_traits(sixteen_cores(), "AVX3", threads).jitter;
  };
  CHECK(jitter(1) == 0);
  CHECK(jitter(2) == doctest::Approx(0.1));
  CHECK(jitter(16) == doctest::Approx(0.2 * 15 / 16));
}

TEST_CASE("a machine that reports no caches has the smallest of the last ten years") {
  const Traits t = derived_traits(Machine(), "AVX2", 1);
  CHECK(t.l1_bytes == 32 << 10);
  CHECK(t.l2_bytes == 256 << 10);
  CHECK(t.l3_bytes == 4 << 20);
}

TEST_CASE("as measured, at the target and number of threads of the measurement") {
  const Traits t = traits_of(measured(), sixteen_cores(), "AVX3", 16);
  CHECK(t.origin == "measured 2026-01-31 12:00:00 UTC");
  CHECK(t.many.fma == 128e9);
  CHECK(t.many.read[in_memory] == 3e9);
  CHECK(t.many.stream == 2.5e9);
  CHECK(t.region == 4e-6);
  CHECK(t.l3_bytes == 40 << 20);
}

TEST_CASE("fewer threads share what all reached together, none has more than one alone") {
  const Traits four = traits_of(measured(), sixteen_cores(), "AVX3", 4);
  CHECK(four.many.read[in_memory] == doctest::Approx(12e9));
  CHECK(four.many.read[in_l1] == 400e9);
  const Traits eight = traits_of(measured(), sixteen_cores(), "AVX3", 8);
  CHECK(eight.many.read[in_memory] == doctest::Approx(6e9));
  CHECK(eight.region == doctest::Approx(3e-6));
  const Traits one = traits_of(measured(), sixteen_cores(), "AVX3", 1);
  CHECK(one.many.read[in_memory] == 12e9);
  CHECK(one.many.fma == 160e9);
  CHECK(one.region == 0);
}

TEST_CASE("threads beyond the cores share them") {
  const Traits twice = traits_of(measured(), sixteen_cores(), "AVX3", 32);
  CHECK(twice.many.fma == doctest::Approx(64e9));
  CHECK(twice.many.read[in_memory] == doctest::Approx(1.5e9));
}

TEST_CASE("threads beyond the measured ones have cores of their own as long as there are some") {
  MeasuredTraits few = measured();
  few.at_isa.threads = 4;
  const Traits eight = traits_of(few, sixteen_cores(), "AVX3", 8);
  CHECK(eight.many.fma == 128e9);
  CHECK(eight.many.read[in_memory] == 3e9);
  CHECK(eight.region == doctest::Approx(6e-6));
}

TEST_CASE("calibrated with one thread, regions and tasks of more are derived") {
  MeasuredTraits single = measured();
  single.at_isa.threads = 1;
  single.at_isa.many = single.at_isa.one;
  single.at_isa.region = 0;
  const Traits four = traits_of(single, sixteen_cores(), "AVX3", 4);
  CHECK(four.region == derived_traits(sixteen_cores(), "AVX3", 4).region);
  CHECK(four.many.read[in_memory] == 12e9);
}

TEST_CASE("at a narrower target L1 slows with the FMA rate, and no level is faster than L1") {
  const Traits avx2 = traits_of(measured(), sixteen_cores(), "AVX2", 16);
  CHECK(avx2.one.fma == 80e9);
  CHECK(avx2.many.fma == 72e9);
  CHECK(avx2.one.read[in_l1] == doctest::Approx(200e9));
  CHECK(avx2.one.read[in_memory] == 12e9);
  check_ordered(avx2.one);
  const Traits sse = traits_of(measured(), sixteen_cores(), "SSE4", 16);
  CHECK(sse.one.fma == doctest::Approx(20e9));  // not measured: an eighth
  CHECK(sse.one.read[in_l1] == doctest::Approx(100e9));
  CHECK(sse.one.read[in_l2] == doctest::Approx(100e9));
  check_ordered(sse.many);
}

TEST_CASE("a unit's rate is the measured one, or follows from float32's") {
  const Traits all = traits_of(measured(), sixteen_cores(), "AVX3", 16);
  CHECK(all.rate("amx-bf16", false) == 2000e9);
  CHECK(all.rate("amx-bf16", true) == 1500e9);
  CHECK(all.rate("avx512-pmaddwd", true) == 240e9);
  CHECK(all.rate("avx512-fma", true) == 128e9);
  CHECK(all.rate("vpdpbusd", false) == doctest::Approx(4 * 160e9));
  CHECK(traits_of(measured(), sixteen_cores(), "AVX3", 4).rate("amx-bf16", true) ==
        doctest::Approx(1900e9));
  CHECK(traits_of(measured(), sixteen_cores(), "AVX2", 16).rate("avx2-pmaddwd", false) ==
        doctest::Approx(150e9));
  CHECK(derived_traits(sixteen_cores(), "AVX3", 2).rate("amx-int8", false) ==
        doctest::Approx(32 * derived_traits(sixteen_cores(), "AVX3", 2).one.fma));
}

TEST_CASE("a CPU that cuts its widest vectors in two loads as fast with halves") {
  MeasuredTraits halves = measured();
  halves.fma["AVX2"] = halves.fma["AVX3"];
  CHECK(traits_of(halves, sixteen_cores(), "AVX2", 16).one.read[in_l1] == 400e9);
}

TEST_CASE("a stored file is read back to the bit") {
  const TemporaryFolder folder;
  const std::string file = folder / "a/b/traits";
  write_traits(file, measured());
  write_traits(file, measured());  // over the one there is
  const TraitsSource source = read_traits(file);
  CHECK(source.problem == "");
  REQUIRE(source.measured);
  CHECK(print_traits(*source.measured) == print_traits(measured()));
  CHECK(source.measured->at_isa.one.fma == 160e9);
  CHECK(TemporaryFolder().names().empty());
  CHECK(folder.names() == std::vector<std::string>{"a"});
}

TEST_CASE("learned constants are in the file, shipped ones are the program's") {
  CHECK(print_traits(measured()).find("gemm.") == std::string::npos);
  CHECK(parse_traits(print_traits(measured())).at_isa.constants == ModelConstants());
  MeasuredTraits learned = measured();
  learned.at_isa.constants.gemm.tile_ops = 61.5;
  const MeasuredTraits read = parse_traits(print_traits(learned));
  CHECK(read.at_isa.constants == learned.at_isa.constants);
  CHECK(traits_of(read, sixteen_cores(), "AVX2", 4).constants.gemm.tile_ops == 61.5);
  CHECK(complaint(with(print_traits(learned), "gemm.split_l2 2", "gemm.split_l2 0.5"))
            .find("gemm.split_l2 '0.5': a number of at least 1") != std::string::npos);
}

TEST_CASE("a broken file says which line is wrong and what is allowed") {
  const std::string good = print_traits(measured());
  CHECK(complaint(good) == "");
  CHECK(complaint("") == "line 1: 'rooflane-traits 1' expected");
  CHECK(complaint("{}") == "line 1: 'rooflane-traits 1' expected");
  CHECK(complaint(good.substr(0, good.size() / 2)) == "cut off: the last line is not 'end'");
  CHECK(complaint(with(good, "region 4e-06", "region soon")) ==
        "line 22: region 'soon': a number of at least 0");
  CHECK(complaint(with(good, "region 4e-06", "region inf")) ==
        "line 22: region 'inf': a number of at least 0");
  CHECK(complaint(with(good, "region 4e-06", "region")) ==
        "line 22: region '': a number of at least 0");
  CHECK(complaint(with(good, "threads 16", "threads 0")) ==
        "line 5: threads '0': a whole number from 1 to 65536");
  CHECK(complaint(with(good, "l1_bytes 49152", "l1_bytes 1e300")) ==
        "line 10: l1_bytes '1e300': a whole number from 1 to 1125899906842624");
  CHECK(complaint(with(good, "one.stream", "one.steam")).find("nearest is 'one.stream'") !=
        std::string::npos);
  CHECK(complaint(with(good, "region 4e-06\n", "")) == "missing: region");
  CHECK(complaint(with(good, "task", "region 1\ntask")) == "line 23: 'region' stands twice");
  CHECK(complaint(with(good, "isa AVX3", "isa AVX9")) == "missing: fma AVX9");
  CHECK(complaint(with(good, "one.read 4e+11 ", "one.read ")) ==
        "line 13: one.read takes 4 numbers");
  CHECK(complaint(with(good, "unit amx-bf16 2e+12 1.5e+12\n", "")) == "");
  CHECK(complaint(with(good, "unit amx-bf16 2e+12", "unit amx-bf16")) ==
        "line 8: unit takes an instruction and two numbers");
  CHECK(complaint(with(good, "fma AVX2 8e+10", "fma AVX2")) ==
        "line 6: fma takes an ISA target and two numbers");
}

TEST_CASE("a file that is broken, of another machine, or none, is told apart") {
  const TemporaryFolder folder;
  const std::string file = folder / "traits";
  CHECK(!read_traits(file).measured);
  CHECK(read_traits(file).problem == "");
  CHECK(read_traits("").problem == "");
  std::ofstream(file) << "nonsense\n";
  CHECK(!read_traits(file).measured);
  CHECK(read_traits(file).problem == "line 1: 'rooflane-traits 1' expected");
  MeasuredTraits other = measured();
  other.machine = machine_key(sixteen_cores());
  write_traits(file, other);
  CHECK(read_traits(file).problem ==
        "measured on another machine (Some CPU, L1d 49152, L2 2097152, L3 62914560, 32 CPUs)");
  CHECK(read_traits(folder.path()).problem == "cannot be read");
  CHECK_THROWS_AS(write_traits("/proc/none/traits", other), Error);
}

TEST_CASE("ROOFLANE_TRAITS names the file, or says that there is none") {
  const char* before = std::getenv("ROOFLANE_TRAITS");
  const std::string kept = before != nullptr ? before : "";
  setenv("ROOFLANE_TRAITS", "none", 1);
  CHECK(traits_file().empty());
  setenv("ROOFLANE_TRAITS", "", 1);
  CHECK(traits_file().empty());
  setenv("ROOFLANE_TRAITS", "/some/file", 1);
  CHECK(traits_file() == "/some/file");
  unsetenv("ROOFLANE_TRAITS");
  setenv("XDG_CACHE_HOME", "/some/cache", 1);
  CHECK(traits_file().parent_path() == "/some/cache/rooflane");
  if (before != nullptr) setenv("ROOFLANE_TRAITS", kept.c_str(), 1);
}

TEST_CASE("without a file traits are the derived ones, and the reference stays") {
  if (traits_source().measured) return;
  const std::string isa = isa_targets().front();
  const Traits& t = traits(isa, 2);
  CHECK(&t == &traits(isa, 2));
  CHECK(&t != &traits(isa, 1));
  CHECK(t.origin == "derived");
  CHECK(t.many.fma == derived_traits(machine(), isa, 2).many.fma);
}

}  // namespace
}  // namespace rooflane
