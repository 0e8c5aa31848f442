/* Loaded before the OpenCL loader (LD_PRELOAD): lets a sound device claim or fail as CL_FAULTS
 * says, so that what happens then can be tested without breaking one. Every call not named here,
 * or named without a request for its fault, goes to the loader. CL_FAULTS is a list like
 * "gpu;memory=1000000":
 * - gpu: CPU devices claim to be GPUs
 * - memory=B: devices claim B bytes of memory
 * - version=TEXT: platforms claim this version
 * - group=N: kernels claim registers for N work-items of a group at most
 * - no_context: no context can be made
 * - allocation=B: buffers of B bytes and more cannot be had
 * - launch=N: the N-th launch of the process faults: the next wait fails with
 *   CL_OUT_OF_RESOURCES and every call after it with CL_INVALID_COMMAND_QUEUE, new contexts
 *   included, as NVIDIA's driver answers a process after a kernel faulted
 * - token=FILE: the launch faults in the one process that removes FILE
 */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The loader's function of that name. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* The text behind "name" or "name=" in the list; null: not in it. */
static const char* find(const char* list, const char* name) {
  const size_t length = strlen(name);
  while (list != NULL && *list != '\0') {
    if (strncmp(list, name, length) == 0 && strchr("=;", list[length]) != NULL) {
      return list + length + (list[length] == '=');
    }
    list = strchr(list, ';');
    if (list != NULL) ++list;
  }
  return NULL;
}

static int is_worker(void) {
  static int answer = -1;
  if (answer < 0) {
    char line[4096] = "";
    FILE* file = fopen("/proc/self/cmdline", "r");
    const size_t length = file != NULL ? fread(line, 1, sizeof line - 1, file) : 0;
    const size_t first = strlen(line) + 1;
    if (file != NULL) fclose(file);
    answer = first < length && strcmp(line + first, "worker") == 0;
  }
  return answer;
}

/* The value in CL_FAULTS for this process. */
static const char* fault(const char* name) {
  const char* list = getenv("CL_FAULTS");
  if (find(list, "workers") != NULL && !is_worker()) return NULL;
  return find(list, name);
}

static size_t number(const char* text) { return strtoull(text, NULL, 10); }

static int launches = 0;
static int faulted = 0; /* 1: the next wait says so; 2: it was said */

/* The text up to the next ";" of the list. Returns its length. */
static size_t copy_text(const char* text, char* to, size_t size) {
  const size_t length = strcspn(text, ";");
  if (length >= size) return 0;
  memcpy(to, text, length);
  to[length] = '\0';
  return length;
}

static int takes_token(void) {
  const char* text = fault("token");
  char path[4096];
  if (text == NULL) return 1;
  return copy_text(text, path, sizeof path) > 0 && unlink(path) == 0;
}

static cl_int state(void) {
  if (faulted == 2) return CL_INVALID_COMMAND_QUEUE;
  if (faulted == 0) return CL_SUCCESS;
  faulted = 2;
  return CL_OUT_OF_RESOURCES;
}

cl_int clGetPlatformInfo(cl_platform_id platform, cl_platform_info what, size_t bytes, void* value,
                         size_t* needed) {
  char version[256];
  const size_t length = what == CL_PLATFORM_VERSION && fault("version") != NULL
                            ? copy_text(fault("version"), version, sizeof version)
                            : 0;
  if (length == 0) return NEXT(clGetPlatformInfo)(platform, what, bytes, value, needed);
  if (needed != NULL) *needed = length + 1;
  if (value != NULL && bytes <= length) return CL_INVALID_VALUE;
  if (value != NULL) memcpy(value, version, length + 1);
  return CL_SUCCESS;
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t bytes, void* value,
                       size_t* needed) {
  const cl_int status = NEXT(clGetDeviceInfo)(device, what, bytes, value, needed);
  if (status != CL_SUCCESS || value == NULL) return status;
  if (what == CL_DEVICE_TYPE && fault("gpu") != NULL) *(cl_device_type*)value = CL_DEVICE_TYPE_GPU;
  if (fault("memory") != NULL && bytes >= sizeof(cl_ulong)) {
    if (what == CL_DEVICE_GLOBAL_MEM_SIZE || what == CL_DEVICE_MAX_MEM_ALLOC_SIZE) {
      *(cl_ulong*)value = number(fault("memory"));
    }
  }
  return status;
}

cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device,
                                cl_kernel_work_group_info what, size_t bytes, void* value,
                                size_t* needed) {
  const cl_int status = NEXT(clGetKernelWorkGroupInfo)(kernel, device, what, bytes, value, needed);
  if (status == CL_SUCCESS && value != NULL && what == CL_KERNEL_WORK_GROUP_SIZE &&
      fault("group") != NULL) {
    *(size_t*)value = number(fault("group"));
  }
  return status;
}

cl_context clCreateContext(const cl_context_properties* properties, cl_uint count,
                           const cl_device_id* devices,
                           void(CL_CALLBACK* notify)(const char*, const void*, size_t, void*),
                           void* data, cl_int* status) {
  const cl_int answer = fault("no_context") != NULL ? CL_OUT_OF_RESOURCES : state();
  if (answer == CL_SUCCESS) {
    return NEXT(clCreateContext)(properties, count, devices, notify, data, status);
  }
  if (status != NULL) *status = answer;
  return NULL;
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue_properties properties, cl_int* status) {
  const cl_int answer = state();
  if (answer == CL_SUCCESS) return NEXT(clCreateCommandQueue)(context, device, properties, status);
  if (status != NULL) *status = answer;
  return NULL;
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes, void* host,
                      cl_int* status) {
  cl_int answer = state();
  if (fault("allocation") != NULL && bytes >= number(fault("allocation"))) {
    answer = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  }
  if (answer == CL_SUCCESS) return NEXT(clCreateBuffer)(context, flags, bytes, host, status);
  if (status != NULL) *status = answer;
  return NULL;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                              const size_t* offset, const size_t* global, const size_t* local,
                              cl_uint waits, const cl_event* wait_list, cl_event* event) {
  if (faulted == 2) return CL_INVALID_COMMAND_QUEUE;
  const char* at = fault("launch");
  if (at != NULL && (size_t)++launches == number(at) && takes_token()) faulted = 1;
  return NEXT(clEnqueueNDRangeKernel)(queue, kernel, dimensions, offset, global, local, waits,
                                      wait_list, event);
}

cl_int clFinish(cl_command_queue queue) {
  NEXT(clFinish)(queue);
  return state();
}
