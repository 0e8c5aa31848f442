// What the units of AVX-512 and AMX share and is worth their instructions: packing lanes, and sums
// of columns. A lane is 32 bits: 2 bfloat16 or 4 8-bit integers that follow one another along k.
// Plain loops that the compiler makes vectors of. Include it once, inside the attributes of the
// instructions and an anonymous namespace.

// Lanes are read whole, whatever their alignment.
inline std::uint32_t LaneAt(const void* from) {
  std::uint32_t lane;
  std::memcpy(&lane, from, sizeof lane);
  return lane;
}

// The `count` elements, fewer than a group, that k leaves over.
template <class E>
std::uint32_t PartialLane(const E* from, std::int64_t inner, std::int64_t count) {
  std::uint32_t lane = 0;
  for (std::int64_t t = 0; t < count; ++t) {
    lane |= std::uint32_t{from[t * inner]} << (8 * sizeof(E) * static_cast<std::size_t>(t));
  }
  return lane;
}

// Place of a lane in a panel where `run` lanes of a vector lie side by side.
template <int run>
std::int64_t PlaceOf(const PackCall& c, std::int64_t lane, std::int64_t vector) {
  return (lane / run * c.width + vector) * run + lane % run;
}

// Vectors along memory: a cache line of each, 16 lanes, at a time.
template <class E, int run>
void PackAlong(const PackCall& c, std::int64_t whole) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E), line = 16;
  const E* const from = reinterpret_cast<const E*>(c.from);
  for (std::int64_t g0 = 0; g0 < whole; g0 += line) {
    const std::int64_t count = std::min(line, whole - g0);
    for (std::int64_t v = 0; v < c.count; ++v) {
      const E* const source = from + v * c.outer + g0 * group;
      std::uint32_t* const to = c.to + PlaceOf<run>(c, g0, v);
      const std::int64_t step = run == 1 ? c.width : 1;
      for (std::int64_t g = 0; g < count; ++g)
        to[g * step] = LaneAt(source + g * group) ^ c.xor_mask;
    }
  }
}

// Vectors across memory: rows of it are interleaved.
template <class E, int run>
void PackAcross(const PackCall& c, std::int64_t whole) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E);
  const E* const from = reinterpret_cast<const E*>(c.from);
  for (std::int64_t g = 0; g < whole; ++g) {
    const E* const row = from + g * group * c.inner;
    std::uint32_t* const to = c.to + PlaceOf<run>(c, g, 0);
    for (std::int64_t v = 0; v < c.count; ++v) {
      std::uint32_t lane = std::uint32_t{row[v]} | std::uint32_t{row[c.inner + v]}
                                                       << (8 * sizeof(E));
      if constexpr (group == 4) {
        lane |= std::uint32_t{row[2 * c.inner + v]} << 16 | std::uint32_t{row[3 * c.inner + v]}
                                                                << 24;
      }
      to[v * run] = lane ^ c.xor_mask;
    }
  }
}

// The panel's piece has `lanes` lanes; those beyond k are zeros.
template <class E, int run>
void PackLanes(const PackCall& c, std::int64_t lanes) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E);
  const std::int64_t whole = c.k / group;
  if (c.inner == 1) {
    PackAlong<E, run>(c, whole);
  } else {
    PackAcross<E, run>(c, whole);
  }
  const E* const rest = reinterpret_cast<const E*>(c.from) + whole * group * c.inner;
  for (std::int64_t g = whole; g < lanes; ++g) {
    const std::int64_t left = g == whole ? c.k % group : 0;
    for (std::int64_t v = 0; v < c.count; ++v) {
      const std::uint32_t lane = PartialLane(rest + v * c.outer, c.inner, left);
      c.to[PlaceOf<run>(c, g, v)] = left > 0 ? lane ^ c.xor_mask : 0;
    }
  }
  if (c.count == c.width) return;
  for (std::int64_t g = 0; g < lanes; ++g) {
    for (std::int64_t v = c.count; v < c.width; ++v) c.to[PlaceOf<run>(c, g, v)] = 0;
  }
}

template <int nr>
void SumColumns(const std::uint32_t* panel, std::int64_t lanes, std::int32_t* to) {
  std::int32_t sums[nr] = {};
  for (std::int64_t g = 0; g < lanes; ++g) {
    for (int j = 0; j < nr; ++j) {
      const std::uint32_t lane = panel[g * nr + j];
      sums[j] += static_cast<std::int8_t>(lane) + static_cast<std::int8_t>(lane >> 8) +
                 static_cast<std::int8_t>(lane >> 16) + static_cast<std::int8_t>(lane >> 24);
    }
  }
  std::copy_n(sums, nr, to);
}
