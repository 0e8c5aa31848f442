// Put after vectors.cl before every room's .cl: the few operations that devices do differently, once
// per code path. CODE_PATH=1, NVIDIA: inline PTX, for devices on which the probe
// (src/backends/opencl_features.hpp) ran it. CODE_PATH=0, portable: OpenCL C 1.2 with the same
// meaning, so that a kernel written with them is tested on any device.

#ifndef CODE_PATH
#define CODE_PATH 0
#endif

// Copies from global to local memory that end later: start any number, close them as a group with
// copies_commit(), and let copies_wait(N) return when all but the N youngest groups have ended for
// this work-item; a barrier then shows them to the others. Both addresses are aligned to the size of
// the copy; the first `count` floats are copied, the others are set to zero and not read.
#if CODE_PATH == 1
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

// 4 or VW floats of a memory, aligned, into the private array `to`.
#define GET4(to, memory, from)                       \
  {                                                  \
    const float4 y4 = *(memory const float4*)(from); \
    (to)[0] = y4.x;                                  \
    (to)[1] = y4.y;                                  \
    (to)[2] = y4.z;                                  \
    (to)[3] = y4.w;                                  \
  }
// to[i] … to[i + 3] = four floats of local memory; their place `from` is an expression of i.
#define GET_FOURS(to, count, from) \
  _Pragma("unroll") for (int i = 0; i < (count); i += 4) GET4((to) + i, __local, from)
#if VW == 4
#define GET_VECTOR GET4
#elif VW == 2
#define GET_VECTOR(to, memory, from)                 \
  {                                                  \
    const float2 y2 = *(memory const float2*)(from); \
    (to)[0] = y2.x;                                  \
    (to)[1] = y2.y;                                  \
  }
#else
#define GET_VECTOR(to, memory, from) (to)[0] = *(from)
#endif

// The value that work-item `local id ^ mask` of the group gives, mask below 32. Every item of the
// group calls it with the same mask. `scratch`: a float per item of the group on code path 0, unused on
// code path 1.
#if CODE_PATH == 1
float lane_xor(float value, int mask, __local float* scratch) {
  float other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
               : "=f"(other) : "f"(value), "r"(mask));
  return other;
}
// The value that the item before gives; the first of 32 gets its own. On code path 1 only: for loads that
// neighbours share.
float lane_before(float value) {
  float other;
  asm volatile("shfl.sync.up.b32 %0, %1, 1, 0, 0xffffffff;" : "=f"(other) : "f"(value));
  return other;
}
#else
float lane_xor(float value, int mask, __local float* scratch) {
  const int lid = get_local_id(0);
  scratch[lid] = value;
  barrier(CLK_LOCAL_MEM_FENCE);
  const float other = scratch[lid ^ mask];
  barrier(CLK_LOCAL_MEM_FENCE);
  return other;
}
#endif

// Work-groups that wait for each other, on code path 1 only, since OpenCL promises no other group's
// progress. NVIDIA's devices run a group to its end once it has started: with numbers drawn as groups
// start, groups that wait only for numbers near their own, fewer than the device holds, never wait
// for one that cannot start.
#if CODE_PATH == 1
// The next number below `count`; starts at 0 again by itself.
uint draw_number(__global uint* counter, uint count) {
  uint number;
  asm volatile("atom.global.inc.u32 %0, [%1], %2;"
               : "=r"(number) : "l"((size_t)counter), "r"(count - 1) : "memory");
  return number;
}

// Four values that one group hands to the others of its row, each beside a tag in 8 bytes that are
// read and written at once: no fence, and nobody counts who has come. A slot is two float4; its tags
// are 0 before the first use and one more in each run.
#define SLOT 2
uint tag_of(__global const float4* slot) {
  uint tag;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
               : "=r"(tag) : "l"((size_t)slot + 4) : "memory");
  return tag;
}
void give(__global float4* slot, float4 value, uint tag) {
  asm volatile(
      "{\n\t.reg .b64 a, b;\n\t"
      "mov.b64 a, {%1, %5};\n\tmov.b64 b, {%2, %5};\n\t"
      "st.relaxed.gpu.global.v2.b64 [%0], {a, b};\n\t"
      "mov.b64 a, {%3, %5};\n\tmov.b64 b, {%4, %5};\n\t"
      "st.relaxed.gpu.global.v2.b64 [%0 + 16], {a, b};\n\t}"
      :: "l"((size_t)slot), "r"(as_uint(value.x)), "r"(as_uint(value.y)), "r"(as_uint(value.z)),
         "r"(as_uint(value.w)), "r"(tag) : "memory");
}
// Waits until all four bear the tag.
float4 take(__global const float4* slot, uint tag) {
  uint x, y, z, w, of_x, of_y, of_z, of_w;
  do {
    asm volatile(
        "{\n\t.reg .b64 a, b, c, d;\n\t"
        "ld.relaxed.gpu.global.v2.b64 {a, b}, [%8];\n\t"
        "ld.relaxed.gpu.global.v2.b64 {c, d}, [%8 + 16];\n\t"
        "mov.b64 {%0, %4}, a;\n\tmov.b64 {%1, %5}, b;\n\t"
        "mov.b64 {%2, %6}, c;\n\tmov.b64 {%3, %7}, d;\n\t}"
        : "=r"(x), "=r"(y), "=r"(z), "=r"(w), "=r"(of_x), "=r"(of_y), "=r"(of_z), "=r"(of_w)
        : "l"((size_t)slot) : "memory");
  } while (of_x != tag || of_y != tag || of_z != tag || of_w != tag);
  return as_float4((uint4)(x, y, z, w));
}

