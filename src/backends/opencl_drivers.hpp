// OpenCL drivers, tried in a child process before this process opens them: a driver that aborts,
// crashes or hangs at its start ends only the child. The devices themselves are in opencl.hpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/temporary_folder.hpp"

namespace rooflane::opencl {

struct BrokenDriver {
  std::string file;    // "pocl.icd", its name in the loader's folder, or a library's name
  std::string reason;  // "SIGABRT when it was opened: Not enough memory to run on this device."
  std::string fault = "crashed at start";
};

// PoCL's release, by a platform's version (CL_PLATFORM_VERSION); 0: another driver.
std::int64_t pocl_major(std::string_view platform_version);

// What is wrong with the compiler of a driver that compiles kernels of ours wrongly, and what to
// install instead; nothing for all others.
std::optional<std::string> compiler_fault(std::string_view platform_version);

// The drivers that the loader (libOpenCL) would open are those that the *.icd files of the folder
// $OCL_ICD_VENDORS, else of /etc/OpenCL/vendors, name, and the libraries of $OCL_ICD_FILENAMES.
class TriedDrivers {
 public:
  // Calls `open` in a child process; where that ends badly, once for every driver alone. A child
  // that is not done within `patience` is ended.
  TriedDrivers(const std::function<void()>& open, std::chrono::milliseconds patience);

  const std::vector<BrokenDriver>& broken() const { return broken_; }
  // Whether `open` may be called here.
  bool any_works() const { return any_works_; }
  // Calls `open` in this process so that the loader, which looks once, sees the drivers that work.
  // Sets both variables meanwhile where one is broken.
  void open_working(const std::function<void()>& open) const;

 private:
  std::vector<BrokenDriver> broken_;
  bool any_works_ = true;
  // Where some work and others do not: links to the files of those that do, and their libraries.
  std::optional<TemporaryFolder> folder_;
  std::string libraries_;
};

}  // namespace rooflane::opencl
