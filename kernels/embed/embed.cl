// Embedding: y = rows of a table by their ids. LY rows to a group, LX items to a row, V floats at a
// time. -DFLOAT16, -DBFLOAT16, -DQ8: what the table is stored in (vectors.cl).

#if defined(Q8)
typedef uchar stored;
// Blocks of 32 elements in 34 bytes, the scale in front.
void copy_row(__global const uchar* row, __global float* y, long cols, int place) {
  for (long block = place; block < cols / 32; block += LX) {
    __global const uchar* from = row + block * 34;
    const float scale = vload_half(0, (__global const half*)from);
    __global const char* values = (__global const char*)from + 2;
    vstore16(scale * convert_float16(vload16(0, values)), 0, y + block * 32);
    vstore16(scale * convert_float16(vload16(1, values)), 0, y + block * 32 + 16);
  }
}
#define ROW_OF(id) (table + (id) * (cols / 32 * 34))
#else
typedef element stored;
void copy_row(__global const element* row, __global float* y, long cols, int place) {
  for (long i = (long)place * V; i + V <= cols; i += LX * V) VSTORE(GLOAD(row + i), y + i);
  for (long i = cols / V * V + place; i < cols; i += LX) y[i] = LOAD_ONE(row, i);
}
#define ROW_OF(id) (table + (id) * cols)
#endif

__kernel __attribute__((reqd_work_group_size(LX * LY, 1, 1)))
void embed(__global const stored* table, __global const int* ids, __global float* y, long n,
           long cols) {
  const int item = get_local_id(0);
  const long row = (long)get_group_id(0) * LY + item / LX;
  if (row < n) copy_row(ROW_OF((long)ids[row]), y + row * cols, cols, item % LX);
}
