// Put after code_paths.cl before the row kernels that read memory once (softmax_once.cl,
// norm_once.cl): a row's place, its copy in registers or local memory, sums over its items. The
// maths is in the rooms.
//
// FORM=1, registers. LX items share a row, LY·RY rows a group: item `lid` works on RY rows, LY apart.
// A row is read as the 16-byte vectors of the whole tensor that it touches, so that every access is
// aligned even if cols is not a multiple of 4: the first and the last vector may contain neighbours'
// elements, which are masked. Neighbouring items take neighbouring vectors, CHUNK of them LX apart.
//   SPLITS > 1: so many groups share the RY·LY rows (LY is 1), each with LX·CHUNK vectors of them.
//   On code path 1 they wait for each other, on code path 0 two kernels follow each other (PHASE 1 and 2).
// Slower on an H200: groups that stay and copy their next row to local memory (cp.async) while they
// finish one; half of a long row in local memory, so that each of two groups has one row; hints that
// x is read once, so that LOAD and STORE are 0 by default.
// FORM=2, rows by way of local memory. LY rows side by side are copied as the 16-byte vectors they lie
// in; from local memory LX items share a row element by element, CHUNK of them LX apart. Conflicts
// of banks: none where LX is 32 or more or cols / LX is odd, few elsewhere.

#define FOR_ROWS _Pragma("unroll") for (int k = 0; k < RY; ++k)
#define FOR_CHUNK _Pragma("unroll") for (int j = 0; j < CHUNK; ++j)
#define ITEMS (LX * LY)
#if CODE_PATH == 1 && REGS > 0  // with the size said, the compiler does not hear of the limit
#define GROUP_SIZE
#else
#define GROUP_SIZE __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
#endif
#define LANES (LX < 32 ? LX : 32)  // neighbours that exchange values by lane_xor
#define TEAMS (LX / LANES)         // such sets in a row
// Local memory that the sums need, in floats: per team and row; on code path 0 lane_xor's.
#define TEAM_SCRATCH (RY * LY * TEAMS)
#define LANE_SCRATCH (CODE_PATH == 1 ? 1 : ITEMS)

// The vector at p where at < left, else four times `fill`; and its counterpart. On code path 1 under a
// predicate, not a branch, so that a compiler may start many before the first has come.
#if CODE_PATH == 1
#if LOAD == 1
#define LOAD_HINT ".L1::no_allocate"
#elif LOAD == 2
#define LOAD_HINT ".L1::no_allocate.L2::256B"
#else
#define LOAD_HINT ""
#endif
#define LOAD_WHERE(NAME, HINT)                                                         \
  INLINED float4 NAME(int at, int left, __global const float4* p, float fill) {         \
    float4 v;                                                                          \
    asm volatile(                                                                      \
        "{\n\t.reg .pred p;\n\tsetp.lt.s32 p, %5, %6;\n\t"                            \
        "mov.f32 %0, %7;\n\tmov.f32 %1, %7;\n\tmov.f32 %2, %7;\n\tmov.f32 %3, %7;\n\t" \
        "@p ld.global.nc" HINT ".v4.f32 {%0, %1, %2, %3}, [%4];\n\t}"                  \
        : "=&f"(v.x), "=&f"(v.y), "=&f"(v.z), "=&f"(v.w)                               \
        : "l"((size_t)p), "r"(at), "r"(left), "f"(fill));                              \
    return v;                                                                          \
  }
LOAD_WHERE(load_where, LOAD_HINT)
LOAD_WHERE(column_where, "")
#if STORE == 1
#define STORE_HINT ".cs"
#else
#define STORE_HINT ""
#endif
INLINED void store_where(int at, int left, float4 v, __global float4* p) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.lt.s32 p, %5, %6;\n\t"
      "@p st.global" STORE_HINT ".v4.f32 [%0], {%1, %2, %3, %4};\n\t}"
      :: "l"((size_t)p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(at), "r"(left) : "memory");
}
#else
#define load_where(at, left, p, fill) ((at) < (left) ? *(p) : (float4)(fill))
#define column_where load_where
#define store_where(at, left, v, p) \
  if ((at) < (left)) *(p) = (v)
#endif

