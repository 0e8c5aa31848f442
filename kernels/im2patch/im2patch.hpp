// Patches of an image as rows: what the variants of this room share. The record and the reference
// are in reference.cpp.
//
//   patches[b, (h/p)·(width/p) + w/p, c·p² + (h mod p)·p + w mod p] = image[b,c,h,w],  p = patch
//   image: [batch,channels,height,width], patches: [batch,patches,channels·p²], height and width
//   being multiples of p and patches = height/p · width/p, row by row
//
// The first step of a vision transformer (Dosovitskiy et al., "An Image is Worth 16x16 Words",
// 2021): a row is in the order of a convolution's weight [out,channels,p,p], so that gemm with that
// weight as b, [out,channels·p²] and trans_b=1, embeds the patches. Values: copied bit for bit.
// Cost: no flops; each element is read and written once.
#pragma once

#include "core/variant.hpp"

namespace rooflane::im2patch {

// Operands in memory; strides in elements.
struct Image {
  const float* image = nullptr;
  std::int64_t batch_stride = 0, channel_stride = 0, row_stride = 0;
  float* patches = nullptr;
  std::int64_t out_batch_stride = 0, out_stride = 0;
  std::int64_t channels = 0, patch = 0;
  std::int64_t down = 0, across = 0;  // patches in a column and in a row of the image

  Image() = default;
  Image(const Problem& problem, const Operands& operands)
      : channels(problem.size("channels")),
        patch(problem.size("patch")),
        down(problem.size("height") / patch),
        across(problem.size("width") / patch) {
    const View& from = operands.at("image");
    const View& to = operands.at("patches");
    image = from.f32();
    batch_stride = from.strides[0];
    channel_stride = from.strides[1];
    row_stride = from.strides[2];
    patches = to.f32();
    out_batch_stride = to.strides[0];
    out_stride = to.strides[1];
  }
  // The first element of a patch, counted over the images of a batch, in its first channel.
  const float* from(std::int64_t index) const {
    const std::int64_t of_image = down * across, place = index % of_image;
    return image + index / of_image * batch_stride + place / across * patch * row_stride +
           place % across * patch;
  }
  float* to(std::int64_t index) const {
    const std::int64_t of_image = down * across;
    return patches + index / of_image * out_batch_stride + index % of_image * out_stride;
  }
};

}  // namespace rooflane::im2patch
