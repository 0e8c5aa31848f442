// What `doctor` finds on machines made of files.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "cli/slowdowns.hpp"
#include "temporary_folder.hpp"

namespace rooflane {
namespace {

void write(const TemporaryFolder& root, const std::string& path, const std::string& text) {
  const std::filesystem::path file = root / path;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text << "\n";
}

// The command that mends what `word` names; empty when it was not found.
std::string mend(const TemporaryFolder& root, const std::string& word) {
  const std::vector<Slowdown> found = find_slowdowns(root.path());
  const auto slowdown = std::find_if(found.begin(), found.end(), [&](const Slowdown& s) {
    return s.what.find(word) != std::string::npos;
  });
  return slowdown == found.end() ? "" : slowdown->mend;
}

TEST_CASE("each slowdown is found with the command that mends it") {
  const TemporaryFolder root;
  const std::string cpu = "sys/devices/system/cpu/";
  write(root, cpu + "cpu0/cpufreq/scaling_governor", "powersave");
  write(root, cpu + "intel_pstate/no_turbo", "1");
  write(root, cpu + "cpufreq/boost", "0");
  write(root, cpu + "smt/active", "1");
  write(root, "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  write(root, "sys/fs/cgroup/cpu.max", "50000 100000");
  write(root, "proc/loadavg", "3.20 1.00 0.50 2/300 1234");
  CHECK(mend(root, "governor is 'powersave'").find("echo performance") == 0);
  CHECK(mend(root, "turbo is off").find("echo 0") == 0);
  CHECK(mend(root, "boost is off").find("echo 1") == 0);
  CHECK(mend(root, "SMT").find("echo off") == 0);
  CHECK(mend(root, "huge pages").find("echo madvise") == 0);
  CHECK(mend(root, "quota of 0.5 CPUs").find("--cpuset-cpus") != std::string::npos);
  CHECK(mend(root, "load 3.20").find("top") == 0);
}

TEST_CASE("a machine at its best, or one that tells nothing, has no such complaint") {
  const TemporaryFolder silent;
  const TemporaryFolder best;
  const std::string cpu = "sys/devices/system/cpu/";
  write(best, cpu + "cpu0/cpufreq/scaling_governor", "performance");
  write(best, cpu + "intel_pstate/no_turbo", "0");
  write(best, cpu + "cpufreq/boost", "1");
  write(best, cpu + "smt/active", "0");
  write(best, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  write(best, "sys/fs/cgroup/cpu.max", "max 100000");
  write(best, "proc/loadavg", "0.05 1.00 0.50 2/300 1234");
  write(best, "proc/stat", "cpu 10 0 10 100 0 0 0 7");
  for (const TemporaryFolder* root : {&silent, &best}) {
    for (const char* word :
         {"governor", "turbo", "boost", "SMT", "huge pages", "quota", "load", "steal"}) {
      CHECK_MESSAGE(mend(*root, word).empty(), word);
    }
  }
}

TEST_CASE("steal is the hypervisor's share of the time between two readings") {
  CHECK(steal_share("cpu 100 0 50 800 0 0 0 50 0 0\ncpu0 ...", "cpu 150 0 50 830 0 0 0 70 0 0\n") ==
        doctest::Approx(0.2));
  CHECK(steal_share("cpu 1 0 0 0 0 0 0 0", "cpu 1 0 0 0 0 0 0 0") == 0);
}

}  // namespace
}  // namespace rooflane
