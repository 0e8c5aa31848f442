// Variants that cheat, lie, crash or hang, for every kernel: what the measurement must see through.
// Each wraps the kernel's own scalar variant.
#pragma once

#include "core/catalogue.hpp"

namespace rooflane {

// The built-in catalogue with these variants added to each of its kernels:
//   fake-slow           sleeps 20 times as long as scalar runs
//   fake-too-fast       copies the output it kept while the first element of an input is the same
//   fake-memory         computes once, then copies the output it kept, whatever the inputs are
//   fake-zeros          writes zeros
//   fake-stale          writes only the first time it runs
//   fake-swapped        swaps the first and the last row of the output
//   fake-tf32           rounds its inputs to 10 mantissa bits
//   fake-flushing       takes inputs below the normal numbers for zeros
//   fake-input-changer  adds one to an element of its first input
//   fake-overrun        writes one element behind the output
//   fake-crash          ends by SIGSEGV in its second run
//   fake-exit           leaves the program with status 3
//   fake-hang           never returns
//   fake-rubbish        prints on standard output, and is right
//   fake-hungry         takes memory without end
//   fake-bad-alloc      throws std::bad_alloc in plan
//   fake-tunable        `pause` sleeps so many milliseconds, `fault` fails in each way
//   fake-unsupported    refuses every problem: "never in the mood"
Catalogue fake_catalogue();

}  // namespace rooflane
