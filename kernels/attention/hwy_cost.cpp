// Predicts schedules of attention/hwy. See hwy_cost.hpp.
#include "kernels/attention/hwy_cost.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/common/traffic.hpp"

namespace rooflane::attention {
namespace {

using std::int64_t;

// Work of a core is counted in vector multiply-adds at peak rate, half a cycle where two are
// started in one. The constants that are fitted: AttentionConstants.
constexpr double transpose_ops = 4;    // a vector of q or o
constexpr double convert_ops = 4;      // a vector of k or v that is not stored as float32
constexpr double call_ops = 80;        // calling a plan
constexpr double decode_row_ops = 60;  // copying a row of q and o by elements
// An accumulator waits four cycles for the multiply-add before it.
constexpr double latency_ops = 8;
// Exponents of the norm that joins times which overlap: 1 adds them, infinity takes the longest.
constexpr double within_l2_overlap = 2.5, beyond_l2_overlap = 3;
// The last of several threads is at least this part of its work later than their mean.
constexpr double least_jitter = 0.08;
// What ranks schedules of decode that the model does not tell apart, a few per cent.
constexpr double other_prefetch = 1.03, other_block = 1.01;
// A task's keys are split among threads only into chunks of this many tiles or more, so that
// joining them stays below a few per cent of the work.
constexpr int64_t least_tiles_per_chunk = 4;
// Tasks per thread that even out a shared machine's jitter.
constexpr int64_t tasks_per_thread = 4;

double real(int64_t i) { return static_cast<double>(i); }
int64_t divide_up(int64_t x, int64_t by) { return (x + by - 1) / by; }
double joined(double x, double y, double p) {
  return std::pow(std::pow(x, p) + std::pow(y, p), 1 / p);
}

// Keys that blocks of rows see: of all blocks together, and the most.
struct Seen {
  double sum = 0, most = 0;
};
Seen keys_seen(const Sizes& s, int64_t q_block) {
  constexpr int64_t samples = 64;
  const int64_t rows = s.group() * s.q_len, blocks = divide_up(rows, q_block);
  const int64_t step = divide_up(blocks, samples);
  Seen seen;
  int64_t count = 0;
  for (int64_t block = 0; block < blocks; block += step, ++count) {
    const int64_t first = block * q_block, last = std::min(first + q_block, rows) - 1;
    const double keys = real(s.end_key(last / s.group()) - s.first_key(first / s.group()));
    seen.sum += std::max(keys, 0.0);
    seen.most = std::max(seen.most, keys);
  }
  seen.sum *= real(blocks) / real(std::max<int64_t>(count, 1));
  return seen;
}

class Model : AttentionConstants {
 public:
  Model(const Schedule& schedule, const Sizes& s, const CodePath& path, const Traits& traits)
      : AttentionConstants(traits.constants.attention),
        schedule_(schedule),
        s_(s),
        path_(path),
        traits_(traits),
        rates_(common::rates_of(traits, schedule.threads)),
        op_(2 * real(path.lanes) / rates_.fma),
        rows_(s.group() * s.q_len),
        q_block_(path.decode ? rows_ : std::min(schedule.q_block, rows_)),
        width_(real(s.head_dim + s.v_dim)) {}

  double seconds() const {
    const double begin = call_ops * op_;
    if (rows_ == 0 || s_.batch == 0) return begin;
    const KeyChunks chunks = key_chunks(s_, schedule_);
    const double blocks = real(s_.batch * s_.kv_heads * divide_up(rows_, q_block_));
    const Seen seen = keys_seen(s_, q_block_);
    const double split = real(chunks.count);
    // A vector of rows leaves out the keys that none of them sees, whatever its block sees.
    const double of_block = seen.sum / (blocks / real(s_.batch * s_.kv_heads));
    const double of_vector =
        path_.decode ? of_block : keys_seen(s_, path_.lanes).sum / vectors_of(rows_);
    const double part = of_block > 0 ? std::min(1.0, of_vector / of_block) : 1;
    const double mean_vectors = vectors_of_head() / (blocks / real(s_.batch * s_.kv_heads));
    const double most = task(seen.most / split, part, vectors_of(q_block_));
    const double mean = task(of_block / split, part, mean_vectors);
    double time = begin + of_tasks(blocks * split, most, mean);
    if (chunks.count > 1) time += merging(split);
    return time;
  }

