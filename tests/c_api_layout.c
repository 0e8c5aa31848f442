/* The C interface as C99 sees it, and its layout on 64-bit systems: a change here is a change of
 * ROOFLANE_ABI. */
#include "rooflane/rooflane.h"
#include "rooflane/variant.h"

#define CHECK(name, condition) typedef char name[(condition) ? 1 : -1]

CHECK(array_size, sizeof(rooflane_array) == 96);
CHECK(array_dtype, offsetof(rooflane_array, dtype) == 16);
CHECK(array_rank, offsetof(rooflane_array, rank) == 24);
CHECK(array_shape, offsetof(rooflane_array, shape) == 32);
CHECK(array_strides, offsetof(rooflane_array, strides) == 64);
CHECK(info_size, sizeof(rooflane_tensor_info) == 64);
CHECK(info_role, offsetof(rooflane_tensor_info, role) == 16);
CHECK(info_shape, offsetof(rooflane_tensor_info, shape) == 24);
CHECK(info_bytes, offsetof(rooflane_tensor_info, bytes) == 56);
CHECK(options_size, sizeof(rooflane_options) == 56);
CHECK(options_variant, offsetof(rooflane_options, variant) == 8);
CHECK(options_tuning, offsetof(rooflane_options, tuning) == 16);
CHECK(options_threads, offsetof(rooflane_options, threads) == 24);
CHECK(options_device, offsetof(rooflane_options, device) == 28);
CHECK(options_math, offsetof(rooflane_options, math) == 32);
CHECK(options_isa, offsetof(rooflane_options, isa) == 40);
CHECK(options_library, offsetof(rooflane_options, library) == 48);

int main(void) { return rooflane_abi() == ROOFLANE_ABI ? 0 : 1; }
