#include <stdint.h>
#include <string.h>

// y[segment[e]] += x[e], row by row.
void segment_sum(const float* x, const int32_t* segment, float* y, int64_t edges, int64_t cols,
                 int64_t segments) {
  memset(y, 0, (size_t)(segments * cols) * sizeof(float));
  for (int64_t e = 0; e < edges; ++e) {
    for (int64_t j = 0; j < cols; ++j) y[segment[e] * cols + j] += x[e * cols + j];
  }
}
