// See opencl_table.hpp.
#include "judge/opencl_table.hpp"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane::judge {

namespace {

// The text behind `// KEY:` in a line of the source; empty: there is no such line.
std::string line_of(const std::string& source, const std::string& key) {
  for (std::string_view line : split(source, '\n')) {
    const std::string begin = fmt::format("// {}:", key);
    if (line.starts_with(begin)) return std::string(line.substr(begin.size()));
  }
  return {};
}

// It becomes part of a C program: names, numbers and arithmetic, one to three of them.
std::string checked_sizes(const std::string& key, const std::string& text) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyz_0123456789+-*/%() ,<>?:\r";
  if (text.find_first_not_of(allowed) != std::string::npos || split(text, ',').size() > 3) {
    throw argument_error(fmt::format(
        "'// {}:{}': allowed are one to three expressions of sizes, with commas between them", key,
        text));
  }
  return text.substr(0, text.find('\r'));
}

std::string c_string(const std::string& text) {
  std::string literal;
  for (const std::string_view line : split(text, '\n')) {
    literal += "    \"";
    for (const char c : line) {
      if (c == '"' || c == '\\') literal += '\\';
      if (c == '?') literal += '\\';  // no trigraphs
      if (static_cast<unsigned char>(c) >= ' ' || c == '\t') literal += c;
    }
    literal += "\\n\"\n";
  }
  return literal;
}

constexpr const char* bytes_of_tensor = R"(
/* 0: rows with gaps between them, of which the kernel knows nothing. */
static size_t bytes_of(const rooflane_tensor* t, size_t element) {
  int64_t n = 1;
  for (int32_t i = t->rank; i-- > 0; n *= t->shape[i]) {
    if (t->shape[i] > 1 && t->strides[i] != n) return 0;
  }
  return (size_t)n * element;
}
)";

// What {names} stand for, opencl_table_of says.
constexpr char table_template[] = R"(#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include "variant.h"

enum {{ tensor_count = {tensors}, dimensions = {dimensions}, has_local = {has_local} }};
static char error[4000];
struct judged {{
  cl_context context;
  cl_command_queue queue;
  cl_kernel kernel;
  cl_mem buffers[tensor_count];
  size_t bytes[tensor_count];
  void* mapped[tensor_count];
  size_t global[dimensions], local[dimensions];
  int good;
}};
{bytes_of}
static cl_program built(cl_program program, cl_device_id device) {{
  error[0] = 0;
  if (clBuildProgram(program, 1, &device, "-cl-std=CL1.2", NULL, NULL) == 0) return program;
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof error - 1, error, NULL);
  if (error[0] == 0) snprintf(error, sizeof error, "the program does not build");
  return NULL;
}}
static cl_device_id find_device(void) {{
  cl_platform_id platforms[16];
  cl_uint count = 0;
  cl_device_id device = NULL;
  if (clGetPlatformIDs(16, platforms, &count) != 0) count = 0;
  for (cl_uint i = 0; i < count && i < 16 && device == NULL; ++i) {{
    clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_CPU, 1, &device, NULL);
  }}
  snprintf(error, sizeof error, "no OpenCL device that is a CPU");
  return device;
}}
#ifdef COMPILES
/* Compiles the source for the device, and executes nothing of it. */
static const char* const source =
{source};
int main(void) {{
  cl_device_id device = find_device();
  cl_context context = device ? clCreateContext(NULL, 1, &device, NULL, NULL, NULL) : NULL;
  cl_program program = NULL;
  if (context) program = clCreateProgramWithSource(context, 1, (const char**)&source, NULL, NULL);
  if (program) program = built(program, device);
  if (program == NULL) return fprintf(stderr, "%s\n", error), 1;
  size_t bytes = 0;
  clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL);
  unsigned char* binary = malloc(bytes + 1);
  clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL);
  FILE* file = fopen("{binary}", "wb");
  if (file == NULL || bytes == 0 || fwrite(binary, 1, bytes, file) != bytes || fclose(file) != 0) {{
    return fprintf(stderr, "the OpenCL driver gives no binary\n"), 1;
  }}
  return 0;
}}
#else
extern const unsigned char program_begin[] __attribute__((visibility("hidden")));
extern const unsigned char program_end[] __attribute__((visibility("hidden")));
__asm__(".section .rodata\n.balign 16\nprogram_begin:\n.incbin \"{binary}\"\nprogram_end:\n.previous\n");
static struct judged* open_device(struct judged* p) {{
  cl_device_id device = find_device();
  if (device == NULL) return p;
  p->context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
  p->queue = clCreateCommandQueue(p->context, device, 0, NULL);
  const unsigned char* binary = program_begin;
  const size_t bytes = (size_t)(program_end - program_begin);
  cl_program program =
      clCreateProgramWithBinary(p->context, 1, &device, &bytes, &binary, NULL, NULL);
  if (program == NULL) snprintf(error, sizeof error, "the OpenCL driver refuses its own binary");
  if (program == NULL || built(program, device) == NULL) return p;
  p->kernel = clCreateKernel(program, "{function}", NULL);
  snprintf(error, sizeof error, "the program has no kernel {function}");
  p->good = p->kernel != NULL;
  return p;
}}
static struct judged* set_values(struct judged* p, const rooflane_problem* problem) {{
  p->good = 0;
  snprintf(error, sizeof error, "the kernel takes other arguments");
{sizes}{values}  const size_t global[dimensions] = {{{global}}}, local[dimensions] = {{{local}}};
  for (int i = 0; i < dimensions; ++i) p->global[i] = global[i], p->local[i] = local[i];
  p->good = 1;
  return p;
}}
static void* plan(const rooflane_problem* problem, int32_t threads, const int64_t* tuning,
                  const rooflane_tensors* constants) {{
  struct judged* p = calloc(1, sizeof(struct judged));
  (void)threads, (void)tuning, (void)constants;
  if (p == NULL || !open_device(p)->good || !set_values(p, problem)->good) return NULL;
  return p;
}}
static int make_buffer(struct judged* p, int i, void* data, cl_mem_flags flags) {{
  cl_int status = 0;
  p->buffers[i] = clCreateBuffer(p->context, flags | CL_MEM_USE_HOST_PTR, p->bytes[i], data, &status);
  if (status != 0) return 1;
  p->mapped[i] = clEnqueueMapBuffer(p->queue, p->buffers[i], CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                    p->bytes[i], 0, NULL, NULL, &status);
  return status != 0;
}}
static int32_t bind(void* plan, const rooflane_tensors* tensors) {{
  struct judged* p = plan;
  snprintf(error, sizeof error, "a buffer cannot be made, or the kernel takes other arguments");
{buffers}  return 0;
}}
/* Between runs the host has the buffers mapped, and may look at them and change them. */
static int32_t run(void* plan) {{
  struct judged* p = plan;
  cl_int status = 0;
  for (int i = 0; i < tensor_count; ++i) {{
    status |= clEnqueueUnmapMemObject(p->queue, p->buffers[i], p->mapped[i], 0, NULL, NULL);
  }}
  status |= clEnqueueNDRangeKernel(p->queue, p->kernel, dimensions, NULL, p->global,
                                   has_local ? p->local : NULL, 0, NULL, NULL);
  for (int i = 0; i < tensor_count && status == 0; ++i) {{
    p->mapped[i] = clEnqueueMapBuffer(p->queue, p->buffers[i], CL_FALSE, CL_MAP_READ | CL_MAP_WRITE,
                                      0, p->bytes[i], 0, NULL, NULL, &status);
  }}
  status |= clFinish(p->queue);
  snprintf(error, sizeof error, "OpenCL error %d", (int)status);
  return status;
}}
static const char* last_error(void) {{ return error; }}
static const char* const dtypes[] = {{{dtypes}NULL}};
static const rooflane_variant variant = {{.kernel = "{function}", .library = "OpenCL",
                                         .many_threads = 1, .dtypes = dtypes, .plan = plan,
                                         .bind = bind, .run = run, .destroy = free}};
