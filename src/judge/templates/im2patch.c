#include <stdint.h>

// The image's patches of patch by patch as rows, channel by channel: one image of three channels.
void im2patch(const float* image, float* patches, int64_t height, int64_t width, int64_t patch) {
  for (int64_t y = 0; y < height / patch; ++y) {
    for (int64_t x = 0; x < width / patch; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        for (int64_t i = 0; i < patch; ++i) {
          for (int64_t j = 0; j < patch; ++j) {
            *patches++ = image[(c * height + y * patch + i) * width + x * patch + j];
          }
        }
      }
    }
  }
}
