// Arrays of other people: what is accepted can be read in every format that it may become, and,
// written as one of ours, comes back.
#include <vector>

#include "core/temporary_folder.hpp"
#include "io/npy.hpp"
#include "tests/fuzz/input_file.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {
namespace {

void read_as(const std::string& path, const NpyHeader& header, DType dtype) {
  try {
    const Shape shape = tensor_shape_of(header, dtype);
    std::int64_t elements = 1;
    for (const std::int64_t size : shape) elements *= size;
    std::vector<char> data(dtype->bytes(elements));
    read_npy(path, header, dtype, data.data());
    if (shape.empty()) return;
    static const TemporaryFolder folder;
    const std::string copy = folder / "copy.npy";
    write_npy(copy, shape, dtype, data.data());
    const NpyHeader again = read_npy_header(copy);
    require(tensor_shape_of(again, dtype) == shape);
    std::vector<char> same(data.size());
    read_npy(copy, again, dtype, same.data());
    require(same == data);
  } catch (const Error&) {
    // Not of a format that becomes this one.
  }
}

}  // namespace

void npy_target(std::string_view input) {
  const InputFile file(input);
  const NpyHeader header = read_npy_header(file.path());
  for (const DType dtype : {&float32, &float16, &bfloat16, &int8, &int32, &q8_0}) {
    read_as(file.path(), header, dtype);
  }
}

}  // namespace rooflane::fuzz