// value[k] of the RY rows over the items of each, the same for all of them afterwards. Every item of
// the group calls it. `teams`: TEAM_SCRATCH values, other ones than in the call before; `lanes`:
// LANE_SCRATCH floats. At most one barrier on code path 1.
#define REDUCE_ROWS(NAME, TYPE, COMBINE, EXCHANGE)                                           \
  INLINED void NAME(TYPE* value, __local TYPE* teams, __local float* lanes) {                 \
    _Pragma("unroll") for (int mask = LANES / 2; mask > 0; mask /= 2) {                      \
      FOR_ROWS value[k] = COMBINE(value[k], EXCHANGE(value[k], mask, lanes));                \
    }                                                                                        \
    if (TEAMS == 1) return;                                                                  \
    const int lid = get_local_id(0);                                                         \
    __local TYPE* of_row = teams + lid / LX * TEAMS;                                         \
    if (lid % LANES == 0) {                                                                  \
      FOR_ROWS of_row[k * LY * TEAMS + lid % LX / LANES] = value[k];                         \
    }                                                                                        \
    barrier(CLK_LOCAL_MEM_FENCE);                                                            \
    FOR_ROWS value[k] = of_row[k * LY * TEAMS + lid % TEAMS];                                \
    _Pragma("unroll") for (int mask = TEAMS / 2; mask > 0; mask /= 2) {                      \
      FOR_ROWS value[k] = COMBINE(value[k], EXCHANGE(value[k], mask, lanes));                \
    }                                                                                        \
  }

float2 lane_xor_pair(float2 value, int mask, __local float* lanes) {
  return (float2)(lane_xor(value.x, mask, lanes), lane_xor(value.y, mask, lanes));
}
float add_two(float a, float b) { return a + b; }

// A NaN loses against every number.
REDUCE_ROWS(max_rows, float, fmax, lane_xor)
REDUCE_ROWS(add_rows, float, add_two, lane_xor)
// Pairs as add_exactly makes them. Items may differ in the last bit of the smaller part.
REDUCE_ROWS(add_rows_exactly, float2, add_pairs, lane_xor_pair)

// The sum of CHUNK values, by blocks of four, so that a value takes part in few roundings.
#define ADD_CHUNK(TYPE, sum, part)                                     \
  _Pragma("unroll") for (int j = 0; j < CHUNK; j += 4) {               \
    TYPE block_sum = part[j];                                          \
    if (j + 1 < CHUNK) block_sum += part[j + 1];                       \
    if (j + 3 < CHUNK) {                                               \
      block_sum += part[j + 2] + part[j + 3];                          \
    } else if (j + 2 < CHUNK) {                                        \
      block_sum += part[j + 2];                                        \
    }                                                                  \
    sum += block_sum;                                                  \
  }

#if FORM == 1
#define VECTORS (LX * CHUNK)  // of a row that its items hold
// Groups that wait for each other count themselves in the order in which they start, unless the device
// holds all of them at once (RESIDENT). (H200: without the count long rows would take 0.92 to 0.97
// times as long, but nothing promises that groups start in the order of their numbers.)
INLINED uint group_number(__global uint* next_number, __local uint* drawn) {
#if CODE_PATH == 1 && !RESIDENT
  if (get_local_id(0) == 0) *drawn = draw_number(next_number, get_num_groups(0));
  barrier(CLK_LOCAL_MEM_FENCE);
  return *drawn;
#else
  return get_group_id(0);
#endif
}

// A row as one item sees it. The item's vectors are place, place + LX, …: vector j exists if
// j·LX < left, and is the row's last one if j·LX == left - 1.
typedef struct {
  long first;  // the item's first vector, counted from the tensor's start
  int left;    // vectors of the row from there on; none when not positive
  int end;     // the same without one that the row's end cuts
  int begin;   // 1 when the row's start cuts the item's first vector, else 0
  int shift;   // elements that precede the row in its first vector
  int tail;    // elements of its last vector up to the row's end
} Span;

// The item's k-th row of a block of RY·LY rows.
#define ROW(block, k) (((block)*RY + (k)) * LY + get_local_id(0) / LX)

Span span_of(long row, long rows, long cols, int place) {
  const long start = row * cols;
  Span s;
  s.first = (start >> 2) + place;
  s.shift = ALIGNED ? 0 : (int)(start & 3);
  const long end = s.shift + cols;
  s.left = row < rows ? (int)((end + 3) >> 2) - place : 0;
  s.tail = ALIGNED ? 4 : (int)((end - 1) & 3) + 1;
  s.begin = !ALIGNED && place == 0 && s.shift > 0 && s.left > 0;
  s.end = s.left - (s.tail < 4);
  return s;
}

// Whether the item has the row's last vector, cut, and not as its first one.
bool has_last(Span s) {
  return s.tail < 4 && s.left > 0 && s.left <= VECTORS && (s.left - 1) % LX == 0 &&
         !(s.begin && s.left == 1);
}

// Whether one of the item's vectors is cut. Few items have one, and it has a branch of its own:
// between the loads, its code would make each load wait for the one before.
bool has_cut(Span s) { return !ALIGNED && (s.begin || has_last(s)); }

