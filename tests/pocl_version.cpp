// Prints PoCL's major version; nothing where there is none. Run while configuring.
#include <CL/cl.h>

#include <cstdio>

int main() {
  cl_platform_id platforms[16];
  cl_uint count = 0;
  if (clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS) return 0;
  for (cl_uint i = 0; i < count && i < 16; ++i) {
    char version[256] = "";
    clGetPlatformInfo(platforms[i], CL_PLATFORM_VERSION, sizeof version - 1, version, nullptr);
    int major = 0;
    if (std::sscanf(version, "OpenCL %*d.%*d PoCL %d", &major) != 1) continue;
    std::printf("%d", major);
    return 0;
  }
}
