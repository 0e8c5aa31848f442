// `rooflane generate --measure`: times of a language model on request, for scripts that measure
// other programs in alternation with it (scripts/llm_compare.py).
#pragma once

#include <istream>
#include <ostream>

#include "core/catalogue.hpp"
#include "generate/phase_runner.hpp"
#include "io/gguf.hpp"

namespace rooflane {

// A request a line, answered by a line {"ns":...,"bytes":...,"operations":...}:
//   prefill DEPTH TOKENS   TOKENS at once behind DEPTH others
//   decode DEPTH TOKENS    TOKENS one by one behind DEPTH others, each with its logits
//   read                   one pass over as many bytes as decoding reads, by the fastest loop
//   peak                   operations of a second at the peak of the prompt's instruction
// TOKENS of every prefill are those of the first; DEPTH is a multiple of them. What lies before is
// not timed. `bytes`: what must be read, of prefill 0; `operations`: of kernels, of read 0. Ends
// with the input; throws Error(argument) for any other line.
int serve_generate_session(const Gguf& gguf, const Catalogue& catalogue,
                           const generate::RunnerSettings& settings, std::istream& requests,
                           std::ostream& answers);

}  // namespace rooflane
