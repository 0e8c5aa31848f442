// The constants of the cost models that no measurement of a machine yields: what kernels do beside
// multiply-adds and bytes, and how far caches and prefetchers help. The values here are shipped and
// serve every machine; `rooflane calibrate --learn` fits them to one (bench/learn.hpp) and stores
// them in its traits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rooflane {

// For the GEMMs `hwy`, `avx512` and `amx` (kernels/gemm/cost_model.hpp): fitted on 2026-11-27 by
// least regret (the time of the choice over the fastest recorded, less 1) over 242 lists of
// recorded times of 4 to 40 schedules, within what the instructions explain. What is left, median
// and 95th percentile in percent:
//   Zen 5: float32, 1 thread 0.4 and 17, 2 threads 2.6 and 22; other formats 2.1 and 15, 2.6 and 26
//   Sapphire Rapids: float32, 1 thread 2.3 and 29, 16 threads 0.3 and 14; AMX 4.7 and 25, 12 and 34
// On problems drawn after the fit, timed on two other Sapphire Rapids, where idle threads sleep:
//   float32, 1 thread 0.0 and 4.9, 16 threads 4 and 23; with AMX, 16 threads: bf16 1 and 25, int8
//   16 and 48
// split_l2 was 1.5 until 2026-11-28: with twice the lines, which is what it means, the regret on a
// third Sapphire Rapids, one and two threads, fell where b is read again and again in place.
// Work of a core is counted in vector multiply-adds at peak rate, `ops`: half a cycle where two are
// started in one.
struct GemmConstants {
  double call_ops = 70;      // calling a plan, or beginning a task
  double setup_ops = 300;    // a task's loops, what threads share, a piece to pack
  double tile_ops = 45;      // a micro-kernel, a tile of dot products, a claim
  double column_ops = 30;    // the next micro-tile where m is innermost
  double vector_ops = 8;     // a vector converted, decoded, copied or stored to c
  double block_ops = 60;     // four vectors transposed, beside the time of their bytes
  double cache_share = 0.9;  // of a cache is reused beside what streams through it
  // Bytes that could have been read until a new run of neighbours is under way; a core follows so
  // many at once.
  double lead_bytes = 370;
  double followed_runs = 16;
  // Rows of a B micro-panel in place that do not begin a line: each load from L2 needs two lines.
  double split_l2 = 2;
  // Factors of measured traits: a region that begins while its threads still spin, or have slept;
  // the delay of the last thread; lines that another core wrote, over writing to memory.
  double region_share = 1;
  double jitter_share = 1;
  double taken_share = 1;
};

// For the attention `hwy` (kernels/attention/hwy_cost.cpp).
struct AttentionConstants {
  double weight_ops = 14;        // exp of a score, 8 of them, its maximum, sum, load and store
  double rescale_ops = 4;        // a vector of sums over v: loaded, multiplied and stored
  double micro_tile_ops = 20;    // calling a micro-kernel, its first and last accumulators
  double tile_ops = 150;         // a micro-panel's visit of a tile of keys: limits, maxima
  double task_ops = 400;         // beginning a task: shares, pointers, zeroed sums
  double decode_tile_ops = 120;  // the online softmax of a row: two reductions, exp
  // A step of k, beside multiply-adds and loads: counting, addresses; shared by the vectors of a Q
  // micro-panel.
  double step_overhead = 0.15;
  double region_share = 1, jitter_share = 1;  // as GEMM's
};

struct ModelConstants {
  GemmConstants gemm;
  AttentionConstants attention;
};

// A constant by the name that files and messages give it, "gemm.call_ops", with the range in which
// it means something.
struct NamedConstant {
  std::string name;
  double* value;
  double least, most;
};
std::vector<NamedConstant> named_constants(ModelConstants& constants);
// Those of one cost model: "gemm", "attention".
std::vector<NamedConstant> named_constants(ModelConstants& constants, std::string_view model);

bool operator==(const ModelConstants& x, const ModelConstants& y);

}  // namespace rooflane
