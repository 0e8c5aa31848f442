// vdpbf16ps, vpdpbusd and AMX's tile products, written in assembly: registers are named, so that no
// compiler merges chains or spills one. See unit_loops.hpp.
#include "backends/amx.hpp"
#include "backends/avx512.hpp"
#include "backends/unit_loops.hpp"

namespace rooflane {

namespace {

// 24 accumulators: latency 4 to 6 cycles × up to 2 products a cycle = 12, and room for the
// scheduler.
#define ROOFLANE_24_PRODUCTS(op)                                         \
  op " %%zmm30, %%zmm31, %%zmm0\n" op " %%zmm30, %%zmm31, %%zmm1\n" op   \
     " %%zmm30, %%zmm31, %%zmm2\n" op " %%zmm30, %%zmm31, %%zmm3\n" op   \
     " %%zmm30, %%zmm31, %%zmm4\n" op " %%zmm30, %%zmm31, %%zmm5\n" op   \
     " %%zmm30, %%zmm31, %%zmm6\n" op " %%zmm30, %%zmm31, %%zmm7\n" op   \
     " %%zmm30, %%zmm31, %%zmm8\n" op " %%zmm30, %%zmm31, %%zmm9\n" op   \
     " %%zmm30, %%zmm31, %%zmm10\n" op " %%zmm30, %%zmm31, %%zmm11\n" op \
     " %%zmm30, %%zmm31, %%zmm12\n" op " %%zmm30, %%zmm31, %%zmm13\n" op \
     " %%zmm30, %%zmm31, %%zmm14\n" op " %%zmm30, %%zmm31, %%zmm15\n" op \
     " %%zmm30, %%zmm31, %%zmm16\n" op " %%zmm30, %%zmm31, %%zmm17\n" op \
     " %%zmm30, %%zmm31, %%zmm18\n" op " %%zmm30, %%zmm31, %%zmm19\n" op \
     " %%zmm30, %%zmm31, %%zmm20\n" op " %%zmm30, %%zmm31, %%zmm21\n" op \
     " %%zmm30, %%zmm31, %%zmm22\n" op " %%zmm30, %%zmm31, %%zmm23\n"
constexpr double accumulators = 24, lanes = 16;

// Ones, as bfloat16 and as bytes: numbers that stay finite however often they are added.
#define ROOFLANE_VECTOR_LOOP(NAME, op, ones)                                                      \
  __attribute__((target("avx512f"))) void NAME(std::int64_t steps) {                              \
    const std::uint32_t operand = ones;                                                           \
    asm volatile(                                                                               \
        "vpbroadcastd %[operand], %%zmm30\n"                                                    \
        "vmovdqa64 %%zmm30, %%zmm31\n"                                                          \
        "1:\n" ROOFLANE_24_PRODUCTS(op) "dec %[steps]\n"                                        \
        "jnz 1b\n"                                                                              \
        : [steps] "+r"(steps)                                                                   \
        : [operand] "m"(operand)                                                                \
        : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
          "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18",      \
          "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm30", "xmm31"); \
  }
ROOFLANE_VECTOR_LOOP(RunBFloat16, "vdpbf16ps", 0x3F803F80)
ROOFLANE_VECTOR_LOOP(RunIntegers, "vpdpbusd", 0x01010101)

// Four accumulators of 52 cycles' latency: a product takes 16. All tiles are 16 rows of 64 bytes.
#define ROOFLANE_TILE_LOOP(NAME, op, ones)                                                  \
  void NAME(std::int64_t steps) {                                                           \
    alignas(64) std::uint8_t configuration[64] = {1};                                       \
    for (int tile = 0; tile < 8; ++tile) {                                                  \
      configuration[16 + 2 * tile] = 64;                                                    \
      configuration[48 + tile] = 16;                                                        \
    }                                                                                       \
    alignas(64) std::uint32_t operand[16];                                                  \
    for (std::uint32_t & lane : operand) lane = ones;                                       \
    const std::int64_t stride = 0;                                                          \
    asm volatile(                                                                           \
        "ldtilecfg %[configuration]\n"                                                      \
        "tileloadd (%[operand], %[stride], 1), %%tmm4\n"                                    \
        "tileloadd (%[operand], %[stride], 1), %%tmm5\n"                                    \
        "1:\n" op " %%tmm5, %%tmm4, %%tmm0\n" op " %%tmm5, %%tmm4, %%tmm1\n" op             \
        " %%tmm5, %%tmm4, %%tmm2\n" op                                                      \
        " %%tmm5, %%tmm4, %%tmm3\n"                                                         \
        "dec %[steps]\n"                                                                    \
        "jnz 1b\n"                                                                          \
        "tilerelease\n"                                                                     \
        : [steps] "+r"(steps)                                                               \
        : [configuration] "m"(configuration), [operand] "r"(operand), [stride] "r"(stride), \
          "m"(operand)                                                                      \
        : "cc");                                                                            \
  }
ROOFLANE_TILE_LOOP(RunBFloat16Tiles, "tdpbf16ps", 0x3F803F80)
ROOFLANE_TILE_LOOP(RunIntegerTiles, "tdpbssd", 0x01010101)
constexpr double tile_products = 4 * 16 * 16 * 16;  // of lanes

std::optional<std::string> no_tiles() { return amx::backend.absent_reason(""); }
std::optional<std::string> no_bfloat16() { return avx512::missing_instruction(true); }
std::optional<std::string> no_integers() { return avx512::missing_instruction(false); }

constexpr double of_pair = 4, of_quad = 8;  // operations that a lane's products and sums are
constexpr UnitLoop loops[] = {
    {"bf16", "vdpbf16ps", no_bfloat16, RunBFloat16, accumulators* lanes* of_pair},
    {"int8", "vpdpbusd", no_integers, RunIntegers, accumulators* lanes* of_quad},
    {"bf16", "amx-bf16", no_tiles, RunBFloat16Tiles, tile_products* of_pair},
    {"int8", "amx-int8", no_tiles, RunIntegerTiles, tile_products* of_quad}};

}  // namespace

std::span<const UnitLoop> unit_loops() { return loops; }

}  // namespace rooflane
