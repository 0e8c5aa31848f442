// A backend: a constant record that several variants share (OpenCL devices, a BLAS library,
// Highway). Code that runs or measures variants uses the record and compares no names. Each record
// is in src/backends, with its backend.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rooflane {

struct Ceilings;  // core/ceilings.hpp

// Environment variables, name and value.
using Variables = std::vector<std::pair<std::string, std::string>>;

struct LibraryFacts {
  std::string path;         // as opened
  std::string description;  // "OpenBLAS 0.3.21 SkylakeX"
};

// Functions of a backend with variants that call a library, opened at run time. A library is named
// by its path; empty: the default search. A process opens one.
struct Libraries {
  // Opens it. Throws Error.
  LibraryFacts (*open)(const std::string& path);
  // With what a process must be started so that the library runs at its best. Throws Error.
  Variables (*best_environment)(const std::string& path);
};

struct DeviceFacts {
  std::string name;  // like PlanFacts::device
  std::string kind;  // "GPU", "accelerator", "CPU"
  std::string platform, driver;
  bool is_cpu = false;           // the CPU itself: takes a number of threads, has the CPU's caches
  int compute_units = 0;         // as many threads at most
  std::size_t global_bytes = 0;  // memory; of a work-group:
  std::size_t local_bytes = 0;
  double peak_gflops = 0;    // what clock and units allow; 0: the driver does not say
  std::string peak_formula;  // "1980 MHz x 132 compute units x 128 lanes x 2"
};

struct FailedDriver {
  std::string file;    // "pocl.icd"
  std::string reason;  // what happened when it was opened
  std::string fault;   // in words: it "crashed at start"
};

// Functions of a backend with variants that run on devices, numbered from 0 (Environment::device).
// Functions with an index throw Error(unavailable) for a device that is not there.
struct Devices {
  const char* title;  // "OpenCL"
  int (*count)();     // opens the drivers, which may take a second
  DeviceFacts (*facts)(int index);
  // Why this number of threads cannot be used; nothing when it can. 0: the whole device.
  std::optional<std::string> (*unsupported_threads)(int index, int threads);
  // What a process does once before it plans on a device, and no part of planning.
  void (*prepare)(int index);
  // Raises a clock that the device lowered while it idled.
  void (*warm_clock)(int index);
  // Whether this process cannot use its devices any more: a new one is needed.
  bool (*lost)();
  // Adds a device's limits to `into`, in about `seconds`; its bandwidth curve without plateaus and,
  // on a device that is the CPU, up to `largest_footprint` bytes. `threads` is 0 unless the device
  // is a CPU.
  void (*measure_ceilings)(int index, int threads, double seconds, std::size_t largest_footprint,
                           Ceilings& into);
  // What is wrong with the plainest kernel on it; nothing when it is usable.
  std::optional<std::string> (*failure)(int index);
  std::string (*features)(int index);  // of a usable one, in words
  std::vector<FailedDriver> (*failed_drivers)();
  std::string (*kept_programs)();  // the programs compiled before and kept on disk, in words
  // The folder in which drivers announce themselves; nothing when none is looked at.
  std::optional<std::string> (*drivers_folder)();
};

struct Backend {
  const char* name;  // in rows and lists: "highway"
  // Why this machine cannot run variants with this library; nothing when it can. Opens the library
  // or the drivers. Null: every machine can.
  std::optional<std::string> (*absent_reason)(const std::string& library) = nullptr;
  const Libraries* libraries = nullptr;  // null: none is opened
  const Devices* devices = nullptr;      // null: runs on the CPU
  // The instruction set in rows of its variants, unless the plan names one.
  const char* isa = "";
  bool takes_isa = false;  // variants run at the ISA target that they are told (Environment::isa)
  // The target that such a name stands for, empty the best. Throws Error. Null: takes no target.
  std::string (*isa_named)(const std::string& name) = nullptr;
  // Threads are started by others than core/parallel.hpp: the process as a whole is kept on its
  // CPUs, and its first thread, from which they would inherit a single one, is not bound.
  bool foreign_threads = false;
  // Its variants are anybody's code: what they give is looked at within the timed series too.
  bool untrusted = false;
};

// The backends of this build, in the order of src/backends/meson.build.
std::span<const Backend* const> all_backends();

// A device of a backend that has some.
struct DeviceId {
  const Devices* of;
  int index = 0;
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

}  // namespace rooflane
