// Put after rows.cl before the row kernels with vectors of `cols` (norm_once.cl):
// how such a vector lies beside rows in registers, which may start anywhere in a vector of 16 bytes.

#if FORM == 1
// Elements of gamma, say, beside the item's vector j of a row that starts `shift` elements into its
// first vector: seven elements in two aligned vectors, for any shift. `from`: the vector at `place`,
// with `left` vectors from there on. Elements outside the row are any.
typedef float8 Columns;

INLINED Columns columns_at(__global const float4* from, int j, int place, int left) {
  const float4 high = column_where(j * LX, left, from + j * LX, 0.0f);
  if (ALIGNED) return (Columns)(high, high);
  const bool has_low = j > 0 || place > 0;
  const float4 low = column_where(has_low ? j * LX - 1 : left, left, from + j * LX - 1, 0.0f);
  return (Columns)(low, high);
}

// The same where the items of a warp share one row: most values come from a neighbour's registers.
// All items of the warp call it together.
#if CODE_PATH == 1 && LX >= 32 && !ALIGNED
INLINED Columns columns_together(__global const float4* from, int j, int place, int left) {
  const float4 high = column_where(j * LX, left, from + j * LX, 0.0f);
  const bool has_low = place % 32 == 0 && (j > 0 || place > 0);
  float4 low = column_where(has_low ? j * LX - 1 : left, left, from + j * LX - 1, 0.0f);
  const float3 before = (float3)(lane_before(high.y), lane_before(high.z), lane_before(high.w));
  if (place % 32 != 0) low.yzw = before;
  return (Columns)(low, high);
}
#else
#define columns_together columns_at
#endif

// By two, then by one. (Four copies of the loop, a shift each, took more registers.)
INLINED float4 shifted(Columns c, int shift) {
  if (ALIGNED) return c.hi;
  const bool by_two = shift & 2;
  const float4 two = by_two ? c.s2345 : c.hi;
  const float before = by_two ? c.s1 : c.s3;
  return shift & 1 ? (float4)(before, two.xyz) : two;
}
#endif
