// What a judged kernel's runner (runner.cpp) and the process that measures it say to each other.
// Requests and answers are one message each on a socket of message boundaries; runs are asked for
// by a word in shared memory, the doorbell. Both ends are built together, so the structs are the
// format. The runner is not to be trusted: what it answers is checked (jailed_plugin.cpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rooflane::jail {

// The runner finds its socket here.
inline constexpr int runner_socket = 3;

inline constexpr std::size_t most_params = 40, most_tensors = 12, most_variants = 8,
                             most_tunables = 16, most_dtypes = 12;
inline constexpr std::size_t name_bytes = 64, text_bytes = 256;
using Name = char[name_bytes];
using Text = char[text_bytes];

// ask: whether the variant takes the problem, and nothing else.
enum class Op : std::uint32_t { load, ask, plan, bind, wait_for_bell };
// For a tensor without elements.
inline constexpr std::uint32_t no_memory = 0xffffffff;

struct ParamMessage {
  Name name;
  double value;
  std::uint32_t has_text;
  Text text;
};

// A tensor; its memory is the message's descriptor number `memory`. The data begins at `offset`.
struct TensorMessage {
  Name name;
  Name dtype;
  std::int32_t has_quantisation;
  std::int32_t bits, block, block_bytes;
  Name scale, zero;  // zero empty: none
  std::int32_t rank;
  std::int64_t shape[4], strides[4];
  std::uint32_t memory;
  std::uint64_t offset;
};

struct Request {
  Op op;
  std::uint32_t variant;
  std::int32_t threads;
  Name kernel;
  Text path;  // of the library to load
  std::uint32_t param_count;
  ParamMessage params[most_params];
  std::uint32_t tuning_count;
  std::int64_t tuning[most_tunables];
  std::uint32_t tensor_count;  // of constants for plan, of all others for bind
  TensorMessage tensors[most_tensors];
  std::uint64_t memory_bytes[most_tensors];
  std::uint32_t memory_writable[most_tensors];
};

struct TunableMessage {
  Name name;
  Text meaning;
  std::int64_t least, most, value;
};

struct VariantMessage {
  Name kernel, name, library;  // name and library may be empty
  std::int32_t many_threads, constants;
  std::int32_t may_refuse;    // it has `unsupported`, which is asked before planning
  std::uint32_t dtype_count;  // 0: as the table has NULL
  Name dtypes[most_dtypes];
  std::uint32_t tunable_count;
  TunableMessage tunables[most_tunables];
};

struct Answer {
  std::int32_t good;
  Text text;  // why not, when it is not good
  std::uint32_t abi;
  std::uint32_t variant_count;
  VariantMessage variants[most_variants];
};

// The page that both have mapped. The measuring process raises `rung`; the runner calls the kernel
// and puts the same number into `done`.
struct Doorbell {
  std::atomic<std::uint32_t> rung;
  std::atomic<std::uint32_t> runner_sleeps;  // it waits in the kernel (a futex on `rung`)
  std::uint32_t spins;                       // how often it looks before it sleeps
  std::uint32_t runs;                        // how often the kernel is called
  std::uint32_t steps;                       // of 0 runs: so many multiplications
  std::int32_t cpu;                          // where to sleep; negative: anywhere
  alignas(64) std::atomic<std::uint32_t> done;
  std::atomic<std::uint32_t> caller_sleeps;  // likewise, on `done`
  std::int32_t status;                       // what the kernel returned
  std::uint32_t changed_state;               // the kernel left another rounding mode behind
  char error[text_bytes];                    // of a run that failed
  // Run of the call that has begun last, from 1. The caller, who looks at the other words all the
  // time, reads it when the process is gone.
  alignas(64) std::uint32_t begun;
};

}  // namespace rooflane::jail
