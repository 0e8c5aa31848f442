// Traits derived from what the system reports, and measured ones taken over to other ISA targets
// and numbers of threads. The file: traits_file.cpp.
#include "core/traits.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rooflane {
namespace {

// --- derived -------------------------------------------------------------------------------------

// The highest clock in Hz: cpufreq's, else CPUID's leaf 0x16 (Intel, MHz), else what /proc/cpuinfo
// says. That is the base clock in virtual machines, hence at least a server's usual turbo.
constexpr double usual_hz = 3e9;
double clock_hz() {
  double khz = 0;
  if (std::ifstream("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq") >> khz && khz > 0) {
    return khz * 1e3;
  }
#if defined(__x86_64__)
  unsigned base = 0, highest = 0, bus = 0, unused = 0;
  if (__get_cpuid(0x16, &base, &highest, &bus, &unused) != 0 && (highest & 0xffff) != 0) {
    return (highest & 0xffff) * 1e6;
  }
#endif
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("cpu MHz", 0) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const double mhz = std::strtod(line.c_str() + colon + 1, nullptr);
    if (mhz > 0) return std::max(usual_hz, mhz * 1e6);
  }
  return usual_hz;
}

// float32 lanes of a target's vectors, and whether it multiplies and adds in one instruction.
struct Vectors {
  int lanes;
  bool fused;
};

Vectors vectors_of(std::string_view isa) {
  if (isa.starts_with("AVX3") || isa.starts_with("AVX10")) return {16, true};
  if (isa == "AVX2") return {8, true};
  if (isa.starts_with("NEON")) return {4, true};
  if (isa == "SVE2_128") return {4, true};
  if (isa == "SVE_256") return {8, true};
  if (isa.starts_with("SVE")) return {16, true};  // built for A64FX's 512 bits (option sve_bits)
  return {4, false};  // SSE; SCALAR and EMU128 as compilers vectorise them
}

// What every x86-64 core since Haswell and Zen 2 and Arm's since Cortex-A72 do per cycle: two
// vectors multiplied and added, two loaded and one stored. Neoverse V1 and V2 and Apple's do up to
// twice that with NEON, as calibration finds.
constexpr int fma_ports = 2;
constexpr int load_ports = 2;
constexpr int store_ports = 1;
constexpr int float_bytes = 4;
// Bytes per cycle between L1 and L2: half of a 64-byte line each way. Intel's cores read a whole
// line at best, and three quarters of one in the long run (a Sapphire Rapids: 47 to 50 bytes). A
// store reads the line before it writes it back.
constexpr double l2_read = 32, l2_read_intel = 48;
constexpr double l2_write = 16;
// From L3: about 24 lines on their way to a core (its L1 and L2 prefetch) over 150 cycles. The L3
// of Zen's cores is shared by few of them and nearer, and reads and writes 32 bytes at best (a Zen
// 4: 27).
constexpr double l3_read = 10, l3_read_amd = 24;
constexpr double l3_write = 5, l3_write_amd = 16;
// From memory by one thread: 16 lines on their way over 250 cycles (80 ns at 3 GHz). Stores past
// the caches do not read the line first.
constexpr double memory_read = 4;
constexpr double memory_write = 2;
constexpr double memory_stream = 4;
// All threads of a server: a channel of DDR4-3200 to DDR5-4800 (25 to 38 GB/s) serves 4 to 8 cores.
constexpr double shared_memory = 0.5;
// A 4×4 transpose of 16-byte vectors takes 8 shuffles on one port for the 64 bytes it reads.
constexpr double transpose_read = 8;
// A line of cache passes from one core to another in 100 ns. A region: its start is seen, work and
// its arguments fetched, arrivals counted and the end seen, twice over: 10 passes; each further
// thread counts its arrival on the same line. A task is one such count.
constexpr double line_s = 100e-9;
constexpr int region_lines = 10;
// How much later than their mean the last of many threads ends. In a virtual machine, which shares
// its cores, it was half as late again among 16 threads; elsewhere it is hardly later at all. A
// schedule for a fifth loses a few per cent at most in both cases.
constexpr double usual_delay = 0.2;
// The second-level TLB of x86-64 since Skylake and Zen 2 has 1536 to 4096 entries. A walk of page
// tables in L2 takes 20 to 30 cycles, two of them at a time.
constexpr double tlb_pages = 1536;
constexpr double walk_cycles = 12;
// With one thread a task is an indirect call.
constexpr double call_cycles = 10;
// Units over float32's multiply-adds: the operations that an instruction does for its ports and the
// cycles it takes. pmaddwd needs an addition beside it; a product of tiles takes 16 cycles.
struct Speedup {
  const char* instruction;
  double over_fma;
};
constexpr Speedup speedups[] = {
    {"pmaddwd", 1}, {"vdpbf16ps", 2}, {"vpdpbusd", 4}, {"amx-bf16", 16}, {"amx-int8", 32}};

