// `rooflane generate --measure`: times of a language model on request, for who measures others in
// turn with it (scripts/llm_compare.py).
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
//   read                   one pass over as many bytes as decoding reads, by the best of several
//   ways
//   peak                   operations of a second at the peak of what multiplies the prompt
// TOKENS of every prefill are those of the first; DEPTH is a multiple of them. What lies before is
// not timed. `bytes`: what must be read, of prefill 0; `operations`: of kernels, of read 0. Ends
// with the input; throws Error(argument) for any other line.
int serve_generate_session(const Gguf& gguf, const Catalogue& catalogue,
                           const generate::RunnerSettings& settings, std::istream& requests,
                           std::ostream& answers);

}  // namespace rooflane
