// Patches: LY channels of patches to a group, LX items to one, which share its rows of `patch`
// elements. V floats at a time.

__kernel __attribute__((reqd_work_group_size(LX * LY, 1, 1)))
void im2patch(__global const float* image, __global float* patches, long planes, int channels,
              int down, int across, int patch) {
  const int item = get_local_id(0);
  // A channel of a patch, in the order of the output.
  const long plane = (long)get_group_id(0) * LY + item / LX;
  if (plane >= planes) return;
  const int channel = plane % channels;
  const long index = plane / channels;  // of the patch, over all images
  const int place = index % (down * across);
  const long batch = index / (down * across);
  const int height = down * patch, width = across * patch;
  __global const float* from = image + ((batch * channels + channel) * height +
                                        place / across * patch) * width + place % across * patch;
  __global float* to = patches + plane * patch * patch;
  for (int i = item % LX; i < patch; i += LX) {
    __global const float* row = from + (long)i * width;
    __global float* out = to + i * patch;
    int j = 0;
    for (; j + V <= patch; j += V) VSTORE(VLOAD(row + j), out + j);
    for (; j < patch; ++j) out[j] = row[j];
  }
}
