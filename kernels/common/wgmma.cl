// Building blocks of kernels with wgmma, put before them: barriers in local memory, bulk copies and the maps
// of tensors that they take, descriptors of operands. docs/wgmma.md explains them; the macros of the
// products themselves come from src/backends/opencl_ptx.hpp.

#define SM_90A "//sm_90a "

// Matrix descriptors of wgmma: address / 16 in bits 0-13, the distance of blocks of 64 columns / 16 in bits
// 16-29 (rows across k only), of groups of 8 rows / 16 in bits 32-45, swizzling by 128 bytes in bits 62-63.
#define DESCRIPTOR(address, apart) \
  (((ulong)1 << 62) | ((ulong)(1024 / 16) << 32) | ((ulong)((apart) / 16) << 16) | ((address) >> 4))
// Products run in groups: products_wait(N) returns when all but the N youngest are done.
#define products_commit() asm volatile(SM_90A "wgmma.commit_group.sync.aligned;" ::: "memory")
#define products_wait(N) asm volatile(SM_90A "wgmma.wait_group.sync.aligned " #N ";" ::: "memory")

// A warpgroup gives registers back, or takes them; all of its items call it.
#define registers_lower(n) SET_REGISTERS("dec", n)
#define registers_raise(n) SET_REGISTERS("inc", n)
#define SET_REGISTERS(how, n) \
  asm volatile(SM_90A "setmaxnreg." how ".sync.aligned.u32 %0;" ::"n"(n) : "memory")

void barrier_init(uint address, uint count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(count) : "memory");
}
void barrier_arrive(uint address) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
}
void barrier_expect(uint address, uint bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes)
               : "memory");
}
// Shows new barriers to the copy engine.
void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}
// Until the phase of this parity is over.
void barrier_wait(uint address, uint parity) {
  asm volatile(
      "{\n\t.reg .pred over;\n\tagain:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n\t"
      "@!over bra again;\n\t}" ::"r"(address), "r"(parity) : "memory");
}

// A ring of places for tiles in local memory, as one work-item goes through it. A place has two barriers:
// `full` (the bytes of its copies have arrived) and `empty` (all warps of consumers have multiplied it).
typedef struct {
  uint tiles, bytes, full, empty;
  int places;
  uint place, parity;
} Ring;
INLINED Ring ring_of(uint tiles, uint bytes, uint barriers, int places) {
  return (Ring){tiles, bytes, barriers, barriers + 8 * places, places, 0, 0};
}
INLINED void init_ring(const Ring* ring, uint warps) {
  for (int i = 0; i < ring->places; ++i) {
    barrier_init(ring->full + 8 * i, 1);
    barrier_init(ring->empty + 8 * i, warps);
  }
}
INLINED uint full_of(const Ring* ring) { return ring->full + 8 * ring->place; }
INLINED uint empty_of(const Ring* ring) { return ring->empty + 8 * ring->place; }
INLINED uint tile_of(const Ring* ring) { return ring->tiles + ring->place * ring->bytes; }
INLINED void wait_full(const Ring* ring) { barrier_wait(full_of(ring), ring->parity); }
INLINED void advance(Ring* ring) {
  ring->place = ring->place + 1 == ring->places ? 0 : ring->place + 1;
  ring->parity ^= ring->place == 0;
}
// For the producer: `parity` is 1 at its start, since nobody holds a place then.
INLINED void wait_empty(const Ring* ring, uint bytes) {
  barrier_wait(empty_of(ring), ring->parity);
  barrier_expect(full_of(ring), bytes);
}

// Before an item uses a map that `describe` may have changed.
void acquire_map(ulong map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}
// A box of the tensor that `map` describes, from element (x, y, z) on; zeros beyond its edges.
void copy_box(uint to, ulong map, int x, int y, int z, uint full) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(full)
      : "memory");
}

// A box of c from local memory.
void store_box(uint from, ulong map, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];"
      ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(from) : "memory");
}
// The barrier of the 128 items of one consumer.
void consumer_barrier(int consumer) {
  asm volatile("bar.sync %0, 128;" ::"r"(1 + consumer) : "memory");
}

// What the copy engine is told of an operand: matrices of `ys` rows of `xs` elements, `ld` bytes apart, one
// per batch; a copy takes a box of box_x × box_y of one of them. Written field by field, since the
// layout of such a map is not documented. Some fields take constants only.
#define SET(field, text, type, value)                                                            \
  asm volatile(SM_90A "tensormap.replace.tile." field " [%0], " text "%1;" ::"l"(map), type(value) \
               : "memory")
#define SET_CONSTANT(field, value) \
  asm volatile(SM_90A "tensormap.replace.tile." field ".global.b1024.b32 [%0], " value ";" \
               ::"l"(map) : "memory")
void describe_one(ulong map, ulong address, int xs, int ys, int batches, ulong ld, int box_x,
                  int box_y, int bytes, int swizzled) {
  for (int i = 0; i < 16; ++i) *(__global ulong*)(size_t)(map + 8 * i) = 0;
  SET("global_address.global.b1024.b64", "", "l", address);
  SET("rank.global.b1024.b32", "", "r", 2);
  SET("box_dim.global.b1024.b32", "0, ", "r", box_x);
  SET("box_dim.global.b1024.b32", "1, ", "r", box_y);
  SET("box_dim.global.b1024.b32", "2, ", "r", 1);
  SET("global_dim.global.b1024.b32", "0, ", "r", xs);
  SET("global_dim.global.b1024.b32", "1, ", "r", ys);
  SET("global_dim.global.b1024.b32", "2, ", "r", batches);
  SET("global_stride.global.b1024.b64", "0, ", "l", ld);
  SET("global_stride.global.b1024.b64", "1, ", "l", ld * ys);
  SET("element_stride.global.b1024.b32", "0, ", "r", 1);
  SET("element_stride.global.b1024.b32", "1, ", "r", 1);
  SET("element_stride.global.b1024.b32", "2, ", "r", 1);
  if (bytes == 1) SET_CONSTANT("elemtype", "0");
  if (bytes == 2) SET_CONSTANT("elemtype", "1");
  if (bytes == 4) SET_CONSTANT("elemtype", "2");
  if (swizzled == 64) SET_CONSTANT("swizzle_mode", "2");
  if (swizzled == 128) SET_CONSTANT("swizzle_mode", "3");
  SET_CONSTANT("interleave_layout", "0");
  SET_CONSTANT("fill_mode", "0");
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}
