// What all dot-product units share and is worth their instructions: packing lanes, sums of columns,
// storing c, quantising and rounding rows. Plain loops that the compiler makes vectors of. Include
// it once, inside the attributes of the instructions and an anonymous namespace. Words:
// dot_unit.hpp.

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

// Place of a lane in a panel.
inline std::int64_t PlaceOf(const PackCall& c, std::int64_t lane, std::int64_t vector) {
  return (lane / c.run * c.width + vector) * c.run + lane % c.run;
}

// Vectors along memory: a cache line of each, 16 lanes, at a time.
template <class E>
void PackAlong(const PackCall& c, std::int64_t whole) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E), line = 16;
  const E* const from = static_cast<const E*>(c.from);
  for (std::int64_t g0 = 0; g0 < whole; g0 += line) {
    const std::int64_t count = std::min(line, whole - g0);
    for (std::int64_t v = 0; v < c.count; ++v) {
      const E* const source = from + v * c.outer + g0 * group;
      std::uint32_t* const to = c.to + PlaceOf(c, g0, v);
      const std::int64_t step = c.run == 1 ? c.width : 1;
      for (std::int64_t g = 0; g < count; ++g)
        to[g * step] = LaneAt(source + g * group) ^ c.xor_mask;
    }
  }
}

// Vectors across memory: rows of it are interleaved.
template <class E>
void PackAcross(const PackCall& c, std::int64_t whole) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E);
  const E* const from = static_cast<const E*>(c.from);
  for (std::int64_t g = 0; g < whole; ++g) {
    const E* const row = from + g * group * c.inner;
    std::uint32_t* const to = c.to + PlaceOf(c, g, 0);
    for (std::int64_t v = 0; v < c.count; ++v) {
      std::uint32_t lane = std::uint32_t{row[v]} | std::uint32_t{row[c.inner + v]}
                                                       << (8 * sizeof(E));
      if constexpr (group == 4) {
        lane |= std::uint32_t{row[2 * c.inner + v]} << 16 | std::uint32_t{row[3 * c.inner + v]}
                                                                << 24;
      }
      to[v * c.run] = lane ^ c.xor_mask;
    }
  }
}

template <class E>
void PackLanes(const PackCall& c) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E);
  const std::int64_t whole = c.k / group;
  if (c.inner == 1) {
    PackAlong<E>(c, whole);
  } else {
    PackAcross<E>(c, whole);
  }
  const E* const rest = static_cast<const E*>(c.from) + whole * group * c.inner;
  for (std::int64_t g = whole; g < c.lanes; ++g) {
    const std::int64_t left = g == whole ? c.k % group : 0;
    for (std::int64_t v = 0; v < c.count; ++v) {
      const std::uint32_t lane = PartialLane(rest + v * c.outer, c.inner, left);
      c.to[PlaceOf(c, g, v)] = left > 0 ? lane ^ c.xor_mask : 0;
    }
  }
  if (c.count == c.width) return;
  for (std::int64_t g = 0; g < c.lanes; ++g) {
    for (std::int64_t v = c.count; v < c.width; ++v) c.to[PlaceOf(c, g, v)] = 0;
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

inline float FromBFloat16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}
// To nearest, ties to even; NaN stays one.
inline std::uint16_t ToBFloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
}

// Sums of a row as reals, before alpha.
inline void RealSums(const Output& out, const std::uint32_t* sums, std::int64_t row,
                     std::int64_t col, std::int64_t cols, float* to) {
  if (!out.integers) {
    for (std::int64_t j = 0; j < cols; ++j) to[j] = std::bit_cast<float>(sums[j]);
    return;
  }
  const float scale = out.row_scale[row];
  const float* const scales = out.column_scale + col;
  for (std::int64_t j = 0; j < cols; ++j) {
    std::uint32_t sum = sums[j];
    if (out.column_sums != nullptr) {
      sum -= 128 * static_cast<std::uint32_t>(out.column_sums[col + j]);
    }
    to[j] = static_cast<float>(static_cast<std::int32_t>(sum)) * (scale * scales[j]);
  }
}