Traits::Rates derived_rates(double hz, Vectors vectors, const std::string& cpu) {
  const bool intel = cpu.find("Intel") != std::string::npos;
  const bool amd = cpu.find("AMD") != std::string::npos;
  Traits::Rates rates;
  const double vector = vectors.lanes * float_bytes;
  // Apart, a product and a sum take two instructions for the same two flops.
  rates.fma = hz * fma_ports * vectors.lanes * (vectors.fused ? 2 : 1);
  const double l1_read = load_ports * vector;
  const double l1_write = store_ports * vector;
  const double read[levels] = {l1_read, std::min(intel ? l2_read_intel : l2_read, l1_read),
                               amd ? l3_read_amd : l3_read, memory_read};
  const double write[levels] = {l1_write, std::min(l2_write, l1_write),
                                amd ? l3_write_amd : l3_write, memory_write};
  for (int level = 0; level < levels; ++level) {
    rates.read[level] = hz * read[level];
    rates.write[level] = hz * write[level];
  }
  rates.stream = hz * memory_stream;
  return rates;
}

double derived_region(int threads) {
  return threads > 1 ? line_s * (region_lines + threads - 2) : 0;
}

// The part of many threads' delay that t threads have: among fewer threads a slow one is rarer.
double share_of_delay(int t) { return 1 - 1.0 / t; }

// --- measured, taken elsewhere -------------------------------------------------------------------

// The rate of each of t threads, if one alone reaches `one`, and each of `measured` at once `many`.
// Up to `measured`, each reaches `one` until together they reach measured × many. Beyond that, each
// reaches `many`, the nearest known rate, until the cores are used up and threads share them.
double rate_at(double one, double many, int measured, int cores, int t) {
  if (t <= 1) return one;
  if (t <= measured) return std::min(std::max(one, many), many * measured / t);
  return many * std::min(1.0, static_cast<double>(std::max(measured, cores)) / t);
}

// The same for resources that each core has alone: the more cores work, the slower each is, because
// clocks fall and hardware threads share a core.
double own_rate_at(double one, double many, int measured, int cores, int t) {
  if (t <= 1 || t > measured) return rate_at(one, many, measured, cores, t);
  return one + (many - one) * (t - 1) / (measured - 1);
}

// As these two for every rate.
Traits::Rates rates_at(const Traits& measured, int cores, int t) {
  const auto rate = [&](double one, double many) {
    return rate_at(one, many, measured.threads, cores, t);
  };
  Traits::Rates rates;
  const auto own = [&](double one, double many) {
    return own_rate_at(one, many, measured.threads, cores, t);
  };
  rates.fma = own(measured.one.fma, measured.many.fma);
  for (int level = 0; level < levels; ++level) {
    const auto at = [&](double one, double many) {
      return level <= in_l2 ? own(one, many) : rate(one, many);
    };
    rates.read[level] = at(measured.one.read[level], measured.many.read[level]);
    rates.write[level] = at(measured.one.write[level], measured.many.write[level]);
  }
  rates.stream = rate(measured.one.stream, measured.many.stream);
  for (int copy = 0; copy < copies; ++copy) {
    rates.copy[copy] = rate(measured.one.copy[copy], measured.many.copy[copy]);
  }
  return rates;
}

// At a target with narrower vectors loads and stores are narrower too, and no level is faster than
// L1. L1's rates follow the vectors' width, or the FMA peak where that falls less: such a CPU cuts
// its widest vectors in two.
void narrow(Traits::Rates& rates, double fma, double lanes) {
  const double share = std::min(1.0, std::max(lanes, fma / rates.fma));
  rates.fma = fma;
  rates.read[in_l1] *= share;
  rates.write[in_l1] *= share;
  for (int level = in_l2; level < levels; ++level) {
    rates.read[level] = std::min(rates.read[level], rates.read[in_l1]);
    rates.write[level] = std::min(rates.write[level], rates.write[in_l1]);
  }
}

}  // namespace

// Rows name an instruction with its vectors in front, avx512-pmaddwd.
double Traits::rate(std::string_view instruction, bool several) const {
  for (const auto& [name, peak] : units) {
    if (instruction.ends_with(name)) return several ? peak.many : peak.one;
  }
  const double fma = several ? many.fma : one.fma;
  for (const Speedup& speedup : speedups) {
    if (instruction.ends_with(speedup.instruction)) return fma * speedup.over_fma;
  }
  return fma;
}

