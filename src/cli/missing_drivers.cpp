// Finds cards that lack an OpenCL driver. The loader (libOpenCL) finds drivers through the files in
// /etc/OpenCL/vendors; each names one library.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "cli/slowdowns.hpp"

namespace rooflane {
namespace {

namespace fs = std::filesystem;

struct Vendor {
  const char* pci;                   // as /sys/bus/pci/devices/*/vendor words it
  const char* name;                  // with its article
  std::vector<const char*> drivers;  // parts of the names of libraries that serve it
  const char* fix;
};

// NVIDIA's library comes with the driver itself; where it is there, only the file that names it is
// missing, as in many containers.
const Vendor vendors[] = {
    {"0x10de", "an NVIDIA", {"nvidia", "rusticl"}, "sudo apt-get install nvidia-opencl-icd"},
    {"0x1002",
     "an AMD",
     {"amdocl", "mesaopencl", "rusticl"},
     "sudo apt-get install mesa-opencl-icd"},
    {"0x8086",
     "an Intel",
     {"igdrcl", "beignet", "rusticl"},
     "sudo apt-get install intel-opencl-icd"},
};

constexpr auto name_nvidia_library =
    "sudo mkdir -p /etc/OpenCL/vendors; echo libnvidia-opencl.so.1 | sudo tee "
    "/etc/OpenCL/vendors/nvidia.icd";

std::string lower_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::transform(line.begin(), line.end(), line.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return line;
}

// What is in a folder; nothing where it is not there.
std::vector<fs::path> entries_of(const std::string& folder) {
  std::vector<fs::path> entries;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) entries.push_back(entry.path());
  return entries;
}

// Libraries that the loader would open, in small letters.
std::vector<std::string> installed_drivers(const std::string& folder) {
  std::vector<std::string> libraries;
  for (const fs::path& file : entries_of(folder)) {
    if (file.extension() == ".icd") libraries.push_back(lower_line(file));
  }
  return libraries;
}

// Display controllers (class 03) and NVIDIA's own list, which containers without /sys/bus/pci keep.
bool has_card(const std::string& root, const Vendor& vendor) {
  for (const fs::path& device : entries_of(root + "/sys/bus/pci/devices")) {
    if (lower_line(device / "vendor") == vendor.pci &&
        lower_line(device / "class").starts_with("0x03")) {
      return true;
    }
  }
  return std::string_view(vendor.pci) == "0x10de" &&
         !entries_of(root + "/proc/driver/nvidia/gpus").empty();
}

bool serves(const std::string& library, const Vendor& vendor) {
  return std::any_of(vendor.drivers.begin(), vendor.drivers.end(),
                     [&](const char* driver) { return library.find(driver) != std::string::npos; });
}

}  // namespace

bool has_card(const std::string& root) {
  return std::any_of(std::begin(vendors), std::end(vendors),
                     [&](const Vendor& vendor) { return has_card(root, vendor); });
}

std::vector<Slowdown> find_missing_drivers(const std::string& root,
                                           const std::string& vendors_folder) {
  std::vector<Slowdown> found;
  const std::vector<std::string> libraries = installed_drivers(root + vendors_folder);
  for (const Vendor& vendor : vendors) {
    const bool served = std::any_of(libraries.begin(), libraries.end(),
                                    [&](const auto& library) { return serves(library, vendor); });
    if (served || !has_card(root, vendor)) continue;
    const bool kernel_driver = fs::exists(root + "/proc/driver/nvidia/version");
    const bool names_only = std::string_view(vendor.pci) == "0x10de" && kernel_driver;
    found.push_back({fmt::format("{} card is present, but no file in {} names its OpenCL driver, "
                                 "so it is not an OpenCL device",
                                 vendor.name, vendors_folder),
                     names_only ? name_nvidia_library : vendor.fix});
  }
  if (libraries.empty() && found.empty()) {
    found.push_back(
        {fmt::format(
             "no OpenCL driver is installed ({} names none), so the opencl variants are absent",
             vendors_folder),
         "sudo apt-get install pocl-opencl-icd"});
  }
  return found;
}

}  // namespace rooflane