inline void FinishIntegers(const Output& out, const std::uint32_t* sums, std::int64_t col,
                           std::int64_t cols, std::uint32_t* to) {
  if (out.column_sums == nullptr) {
    std::copy_n(sums, cols, to);
    return;
  }
  for (std::int64_t j = 0; j < cols; ++j) {
    to[j] = sums[j] - 128 * static_cast<std::uint32_t>(out.column_sums[col + j]);
  }
}

// Modulo 2^32, in which sums that pass through more than int32 holds come back.
void FinishTile(const FinishCall& call) {
  const Output& out = *call.output;
  constexpr std::int64_t most = 64;  // columns at a time; a micro-tile has fewer
  float values[most];
  for (std::int64_t i = 0; i < call.rows; ++i) {
    const std::int64_t row = call.row + i;
    for (std::int64_t j0 = 0; j0 < call.cols; j0 += most) {
      const std::int64_t cols = std::min(most, call.cols - j0), col = call.col + j0;
      const std::uint32_t* const sums = call.sums + i * call.ld + j0;
      const std::int64_t at = row * out.ldc + col, at0 = row * out.ldc0 + col;
      if (out.format == Output::Format::int32) {
        FinishIntegers(out, sums, col, cols, static_cast<std::uint32_t*>(out.c) + at);
        continue;
      }
      RealSums(out, sums, row, col, cols, values);
      for (std::int64_t j = 0; j < cols; ++j) values[j] *= out.alpha;
      if (out.format == Output::Format::float32) {
        float* const c = static_cast<float*>(out.c) + at;
        if (out.c0 != nullptr) {
          const float* const c0 = static_cast<const float*>(out.c0) + at0;
          for (std::int64_t j = 0; j < cols; ++j) values[j] += out.beta * c0[j];
        }
        std::copy_n(values, cols, c);
      } else {
        std::uint16_t* const c = static_cast<std::uint16_t*>(out.c) + at;
        if (out.c0 != nullptr) {
          const std::uint16_t* const c0 = static_cast<const std::uint16_t*>(out.c0) + at0;
          for (std::int64_t j = 0; j < cols; ++j) values[j] += out.beta * FromBFloat16(c0[j]);
        }
        for (std::int64_t j = 0; j < cols; ++j) c[j] = ToBFloat16(values[j]);
      }
    }
  }
}

template <class Read>
void QuantiseWith(const QuantiseCall& c, const Read& read) {
  std::uint32_t most = 0;
  for (std::int64_t p = 0; p < c.k; ++p) {
    most = std::max(most, std::bit_cast<std::uint32_t>(read(p * c.inner)) & 0x7FFFFFFF);
  }
  const QuantisationStep by = quantisation_step(most);
  *c.step = by.step;
  // 1.5·2^23 leaves no bits behind the point: adding it rounds to nearest, ties to even.
  constexpr float shift = 0x1.8p23f;
  auto* const to = static_cast<std::uint8_t*>(c.to);
  for (std::int64_t p = 0; p < c.k; ++p) {
    const float rounded = by.finite ? read(p * c.inner) * by.inverse + shift : shift;
    to[p] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(rounded) + 128);
  }
}

void RoundRow(const QuantiseCall& c) {
  const auto* const from = static_cast<const float*>(c.from);
  auto* const to = static_cast<std::uint16_t*>(c.to);
  for (std::int64_t p = 0; p < c.k; ++p) to[p] = ToBFloat16(from[p * c.inner]);
}

void QuantiseRow(const QuantiseCall& c) {
  if (c.short_floats) {
    const auto* const from = static_cast<const std::uint16_t*>(c.from);
    QuantiseWith(c, [=](std::int64_t at) { return FromBFloat16(from[at]); });
  } else {
    const auto* const from = static_cast<const float*>(c.from);
    QuantiseWith(c, [=](std::int64_t at) { return from[at]; });
  }
}