float4 load_shared(__global const float4* p) {
  float4 v;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"((size_t)p) : "memory");
  return v;
}
float load_shared1(__global const float* p) {
  float v;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"((size_t)p) : "memory");
  return v;
}
#else
#define SLOT 1
#define tag_of(slot) 0
#define give(slot, value, tag) (*(slot) = (value))
#define take(slot, tag) (*(slot))
#define load_shared(p) (*(p))
#define load_shared1(p) (*(p))
#endif

#if CODE_PATH == 1
// Whether this group is the last of `count` that call it; what all items of the others wrote before is
// then seen by load_shared and load_shared1 in all of its items. state: 0 before the first use, and
// again afterwards.
// `flag`: one int of the group's. No group waits. OpenCL 1.2 promises the order of a fence and an
// atomic to nobody but the group, hence on code path 1 only.
bool comes_last(__global uint* state, uint count, __local uint* flag) {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (get_local_id(0) == 0) {
    const uint before = atomic_inc(state);
    if (before == count - 1) *state = 0;
    *flag = before;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  return *flag == count - 1;
}
#endif

// 2^x. Code path 1: one instruction, relative error below 2^-22, and zero below 2^-126 (PTX ISA,
// ex2.approx.ftz).
#if CODE_PATH == 1
float fast_exp2(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
#define fast_exp2(x) exp2(x)
#endif

// Sum or largest over `along` items (a power of two) that are `apart` apart (likewise), along·apart at
// most 32, the same for all of them.
float near_add(float value, __local float* scratch, int along, int apart) {
  for (int distance = apart; distance < along * apart; distance *= 2)
    value += lane_xor(value, distance, scratch);
  return value;
}
float near_max(float value, __local float* scratch, int along, int apart) {
  for (int distance = apart; distance < along * apart; distance *= 2)
    value = fmax(value, lane_xor(value, distance, scratch));
  return value;
}

// Fragments of matrix units. A warp is 32 lanes: with CODE_PATH=1 as many work-items, with CODE_PATH=0 one
// work-item that plays them all, so that no barrier is needed inside a warp. What a lane holds is an
// array with a dimension WARP_LANES, which EACH_LANE goes through. EVERY: a loop that is written out where
// lanes are work-items.
#if CODE_PATH == 1
#define WARP_LANES 1
#define LANE_OF(lid, l) ((lid) % 32)
#define WARP_OF(lid) ((lid) / 32)
#define UNROLL_LANES _Pragma("unroll")
#else
#define WARP_LANES 32
#define LANE_OF(lid, l) (l)
#define WARP_OF(lid) (lid)
#define UNROLL_LANES
#endif
#define EVERY(i, count) UNROLL_LANES for (int i = 0; i < (count); ++i)
#define EACH_LANE(l) EVERY(l, WARP_LANES)

// Parameters of kernels with groups that may share a row.
#if SPLITS > 1
#define SPLIT_PARAMS , __global float4 *partials, __global uint *next_number
#else
#define SPLIT_PARAMS
#endif

// tf32 keeps 13 bits fewer than float32. x = big + small, both of them tf32 but for the bits of `small`
// that MMA_TF32 does not count; big is rounded to nearest, ties away from zero. NaN may come out as a
// zero there: its small part is NaN then.
#define TF32_BITS 0xffffe000u
// Both operands are scaled by 2^13 before they are split: below 2^-113 the small part would have no bits
// left. Sums of their products are scaled by 2^-26.
#define UPSCALE 8192.0f
#define DOWNSCALE 1.490116119384765625e-8f
#define SPLIT_TF32(big, small, x)                                  \
  {                                                                \
    const float whole = (x);                                       \
    big = as_float((as_uint(whole) + 0x1000u) & TF32_BITS);        \
    small = whole - big;                                           \
  }

// sum += a·b, 16 × 8 = 16 × 8 times 8 × 8, on tf32: the 13 lowest bits of a and b do not count.
// Lane 4g + q holds of a (g, q), (g+8, q), (g, q+4), (g+8, q+4); of b (q, g), (q+4, g); of the sum
// (g, 2q), (g, 2q+1), (g+8, 2q), (g+8, 2q+1), each (row, column).
#if CODE_PATH == 1
#define MMA_TF32(sum, a, b)                                                                     \
  asm volatile(                                                                                 \
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "       \
      "{%8,%9}, {%0,%1,%2,%3};"                                                                 \
      : "+f"((sum)[0][0]), "+f"((sum)[0][1]), "+f"((sum)[0][2]), "+f"((sum)[0][3])              \
      : "r"(as_uint((a)[0][0])), "r"(as_uint((a)[0][1])), "r"(as_uint((a)[0][2])),              \
        "r"(as_uint((a)[0][3])), "r"(as_uint((b)[0][0])), "r"(as_uint((b)[0][1])))
#else
float as_tf32(float x) { return as_float(as_uint(x) & TF32_BITS); }
void MMA_TF32(float (*sum)[4], float (*a)[4], float (*b)[2]) {
  for (int lane = 0; lane < WARP_LANES; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8;
      const int col = lane % 4 * 2 + i % 2;
      for (int k = 0; k < 8; ++k)
        sum[lane][i] += as_tf32(a[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2]) *
                        as_tf32(b[col * 4 + k % 4][k / 4]);
    }
  }
}
#endif
