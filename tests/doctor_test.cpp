// What `doctor` finds on machines made of files.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "cli/slowdowns.hpp"
#include "cli/traits_text.hpp"
#include "core/temporary_folder.hpp"

namespace rooflane {
namespace {

void write(const TemporaryFolder& root, const std::string& path, const std::string& text) {
  const std::filesystem::path file = root / path;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text << "\n";
}

constexpr auto group_mount = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";

// The command that fixes what `word` names; empty when it was not found.
std::string fix(const std::vector<Slowdown>& found, const std::string& word) {
  const auto slowdown = std::find_if(found.begin(), found.end(), [&](const Slowdown& s) {
    return s.what.find(word) != std::string::npos;
  });
  return slowdown == found.end() ? "" : slowdown->fix;
}

std::string fix(const TemporaryFolder& root, const std::string& word) {
  return fix(find_slowdowns(root.path()), word);
}

std::string driver_fix(const TemporaryFolder& root, const std::string& word) {
  return fix(find_missing_drivers(root.path()), word);
}

TEST_CASE("each slowdown is found with the command that fixes it") {
  const TemporaryFolder root;
  const std::string cpu = "sys/devices/system/cpu/";
  write(root, cpu + "cpu0/cpufreq/scaling_governor", "powersave");
  write(root, cpu + "intel_pstate/no_turbo", "1");
  write(root, cpu + "cpufreq/boost", "0");
  write(root, cpu + "smt/active", "1");
  write(root, "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  write(root, "proc/self/mountinfo", group_mount);
  write(root, "sys/fs/cgroup/cpu.max", "50000 100000");
  CHECK(fix(root, "governor is 'powersave'").find("echo performance") == 0);
  CHECK(fix(root, "turbo is off").find("echo 0") == 0);
  CHECK(fix(root, "boost is off").find("echo 1") == 0);
  CHECK(fix(root, "SMT").find("echo off") == 0);
  CHECK(fix(root, "huge pages").find("echo madvise") == 0);
  CHECK(fix(root, "quota of 0.5 CPUs").find("--cpuset-cpus") != std::string::npos);
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
  write(best, "proc/self/mountinfo", group_mount);
  write(best, "sys/fs/cgroup/cpu.max", "max 100000");
  write(best, "proc/loadavg", "3.20 1.00 0.50 1/300 1234");  // the past minute's: our own, perhaps
  write(best, "proc/stat", "cpu 10 0 10 100 0 0 0 7");
  for (const TemporaryFolder* root : {&silent, &best}) {
    for (const char* word :
         {"governor", "turbo", "boost", "SMT", "huge pages", "quota", "other work", "steal"}) {
      CHECK_MESSAGE(fix(*root, word).empty(), word);
    }
  }
}

TEST_CASE("limits are told with the command that raises them, as far as the hard limit lets it") {
  unsetenv("OMP_WAIT_POLICY");  // of the tests, and a slowdown as well
  const TemporaryFolder root;
  const std::string head = "Limit                     Soft Limit           Hard Limit    Units\n";
  write(root, "proc/self/limits",
        head +
            "Max processes             100                  4096          processes\n"
            "Max locked memory         65536                65536         bytes\n"
            "Max address space         1048576              unlimited     bytes");
  CHECK(fix(root, "may be locked").empty());  // nothing here that transfers
  write(root, "sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de");
  write(root, "sys/bus/pci/devices/0000:01:00.0/class", "0x030200");
  CHECK(fix(root, "only 64 KiB of memory may be locked").find("/etc/security/limits.d/memlock") !=
        std::string::npos);
  CHECK(fix(root, "address space is limited to 1 MiB") == "ulimit -v unlimited");
  CHECK(fix(root, "only 100 processes") == "ulimit -u 1024");
  write(root, "proc/self/limits",
        head +
            "Max processes             unlimited            unlimited     processes\n"
            "Max locked memory         unlimited            unlimited     bytes\n"
            "Max address space         unlimited            unlimited     bytes");
  CHECK(find_slowdowns(root.path()).empty());
}

TEST_CASE("how busy each CPU was between two readings") {
  const std::vector<double> shares =
      busy_shares("cpu 9 9 9 9\ncpu0 100 0 0 100 0 0 0 0\ncpu1 0 0 0 50 50 0 0 0\nintr 5\n",
                  "cpu 9 9 9 9\ncpu0 130 0 10 160 0 0 0 0\ncpu1 0 0 0 90 60 0 0 0\nintr 9\n");
  REQUIRE(shares.size() == 2);
  CHECK(shares[0] == doctest::Approx(0.4));
  CHECK(shares[1] == 0);
}

TEST_CASE("other work is what CPUs do now, without what the hypervisor stole") {
  CHECK(busy_cpus("cpu 100 0 0 100 0 0 0 0\ncpu0 100\ncpu1 0\nintr 5\n",
                  "cpu 130 5 5 130 10 0 0 20\ncpu0 130\ncpu1 0\nintr 9\n") ==
        doctest::Approx(2 * 0.4));
  CHECK(busy_cpus("", "") == 0);
}

TEST_CASE("OpenBLAS that takes the CPU for a slower one is told with the export that fixes it") {
  const auto slowdown =
      core_type_slowdown("OpenBLAS 0.3.21 Haswell", {{"OPENBLAS_CORETYPE", "SkylakeX"}});
  REQUIRE(slowdown.has_value());
  CHECK(slowdown->fix == "export OPENBLAS_CORETYPE=SkylakeX");
  CHECK(slowdown->what.find("OpenBLAS 0.3.21 mistakes this CPU for Haswell") == 0);
  CHECK(!core_type_slowdown("OpenBLAS 0.3.21 SkylakeX", {{"OPENBLAS_CORETYPE", "SKYLAKEX"}}));
  CHECK(!core_type_slowdown("MKL 2024.1", {}));
}

TEST_CASE("a card without the file that names its driver is told with what installs it") {
  const TemporaryFolder root;
  CHECK(driver_fix(root, "no OpenCL driver") == "sudo apt-get install pocl-opencl-icd");
  write(root, "etc/OpenCL/vendors/pocl.icd", "libpocl.so.2");
  CHECK(find_missing_drivers(root.path()).empty());

  const std::string card = "sys/bus/pci/devices/0000:01:00.0/";
  write(root, card + "vendor", "0x10de");
  write(root, card + "class", "0x040300");  // the card's sound
  CHECK(find_missing_drivers(root.path()).empty());
  write(root, card + "class", "0x030200");
  CHECK(driver_fix(root, "NVIDIA card") == "sudo apt-get install nvidia-opencl-icd");
  write(root, "proc/driver/nvidia/version", "NVRM version: 580");
  CHECK(driver_fix(root, "NVIDIA card").find("libnvidia-opencl.so.1 | sudo tee") !=
        std::string::npos);
  write(root, "etc/OpenCL/vendors/nvidia.icd", "libnvidia-opencl.so.1");
  CHECK(find_missing_drivers(root.path()).empty());

  write(root, "sys/bus/pci/devices/0000:02:00.0/vendor", "0x1002");
  write(root, "sys/bus/pci/devices/0000:02:00.0/class", "0x030000");
  CHECK(driver_fix(root, "AMD card") == "sudo apt-get install mesa-opencl-icd");
}

TEST_CASE("in a container NVIDIA's own list of cards is enough") {
  const TemporaryFolder root;
  write(root, "proc/driver/nvidia/version", "NVRM version: 580");
  write(root, "proc/driver/nvidia/gpus/0000:00:06.0/information", "Model: NVIDIA H200");
  const std::vector<Slowdown> found = find_missing_drivers(root.path());
  REQUIRE(found.size() == 1);
  CHECK(found[0].fix.find("nvidia.icd") != std::string::npos);
}

TEST_CASE("a calibration's age is told in the largest whole unit") {
  const std::string date = "2026-01-31 12:00:00 UTC";
  const std::time_t then = 1769860800;
  CHECK(traits_age(date, then) == "just now");
  CHECK(traits_age(date, then - 5) == "just now");  // a clock that was set back
  CHECK(traits_age(date, then + 60) == "1 minute ago");
  CHECK(traits_age(date, then + 7199) == "1 hour ago");
  CHECK(traits_age(date, then + 3 * 86400) == "3 days ago");
  CHECK(traits_age("yesterday", then) == "at yesterday");
}

TEST_CASE("steal is the hypervisor's share of the time between two readings") {
  CHECK(steal_share("cpu 100 0 50 800 0 0 0 50 0 0\ncpu0 ...", "cpu 150 0 50 830 0 0 0 70 0 0\n") ==
        doctest::Approx(0.2));
  CHECK(steal_share("cpu 1 0 0 0 0 0 0 0", "cpu 1 0 0 0 0 0 0 0") == 0);
}

}  // namespace
}  // namespace rooflane