static const rooflane_plugin plugin = {{ROOFLANE_VARIANT_ABI, 1, &variant, last_error}};
const rooflane_plugin* rooflane_describe(void) {{ return &plugin; }}
#endif
)";

std::string size_of(const std::string& c_type) {
  std::string plain = c_type.starts_with("const ") ? c_type.substr(6) : c_type;
  plain.pop_back();  // the pointer's star
  return plain;
}

}  // namespace

std::string opencl_table_of(const Signature& signature, const std::string& source) {
  std::string sizes, values, buffers, dtypes, first_size;
  std::set<std::string> formats;
  int index = 0, tensors = 0;
  for (const Argument& argument : signature.arguments) {
    const std::string& name = argument.name;
    const std::string param = name.substr(0, name.find("_value"));
    if (argument.kind == Argument::Kind::tensor) {
      buffers += fmt::format(
          "  {{ const rooflane_tensor* t = rooflane_find(tensors, \"{0}\");\n"
          "    p->bytes[{1}] = bytes_of(t, sizeof({2}));\n"
          "    if (make_buffer(p, {1}, t->data, {3}) != 0) return 1;\n"
          "    if (clSetKernelArg(p->kernel, {4}, sizeof(cl_mem), "
          "&p->buffers[{1}]) != 0) return 1; }}\n",
          name, tensors, size_of(argument.c_type),
          argument.constant ? "CL_MEM_READ_ONLY" : "CL_MEM_READ_WRITE", index);
      if (formats.insert(argument.dtype).second) dtypes += fmt::format("\"{}\", ", argument.dtype);
      ++tensors;
    } else {
      const bool size = argument.kind == Argument::Kind::size;
      if (size && first_size.empty()) first_size = name;
      const std::string type = size ? "int64_t" : "float";
      sizes += fmt::format("  const {0} {1} = ({0})rooflane_value(problem, \"{2}\");\n", type, name,
                           param);
      sizes += fmt::format("  (void){};\n", name);
      values += fmt::format("  if (clSetKernelArg(p->kernel, {}, sizeof {}, &{}) != 0) return p;\n",
                            index, name, name);
    }
    ++index;
  }
  std::string global = line_of(source, "global"), local = line_of(source, "local");
  if (global.empty()) global = first_size;
  const std::size_t dimensions = split(global, ',').size();
  if (!local.empty() && split(local, ',').size() != dimensions) {
    throw argument_error("'// local:' has another number of sizes than '// global:'");
  }
  return fmt::format(
      fmt::runtime(table_template), fmt::arg("tensors", tensors),
      fmt::arg("dimensions", dimensions), fmt::arg("has_local", local.empty() ? 0 : 1),
      fmt::arg("source", c_string(source)), fmt::arg("binary", opencl_binary),
      fmt::arg("bytes_of", bytes_of_tensor), fmt::arg("function", signature.function),
      fmt::arg("sizes", sizes), fmt::arg("values", values),
      fmt::arg("global", checked_sizes("global", global)),
      fmt::arg("local", local.empty() ? "1" : checked_sizes("local", local)),
      fmt::arg("buffers", buffers), fmt::arg("dtypes", dtypes));
}

}  // namespace rooflane::judge