 private:
  double vectors_of(int64_t rows) const { return real(divide_up(rows, path_.lanes)); }
  // The vectors of all blocks of a head. The last block may have fewer rows.
  double vectors_of_head() const {
    return real(rows_ / q_block_) * vectors_of(q_block_) + vectors_of(rows_ % q_block_);
  }

  // A task of a block of rows, `vectors`, against so many keys; a vector sees the share `part` of
  // them.
  double task(double keys, double part, double vectors) const {
    return path_.decode ? decode(keys) : prefill(keys, part, vectors);
  }

  double prefill(double keys, double part, double vectors) const {
    const double panels = std::ceil(vectors / 3), each = vectors / panels;
    const double tile = real(path_.tile);
    // Multiply-adds, loads (two a cycle: vectors and broadcasts), or latency of the accumulators.
    const double step =
        std::max({1.0, (tile + each) / (tile * each), latency_ops / (tile * each)}) *
        (1 + step_overhead / each);
    const double tiles = std::ceil(std::max(keys, 1.0) / real(schedule_.kv_block));
    const double whole_keys = keys < tile ? keys * (1 + 0.25 * (tile - 1)) : keys;
    const double micro_tiles = std::ceil(keys / tile) + tiles * std::ceil(real(s_.v_dim) / tile);
    const double core =
        part * vectors * (whole_keys * width_ * step + keys * (weight_ops + option_ops())) +
        tiles * vectors * real(s_.v_dim) * rescale_ops + panels * tiles * tile_ops +
        panels * micro_tiles * micro_tile_ops + vectors * width_ * transpose_ops + task_ops +
        converting(keys);
    // Every micro-panel passes over the tile of K and V; scores that L1 does not hold beside it are
    // written, read and written again.
    const double scores = real(schedule_.kv_block * path_.lanes) * each * sizeof(float);
    const double passes = panels * keys * width_ * sizeof(float);
    const double past_l1 =
        common::missing_part(scores / real(traits_.l1_bytes), 0.5, 1.0) * 3 * tiles * panels;
    const double within_l2 = (passes + past_l1 * scores) / rates_.read[in_l2];
    return joined(joined(core * op_, within_l2, within_l2_overlap), beyond_l2(keys),
                  beyond_l2_overlap);
  }

  // Rows are copied by elements, a row's keys by vectors along head_dim.
  double decode(double keys) const {
    const double rows = real(rows_), lanes = real(path_.lanes);
    const double vectors = std::ceil(real(s_.head_dim) / lanes) + std::ceil(real(s_.v_dim) / lanes);
    const double tiles = std::ceil(std::max(keys, 1.0) / real(schedule_.kv_block));
    const double key = 5 + vectors * std::max(1.0, 1 / rows + 0.5) + option_ops();
    const double core = rows * (keys * key + tiles * decode_tile_ops + decode_row_ops +
                                width_ * transpose_ops / 2) +
                        task_ops + converting(keys);
    const double within_l2 = keys * width_ * sizeof(float) / rates_.read[in_l2];
    return joined(joined(core * op_, within_l2, within_l2_overlap), beyond_l2(keys),
                  beyond_l2_overlap);
  }

  double converting(double keys) const {
    return s_.kv_type == &float32 ? 0 : keys * width_ / real(path_.lanes) * convert_ops;
  }
  double option_ops() const { return (s_.softcap != 0 ? 30 : 0) + (s_.mask ? 6 : 0); }

  // K and V as they are stored, where the tasks of a head do not find them in their L2.
  double beyond_l2(double keys) const {
    const double bytes = real(s_.kv_type->bytes(static_cast<int64_t>(keys * width_)));
    const double all = real(s_.batch * s_.kv_heads) *
                       real(s_.kv_type->bytes(s_.keys_seen() * (s_.head_dim + s_.v_dim)));
    const common::Residence part = common::residence_of(all, schedule_.threads, traits_);
    return bytes * common::byte_seconds(part, rates_.read).beyond_l2;
  }

