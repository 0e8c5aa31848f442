// Drivers that abort, crash, exit or hang when they are opened, and those beside them that work.
// Real libraries that crash: opencl_faults_test.py.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "backends/opencl_drivers.hpp"

using namespace rooflane;
using namespace std::chrono_literals;
using opencl::TriedDrivers;

namespace {

// The loader's variables for a test; the folder's is restored afterwards.
class Vendors {
 public:
  explicit Vendors(const std::string& folder, const std::string& libraries = "") {
    if (const char* old = std::getenv("OCL_ICD_VENDORS")) old_ = old;
    setenv("OCL_ICD_VENDORS", folder.c_str(), 1);
    setenv("OCL_ICD_FILENAMES", libraries.c_str(), 1);
  }
  ~Vendors() { old_ ? setenv("OCL_ICD_VENDORS", old_->c_str(), 1) : unsetenv("OCL_ICD_VENDORS"); }

 private:
  std::optional<std::string> old_;
};

// Names in the folder that the loader would read, as one word each, and libraries behind them.
std::string seen() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::getenv("OCL_ICD_VENDORS"))) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : " ") + name;
  const std::string libraries = std::getenv("OCL_ICD_FILENAMES");
  return libraries.empty() ? all : all + " " + libraries;
}

// As a loader: opens every driver that it sees; the bad ones end the process.
void open_all() {
  const std::string all = seen();
  if (all.find("aborts") != std::string::npos) {
    std::fputs("first words\nthe driver's last words\n", stderr);
    std::abort();
  }
  if (all.find("hangs") != std::string::npos) pause();
}

std::string only_reason(const std::function<void()>& open, std::chrono::milliseconds patience) {
  const TemporaryFolder empty;
  const Vendors vendors(empty.path());
  const TriedDrivers drivers(open, patience);
  CHECK_FALSE(drivers.any_works());
  REQUIRE(drivers.broken().size() == 1);
  bool opened = false;
  drivers.open_working([&] { opened = true; });
  CHECK_FALSE(opened);
  return drivers.broken().front().reason;
}

}  // namespace

TEST_CASE("a driver that ends its process is told by its signal or status and its last words") {
  CHECK(
      only_reason([] { std::fputs("out of luck\n\n", stdout), std::fflush(stdout), std::abort(); },
                  60s) == "SIGABRT: out of luck");
  CHECK(only_reason([] { raise(SIGSEGV); }, 60s) == "SIGSEGV");
  CHECK(only_reason([] { _exit(3); }, 60s) == "it exited with status 3");
  CHECK(only_reason([] { pause(); }, 100ms) == "no answer within 0.1 s");
}

TEST_CASE("PoCL 5 is known to compile wrongly, other releases and drivers are not") {
  const auto fault = opencl::compiler_fault("OpenCL 3.0 PoCL 5.0-debian  Linux, +Asserts, RELOC");
  REQUIRE(fault);
  CHECK(fault->find("install PoCL 3, 4 or 6") != std::string::npos);
  for (const char* version :
       {"OpenCL 3.0 PoCL 3.1+debian", "OpenCL 3.0 PoCL 6.0", "OpenCL 3.0 CUDA",
        "OpenCL 3.0 PoCL 50.1", "PoCL ", "OpenCL 5.0 ", ""}) {
    INFO(version);
    CHECK_FALSE(opencl::compiler_fault(version));
  }
  CHECK(opencl::pocl_major("OpenCL 3.0 PoCL 6.0  Linux") == 6);
  CHECK(opencl::pocl_major("OpenCL 3.0 CUDA 12.2") == 0);
}

TEST_CASE("drivers that work are opened where they stand, in this process") {
  const TemporaryFolder folder;
  std::ofstream(folder / "good.icd") << "libgood.so\n";
  const Vendors vendors(folder.path());
  const TriedDrivers drivers(open_all, 60s);
  CHECK(drivers.broken().empty());
  std::string where;
  drivers.open_working([&] { where = std::getenv("OCL_ICD_VENDORS"); });
  CHECK(where == folder.path());
}

TEST_CASE("drivers that crash or hang are left out, and the others are opened without them") {
  const TemporaryFolder folder;
  for (const char* name : {"aborts.icd", "good.icd", "hangs.icd", "other.icd", "no_driver.txt"}) {
    std::ofstream(folder / name) << "libnone.so\n";
  }
  const Vendors vendors(folder.path(), "libaborts.so:libgood.so:/libs/libother.so");
  const TriedDrivers drivers(open_all, 2s);
  REQUIRE(drivers.broken().size() == 3);
  CHECK(drivers.broken()[0].file == "aborts.icd");
  CHECK(drivers.broken()[0].reason == "SIGABRT: the driver's last words");
  CHECK(drivers.broken()[1].file == "hangs.icd");
  CHECK(drivers.broken()[1].reason == "no answer within 2 s");
  CHECK(drivers.broken()[2].file == "libaborts.so");
  CHECK(drivers.any_works());
  std::string names;
  drivers.open_working([&] { names = seen(); });
  CHECK(names == "good.icd other.icd libgood.so:/libs/libother.so");
  CHECK(std::getenv("OCL_ICD_VENDORS") == folder.path());
}