Traits derived_traits(const Machine& machine, std::string_view isa, int threads) {
  const auto or_else = [](std::size_t bytes, std::int64_t otherwise) {
    return bytes > 0 ? static_cast<std::int64_t>(bytes) : otherwise;
  };
  Traits traits;
  traits.lanes = vectors_of(isa).lanes;
  traits.origin = "derived";
  traits.l1_bytes = or_else(machine.l1d_bytes, 32 << 10);
  traits.l2_bytes = or_else(machine.l2_bytes, 256 << 10);
  // A machine that reports none gives its L2 for it.
  traits.l3_bytes = std::max({or_else(machine.l3_bytes, 4 << 20), traits.l2_bytes * threads});
  traits.threads = std::max(1, threads);
  static const double hz = clock_hz();
  traits.one = derived_rates(hz, vectors_of(isa), machine.cpu);
  traits.many = traits.one;
  // Logical CPUs of one core share all it has; threads beyond the CPUs wait for one.
  const double alone = std::min(1.0, static_cast<double>(machine.all_cores) / traits.threads);
  if (traits.threads > 1) {
    traits.many.read[in_memory] *= shared_memory;
    traits.many.write[in_memory] *= shared_memory;
    traits.many.stream *= shared_memory;
    traits.many.fma *= alone;
    traits.many.stream *= alone;
    for (int level = 0; level < levels; ++level) {
      traits.many.read[level] *= alone;
      traits.many.write[level] *= alone;
    }
  }
  traits.transpose = hz * transpose_read;
  traits.region = derived_region(traits.threads);
  traits.task = traits.threads > 1 ? line_s : call_cycles / hz;
  traits.jitter = usual_delay * share_of_delay(traits.threads);
  traits.pages = tlb_pages;
  traits.page_walk = walk_cycles / hz;
  return traits;
}

// Rates: rate_at. A region's time grows with the logarithm of its threads, because they are woken
// in a tree; a task's is that of all threads unless there is one.
Traits traits_of(const MeasuredTraits& measured, const Machine& machine, std::string_view isa,
                 int threads) {
  const Traits& all = measured.at_isa;
  const int t = std::max(1, threads);
  Traits traits = all;
  traits.lanes = vectors_of(isa).lanes;
  traits.origin = "measured " + measured.date;
  traits.threads = t;
  traits.l3_bytes = std::max(all.l3_bytes, all.l2_bytes * t);
  traits.many = rates_at(all, machine.all_cores, t);
  for (auto& [name, peak] : traits.units) {
    peak.many = own_rate_at(peak.one, peak.many, all.threads, machine.all_cores, t);
  }
  const Traits derived = derived_traits(machine, isa, t);
  if (isa != measured.isa) {
    // A target that was not measured has the share of the measured one's peak that it should have.
    const double share = derived.one.fma / derived_traits(machine, measured.isa, 1).one.fma;
    const auto peak = measured.fma.find(std::string(isa));
    const double one = peak != measured.fma.end() ? peak->second.one : all.one.fma * share;
    const double many = peak != measured.fma.end()
                            ? own_rate_at(one, peak->second.many, all.threads, machine.all_cores, t)
                            : traits.many.fma * share;
    const double lanes =
        static_cast<double>(vectors_of(isa).lanes) / vectors_of(measured.isa).lanes;
    for (auto& [name, peak] : traits.units) {
      peak.one *= one / all.one.fma;
      peak.many *= one / all.one.fma;
    }
    narrow(traits.one, one, lanes);
    narrow(traits.many, many, lanes);
  }
  if (t == 1) {
    traits.region = 0;
    traits.task = derived.task;
    traits.jitter = 0;
  } else if (all.threads > 1) {
    traits.region = all.region * std::log2(t) / std::log2(all.threads);
    traits.jitter = all.jitter * share_of_delay(t) / share_of_delay(all.threads);
  } else {
    traits.region = derived.region;
    traits.task = derived.task;
    traits.jitter = derived.jitter;
  }
  return traits;
}

namespace {

class KnownTraits {
 public:
  const Traits& at(std::string_view isa, int threads) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [place, fresh] = known_.try_emplace({std::string(isa), threads});
    if (fresh) place->second = found(isa, threads);
    return place->second;
  }
  void use(std::optional<MeasuredTraits> measured) {
    const std::lock_guard<std::mutex> lock(mutex_);
    given_ = std::move(measured);
    ++uses_;
    for (auto& [key, traits] : known_) traits = found(key.first, key.second);
  }
  int uses() const { return uses_; }

 private:
  Traits found(std::string_view isa, int threads) const {
    const std::optional<MeasuredTraits>& measured = given_ ? given_ : traits_source().measured;
    return measured ? traits_of(*measured, machine(), isa, threads)
                    : derived_traits(machine(), isa, threads);
  }

  std::mutex mutex_;
  std::map<std::pair<std::string, int>, Traits> known_;
  std::optional<MeasuredTraits> given_;
  std::atomic<int> uses_ = 0;
};

KnownTraits& known_traits() {
  static KnownTraits known;
  return known;
}

}  // namespace

const Traits& traits(std::string_view isa, int threads) { return known_traits().at(isa, threads); }

void use_traits(std::optional<MeasuredTraits> measured) { known_traits().use(std::move(measured)); }
int traits_uses() { return known_traits().uses(); }

}  // namespace rooflane