  // So many tasks of all threads. The largest takes `most`, their mean is `mean`.
  double of_tasks(double tasks, double most, double mean) const {
    const int threads = schedule_.threads;
    if (threads == 1) return tasks * mean;
    const double each = std::max(1.0, tasks / threads), rounds = std::ceil(each);
    // Few tasks do not even out; the longest come first.
    const double size = most + (mean - most) * (1 - 1 / each);
    const double jitter = jitter_share * std::max(least_jitter, traits_.jitter);
    const double late = std::max(rounds - each, jitter);
    return size * each + late * mean + rounds * traits_.task + common::busy_region * region();
  }

  double region() const { return region_share * traits_.region; }

  // Partial sums of the chunks, from other threads' caches.
  double merging(double chunks) const {
    const double floats = real(s_.batch * s_.kv_heads * rows_) * chunks * (real(s_.v_dim) + 2);
    const double threads = std::min<double>(schedule_.threads, real(s_.batch * s_.kv_heads));
    return region() + floats * sizeof(float) / rates_.read[in_l3] / threads * 2;
  }

  const Schedule& schedule_;
  const Sizes& s_;
  const CodePath& path_;
  const Traits& traits_;
  const Traits::Rates& rates_;
  const double op_;  // seconds of a vector's multiply-add
  const int64_t rows_, q_block_;
  const double width_;  // of k and v together
};

// How decode prefetches rows of K and V of float32. From four pages at once if they come from
// beyond L2 and the core prefers that. Just before their use if they come from memory (beyond three
// quarters of L3, which neighbours share) and L1 has no room for the distance.
DecodePrefetch likely_prefetch(const Sizes& s, const CodePath& path, int threads,
                               const Traits& traits) {
  const double bytes =
      real(s.batch * s.kv_heads) * real(s.kv_type->bytes(s.keys_seen() * (s.head_dim + s.v_dim)));
  const bool beyond_l2 = bytes > 2 * real(traits.l2_bytes) * threads;
  if (beyond_l2 && common::prefers_pages(traits) && may_prefetch_pages(s, path)) {
    return DecodePrefetch::pages;
  }
  const bool beyond_l3 = bytes > real(traits.l3_bytes) * 3 / 4;
  return beyond_l3 && traits.l1_bytes < (48 << 10) ? DecodePrefetch::at_use
                                                   : DecodePrefetch::distance;
}

// Tiles of K and V, and the next of K, fill a quarter of L2; where rows come from memory just
// before their use, tiles of K and V half of it, as each change from one to the other waits for
// memory. What is converted stays in L1: of K in half of it, then of V.
int64_t decode_kv_block(const Sizes& s, DecodePrefetch prefetch, const Traits& traits) {
  const int64_t bytes = s.kv_type != &float32                ? traits.l1_bytes / 2
                        : prefetch == DecodePrefetch::at_use ? traits.l2_bytes / 4
                                                             : traits.l2_bytes / 12;
  const int64_t key_bytes = std::max(s.head_dim, s.v_dim) * static_cast<int64_t>(sizeof(float));
  return std::clamp<int64_t>(bytes / key_bytes / 16 * 16, 16, 512);
}

}  // namespace

Schedule::Schedule(const Tuning& tuning)
    : q_block(tuning.get("q_block", 1)),
      kv_block(tuning.get("kv_block", 1)),
      prefetch(static_cast<DecodePrefetch>(tuning.get("prefetch", 0))),
      threads(static_cast<int>(tuning.get("threads", 1))) {}

Tuning Schedule::tuning() const {
  return {{"q_block", q_block},
          {"kv_block", kv_block},
          {"prefetch", static_cast<int64_t>(prefetch)},
          {"threads", threads}};
}

bool may_prefetch_pages(const Sizes& s, const CodePath& path) {
  return path.decode && s.kv_type == &float32 && s.head_dim % path.lanes == 0 &&
         s.v_dim == s.head_dim;
}

KeyChunks key_chunks(const Sizes& s, const Schedule& schedule) {
  const int64_t rows = std::max<int64_t>(s.group() * s.q_len, 1);
  const int64_t q_block = std::min(schedule.q_block, rows);
  const int64_t most_keys = s.most_keys((q_block + s.group() - 2) / s.group() + 1);
  KeyChunks chunks = {1, std::max<int64_t>(most_keys, 1)};
  const int64_t blocks = s.batch * s.kv_heads * divide_up(s.group() * s.q_len, q_block);
  const int64_t wanted = tasks_per_thread * schedule.threads;
  if (schedule.threads == 1 || blocks == 0 || blocks >= wanted) return chunks;
  const int64_t tiles = divide_up(most_keys, schedule.kv_block);
  const int64_t count = std::min(divide_up(wanted, blocks), tiles / least_tiles_per_chunk);
  if (count <= 1) return chunks;
  chunks.length = divide_up(tiles, count) * schedule.kv_block;
  chunks.count = divide_up(most_keys, chunks.length);
  return chunks;
}

double predict(const Schedule& schedule, const Sizes& s, const CodePath& path,
               const Traits& traits) {
  const double seconds = Model(schedule, s, path, traits).seconds();
  if (!path.decode) return seconds;
  const DecodePrefetch likely = likely_prefetch(s, path, schedule.threads, traits);
  return seconds * (schedule.prefetch == likely ? 1 : other_prefetch) *
         (schedule.kv_block == decode_kv_block(s, likely, traits) ? 1 : other_block);
}

std::vector<Schedule> schedules(const Sizes& s, const CodePath& path, int most_threads,
                                FunctionRef<const Traits&(int threads)> traits_of) {
  struct Ranked {
    Schedule schedule;
    double seconds;
  };
  std::vector<Ranked> all;
  const auto add = [&](const Schedule& given, const Traits& traits) {
    all.push_back({given, predict(given, s, path, traits)});
  };
  const int64_t rows = std::max<int64_t>(s.group() * s.q_len, 1);
  // All threads, half of them and so on.
  for (int threads = std::max(1, most_threads); threads > 0;
       threads = common::fewer_threads(threads)) {
    const Traits& traits = traits_of(threads);
    Schedule given;
    given.threads = threads;
    given.prefetch = likely_prefetch(s, path, threads, traits);
    if (path.decode) {
      given.q_block = rows;
      given.kv_block = decode_kv_block(s, given.prefetch, traits);
      for (const DecodePrefetch prefetch :
           {DecodePrefetch::distance, DecodePrefetch::pages, DecodePrefetch::at_use}) {
        Schedule other = given;
        other.prefetch = prefetch;
        if (prefetch != DecodePrefetch::pages || may_prefetch_pages(s, path)) add(other, traits);
      }
      const int64_t likely = given.kv_block;
      for (int64_t kv_block : {16, 32, 64, 128, 256}) {
        given.kv_block = kv_block;
        if (kv_block != likely) add(given, traits);
      }
      continue;
    }
    // Vectors of rows: up to four micro-panels of three, or less where rows are few.
    for (const int64_t vectors : {1, 2, 3, 6, 12}) {
      given.q_block = vectors * path.lanes;
      for (int64_t kv_block : {32, 64, 128, 192, 256}) {
        given.kv_block = kv_block;
        add(given, traits);
      }
      if (given.q_block >= rows) break;
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Ranked& x, const Ranked& y) { return x.seconds < y.seconds; });
  // With the best number of threads all, with others the best.
  std::vector<Schedule> list;
  std::vector<int> seen;
  for (const auto& [schedule, ignored] : all) {
    const bool first = std::find(seen.begin(), seen.end(), schedule.threads) == seen.end();
    if (first) seen.push_back(schedule.threads);
    if (first || schedule.threads == seen.front()) list.push_back(schedule);
  }
  return list;
}

}  // namespace rooflane::attention
