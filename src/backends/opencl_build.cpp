// Programs of a context: from source, in two stages if it has instructions of sm_90a, or from what
// an earlier process kept. The files are opencl_programs.cpp's, the text of PTX is
// opencl_ptx.cpp's.
#include <fmt/format.h>

#include "backends/opencl.hpp"
#include "backends/opencl_programs.hpp"
#include "backends/opencl_ptx.hpp"
#include "core/error.hpp"

namespace rooflane::opencl {

cl_program Context::program(const char* source, const std::string& options) {
  const std::scoped_lock lock(mutex_);
  Program& slot = programs_[{source, options}];
  if (slot) return slot.get();
  const std::string all_options = "-cl-std=CL1.2 " + options;
  const std::string key = cache_ != nullptr ? cache_key(source, all_options) : "";
  if (cache_ != nullptr) slot = cached_program(key, all_options);
  if (slot) return slot.get();
  cl_int status = CL_SUCCESS;
  Program made(clCreateProgramWithSource(context_, 1, &source, nullptr, &status));
  check(status, "clCreateProgramWithSource");
  build(made.get(), all_options);
  if (std::string_view(source).find(sm_90a_mark) != std::string_view::npos) {
    made = program_of(uncovered_ptx(binary_of(made.get())), status);
    check(status, "clCreateProgramWithBinary");
    build(made.get(), all_options);
  }
  if (cache_ != nullptr) keep_program(key, made.get());
  slot = std::move(made);
  return slot.get();
}

std::string Context::cache_key(const char* source, const std::string& options) const {
  std::string key;
  for (const std::string_view part :
       {std::string_view(info_.platform), std::string_view(info_.platform_version),
        std::string_view(info_.vendor), std::string_view(info_.name),
        std::string_view(info_.version), std::string_view(info_.driver), std::string_view(options),
        std::string_view(source)}) {
    key += part;
    key += '\n';
  }
  return key;
}

void Context::build(cl_program program, const std::string& options) const {
  const cl_int status = clBuildProgram(program, 1, &device_, options.c_str(), nullptr, nullptr);
  if (status == CL_SUCCESS) return;
  std::size_t bytes = 0;
  clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes);
  std::string log(bytes, '\0');
  clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, bytes, log.data(), nullptr);
  throw BuildError(fmt::format("{} on {} with {}\n{}", print_status(status), info_.name, options,
                               trimmed(std::move(log))));
}

Program Context::program_of(const std::string& binary, cl_int& status) const {
  const std::size_t bytes = binary.size();
  const auto* data = reinterpret_cast<const unsigned char*>(binary.data());
  cl_int of_binary = CL_SUCCESS;
  Program made(
      clCreateProgramWithBinary(context_, 1, &device_, &bytes, &data, &of_binary, &status));
  if (status == CL_SUCCESS) status = of_binary;
  return made;
}

Program Context::cached_program(const std::string& key, const std::string& options) {
  const std::optional<std::string> kept = cache_->read(key);
  if (!kept) return {};
  cl_int status = CL_SUCCESS;
  Program made = program_of(*kept, status);
  if (status == CL_SUCCESS) {
    status = clBuildProgram(made.get(), 1, &device_, options.c_str(), nullptr, nullptr);
  }
  if (status != CL_SUCCESS) {
    cache_->remove(key);
    return {};
  }
  ++from_cache_;
  return made;
}

std::string Context::binary_of(cl_program program) const {
  std::size_t bytes = 0;
  if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr) !=
          CL_SUCCESS ||
      bytes == 0) {
    return {};
  }
  std::string binary(bytes, '\0');
  auto* target = reinterpret_cast<unsigned char*>(binary.data());
  if (clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof target, &target, nullptr) !=
      CL_SUCCESS) {
    return {};
  }
  return binary;
}

void Context::keep_program(const std::string& key, cl_program program) const {
  const std::string binary = binary_of(program);
  if (!binary.empty()) cache_->write(key, binary);
}

}  // namespace rooflane::opencl
