#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

// Softmax over the edges of each segment, column by column.
void segment_softmax(const float* x, const int32_t* segment, float* y, int64_t edges, int64_t cols,
                     int64_t segments) {
  float* most = malloc((size_t)(segments * cols + 1) * sizeof(float));
  double* sum = calloc((size_t)(segments * cols + 1), sizeof(double));
  for (int64_t i = 0; i < segments * cols; ++i) most[i] = -FLT_MAX;
  for (int64_t e = 0; e < edges; ++e) {
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t at = segment[e] * cols + j;
      if (x[e * cols + j] > most[at]) most[at] = x[e * cols + j];
    }
  }
  for (int64_t e = 0; e < edges; ++e) {
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t at = segment[e] * cols + j;
      sum[at] += y[e * cols + j] = expf(x[e * cols + j] - most[at]);
    }
  }
  for (int64_t e = 0; e < edges; ++e) {
    for (int64_t j = 0; j < cols; ++j) {
      y[e * cols + j] = (float)(y[e * cols + j] / sum[segment[e] * cols + j]);
    }
  }
  free(most);
  free(sum);
}