// Lanes outside the row become `fill`; v is the item's vector j, and exists.
float4 keep_inside(float4 v, int j, Span s, float fill) {
  if (ALIGNED) return v;
  const bool is_last = s.left - 1 == j * LX;
  if (is_last && s.tail <= 1) v.y = fill;
  if (is_last && s.tail <= 2) v.z = fill;
  if (is_last && s.tail <= 3) v.w = fill;
  if (j == 0 && s.begin) {
    v.x = fill;
    if (s.shift > 1) v.y = fill;
    if (s.shift > 2) v.z = fill;
  }
  return v;
}

// What a kernel begins with: which block of rows and which piece of them the group has, where the
// item's vectors lie, and the item's part of them, `outside` beyond the rows.
#if SPLITS > 1
#define BEGIN_GROUP                                                       \
  __local uint drawn;                                                     \
  const uint number = group_number(next_number, &drawn);                  \
  const long block = number / SPLITS;                                     \
  const int piece = number % SPLITS;                                      \
  __global float4* slots = partials + block * (RY * SPLITS * SLOT);       \
  const uint tag = tag_of(slots + piece * SLOT) + 1;
#else
#define BEGIN_GROUP                    \
  const long block = get_group_id(0);  \
  const int piece = 0;
#endif
#define BEGIN_ROWS(outside)                                               \
  BEGIN_GROUP                                                             \
  const int lid = get_local_id(0);                                        \
  const int place = piece * VECTORS + lid % LX;                           \
  Span span[RY];                                                          \
  float4 part[RY][CHUNK];                                                 \
  FOR_ROWS span[k] = span_of(ROW(block, k), rows, cols, place);           \
  FOR_ROWS load_row(x, span[k], outside, part[k]);

// The item's vectors of the row; `fill` outside. All loads start before the first is used. (A tensor's
// last vector is in its memory entirely: device buffers hold whole ones.)
INLINED void load_row(__global const float* x, Span s, float fill, float4* part) {
  __global const float4* from = (__global const float4*)x + s.first;
  FOR_CHUNK part[j] = load_where(j * LX, s.left, from + j * LX, fill);
  if (has_cut(s)) {
    FOR_CHUNK part[j] = keep_inside(part[j], j, s, fill);
  }
}

// Lanes low to high - 1.
void store_lanes(float4 v, __global float* to, int low, int high) {
  if (low <= 0) to[0] = v.x;
  if (low <= 1 && high > 1) to[1] = v.y;
  if (low <= 2 && high > 2) to[2] = v.z;
  if (high > 3) to[3] = v.w;
}

// Stores the item's vector j of the row unless it is cut. `to`: the address of the item's first one.
INLINED void store_whole(float4 value, int j, Span s, __global float4* to) {
  store_where(j == 0 && s.begin ? s.end : j * LX, s.end, value, to + j * LX);
}

void store_first(float4 value, Span s, __global float4* to) {
  store_lanes(value, (__global float*)to, s.shift, s.left == 1 ? s.tail : 4);
}

void store_last(float4 value, Span s, __global float4* to) {
  store_lanes(value, (__global float*)(to + s.left - 1), 0, s.tail);
}

// The item's vector that is the row's last one. (By masks: compilers put the array into memory for a
// selection of one of its elements.)
INLINED float4 last_of(const float4* part, Span s) {
  float4 last = part[0];
  FOR_CHUNK {
    const int4 here = -(j * LX == s.left - 1);
    last = as_float4((here & as_int4(part[j])) | (~here & as_int4(last)));
  }
  return last;
}
#endif

#if FORM == 2
// Local memory for the group's rows: up to 3 elements of a neighbour precede them.
#define BLOCK (ITEMS * CHUNK + 4)

// Copies `count` elements from element `start` of x on. Returns the first one's index in `block`.
INLINED int stage_in(__global const float* x, long start, int count, __local float* block) {
  const int shift = ALIGNED ? 0 : (int)(start & 3);
  const int end = shift + count;
  __global const float* from = x + (start - shift);
#pragma unroll
  for (int i = 0; i <= CHUNK / 4; ++i) {
    const int at = 4 * (get_local_id(0) + i * ITEMS);
    if (at < end) copy_async4(block + at, from + at, min(4, end - at));
  }
  copies_commit();
  copies_wait(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  return shift;
}

INLINED void stage_out(__local const float* block, long start, int count, __global float* y) {
  const int shift = ALIGNED ? 0 : (int)(start & 3);
  const int end = shift + count;
  __global float* to = y + (start - shift);
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (int i = 0; i <= CHUNK / 4; ++i) {
    const int at = 4 * (get_local_id(0) + i * ITEMS);
    if (at >= shift && at + 4 <= end) {
      store_where(0, 1, *(__local const float4*)(block + at), (__global float4*)(to + at));
    } else {
      for (int lane = max(at, shift); lane < min(at + 4, end); ++lane) to[lane] = block[lane];
    }
  }
}
#endif
