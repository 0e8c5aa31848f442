// Machines that do not exist, for tests of predictions: traits drawn from a seed, within what
// servers and desktops of the last ten years are.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/seeds.hpp"
#include "core/traits.hpp"

namespace rooflane::test {

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(splitmix64(seed)) {}
  double uniform() {  // in [0,1)
    return static_cast<double>(splitmix64(state_ += 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
  }
  // Log-uniform.
  double between(double least, double most) { return least * std::pow(most / least, uniform()); }
  std::int64_t size(double least, double most) {
    return static_cast<std::int64_t>(between(least, most));
  }

 private:
  std::uint64_t state_;
};

struct MadeUpMachine {
  Machine machine;
  MeasuredTraits measured;

  Traits traits(int threads) const { return traits_of(measured, machine, "AVX3", threads); }
};

inline MadeUpMachine made_up_machine(std::uint64_t seed) {
  Draws draw(seed);
  MadeUpMachine made;
  made.machine.all_cores = made.machine.all_cpus = 64;
  made.measured.isa = "AVX3";
  Traits& t = made.measured.at_isa;
  t.threads = 64;
  t.l1_bytes = draw.uniform() < 0.5 ? 32 << 10 : 48 << 10;
  t.l2_bytes = std::int64_t{256 << 10} << static_cast<int>(4 * draw.uniform());
  t.l3_bytes = draw.size(t.l2_bytes * 64, t.l2_bytes * 256);
  const double fma = draw.between(60e9, 300e9);
  made.measured.fma["AVX3"] = {fma, fma * draw.between(0.5, 1)};
  t.one.fma = fma;
  t.many.fma = made.measured.fma["AVX3"].many;
  double rate = draw.between(200e9, 600e9);
  for (int level = 0; level < levels; ++level) {
    t.one.read[level] = rate;
    t.one.write[level] = rate * draw.between(0.4, 1);
    const double share = level == in_memory ? draw.between(0.1, 0.8) : draw.between(0.6, 1);
    t.many.read[level] = t.one.read[level] * share;
    t.many.write[level] = t.one.write[level] * share;
    rate *= draw.between(0.2, 0.8);
  }
  t.one.stream = t.one.read[in_memory] * draw.between(0.4, 1);
  t.many.stream = t.many.read[in_memory] * draw.between(0.4, 1);
  for (Traits::Rates* rates : {&t.one, &t.many}) {
    rates->copy[in_order] = rates->stream * draw.between(1, 1.3);
    rates->copy[in_four] = rates->copy[in_order] * draw.between(0.9, 1.2);
    rates->copy[within_l3] = rates->read[in_l3] * draw.between(0.4, 1);
  }
  t.transpose = draw.between(20e9, 80e9);
  t.region = draw.between(0.5e-6, 60e-6);
  t.task = draw.between(10e-9, 200e-9);
  t.jitter = draw.between(0.001, 0.5);
  t.pages = 1536;
  t.page_walk = 4e-9;
  return made;
}

}  // namespace rooflane::test
