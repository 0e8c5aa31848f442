// Lays an operand out as the pipeline likes it best, before a product that is worth it: [k_pad][ld],
// rows along m (n), zero beyond the matrix, so that every copy is 16 bytes wide and every tile whole.
// to[batch][p][i] = from[batch][i][p] with TRANSPOSED=1, from[batch][p][i] otherwise. A group of 256 items
// moves a square of 32 × 32; local memory transposes it, so that both memories see whole rows of 128 bytes.

__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void lay_out(
    __global const float* restrict from, __global float* restrict to, int length, int k, int ld,
    int k_pad) {
  __local float square[32 * 33];
  const int lid = get_local_id(0);
  const int x = lid % 32;
  const int y = lid / 32;
  const int across = (ld + 31) / 32;
  const int down = (k_pad + 31) / 32;
  const long group = get_group_id(0);
  const int i0 = (int)(group % across) * 32;
  const int p0 = (int)(group / across % down) * 32;
  const long batch = group / across / down;
  from += batch * length * k;
  to += batch * k_pad * ld;
#if TRANSPOSED
#pragma unroll
  for (int r = 0; r < 32; r += 8) {
    const int i = i0 + y + r;
    const int p = p0 + x;
    square[x * 33 + y + r] = i < length && p < k ? from[(long)i * k + p] : 0.0f;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
#pragma unroll
  for (int r = 0; r < 32; r += 8) {
    const int p = p0 + y + r;
    const int i = i0 + x;
#if TRANSPOSED
    const float value = square[(y + r) * 33 + x];
#else
    const float value = p < k && i < length ? from[(long)p * length + i] : 0.0f;
#endif
    if (p < k_pad && i < ld) to[(long)p * ld + i] = value;
  }
}
