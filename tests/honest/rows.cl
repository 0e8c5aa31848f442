// OpenCL: a work-item for each row. Not every device has double, hence the compensated sum.
// global: rows
kernel void softmax(global const float* x, global float* y, long rows, long cols) {
  const long row = (long)get_global_id(0);
  x += row * cols;
  y += row * cols;
  float most = -INFINITY, sum = 0, compensation = 0;
  for (long i = 0; i < cols; ++i) most = fmax(most, x[i]);
  for (long i = 0; i < cols; ++i) {
    y[i] = exp(x[i] - most);
    const float more = y[i] - compensation, whole = sum + more;  // Kahan's sum
    compensation = (whole - sum) - more;
    sum = whole;
  }
  for (long i = 0; i < cols; ++i) y[i] /= sum;
}
