// Put after vectors.cl before every room's .cl: the few operations that devices do differently, once
// per road. ROAD=1, NVIDIA: inline PTX, for devices whose probe (src/backends/opencl_features.hpp)
// has run it. ROAD=0, portable: OpenCL C 1.2 with the same meaning, so that a kernel written with
// them is tested on any device.

#ifndef ROAD
#define ROAD 0
#endif

// Copies from global to local memory that end later: start any number, close them as a group with
// copies_commit(), and let copies_wait(N) return when all but the N youngest groups have ended for
// this work-item; a barrier then shows them to the others. Both addresses are aligned to the size of
// the copy; the first `count` floats are copied, the others are set to zero and not read.
#if ROAD == 1
#define LOCAL_ADDRESS(p) ((uint)(size_t)(p))
void copy_async4(__local float* to, __global const float* from, int count) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(LOCAL_ADDRESS(to)), "l"((size_t)from), "r"(4 * count) : "memory");
}
void copy_async2(__local float* to, __global const float* from, int count) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
               :: "r"(LOCAL_ADDRESS(to)), "l"((size_t)from), "r"(4 * count) : "memory");
}
void copy_async1(__local float* to, __global const float* from, int count) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :: "r"(LOCAL_ADDRESS(to)), "l"((size_t)from), "r"(4 * count) : "memory");
}
#define copies_commit() asm volatile("cp.async.commit_group;" ::: "memory")
#define copies_wait(N) asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory")
#else
#define COPY_NOW(N)                                                                     \
  void copy_async##N(__local float* to, __global const float* from, int count) {        \
    for (int i = 0; i < N; ++i) to[i] = i < count ? from[i] : 0.0f;                     \
  }
COPY_NOW(4)
COPY_NOW(2)
COPY_NOW(1)
#define copies_commit()
#define copies_wait(N)
#endif
