// The second half of a product whose k was split among groups.

// c = alpha·(sum of the parts, in order) + beta·c0, an item per element.
__kernel void add_parts(__global const float* restrict parts, __global const float* restrict c0,
                        __global float* restrict c, long elements, int splits, float alpha,
                        float beta) {
  const long at = get_global_id(0);
  if (at >= elements) return;
  float sum = parts[at];
  for (int s = 1; s < splits; ++s) sum += parts[s * elements + at];
  const float value = alpha * sum;
  c[at] = beta != 0.0f ? value + beta * c0[at] : value;
}
