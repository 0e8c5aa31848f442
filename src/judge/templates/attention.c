#include <math.h>
#include <stdint.h>
#include <stdlib.h>

// o = softmax(scale q kᵀ) v, head by head; as many heads of keys as of queries. Sums in double.
void attention(const float* q, const float* k, const float* v, float* o, int64_t batch,
               int64_t heads, int64_t q_len, int64_t kv_len, int64_t head_dim, float scale) {
  double* weight = malloc((size_t)(kv_len + head_dim + 1) * sizeof(double));
  double* sum = weight + kv_len;
  for (int64_t row = 0; row < batch * heads * q_len; ++row) {
    const int64_t head = row / q_len;
    const float* query = q + row * head_dim;
    double most = -INFINITY, total = 0;
    for (int64_t j = 0; j < kv_len; ++j) {
      const float* key = k + (head * kv_len + j) * head_dim;
      double score = 0;
      for (int64_t d = 0; d < head_dim; ++d) score += (double)query[d] * key[d];
      weight[j] = score * scale;
      if (weight[j] > most || isnan(weight[j])) most = weight[j];
    }
    for (int64_t d = 0; d < head_dim; ++d) sum[d] = 0;
    for (int64_t j = 0; j < kv_len; ++j) {
      const double w = exp(weight[j] - most);
      const float* value = v + (head * kv_len + j) * head_dim;
      total += w;
      for (int64_t d = 0; d < head_dim; ++d) sum[d] += w * value[d];
    }
    for (int64_t d = 0; d < head_dim; ++d) {
      o[row * head_dim + d] = kv_len > 0 ? (float)(sum[d] / total) : 0;
    }
  }
  free(weight);
}
