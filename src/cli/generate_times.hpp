// What `rooflane generate` says of its speed: tokens per second, and how near that is to what the
// machine can do.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "generate/decoder.hpp"
#include "generate/language_model.hpp"
#include "measure/stream_bench.hpp"

namespace rooflane {

// The best of several ways to read as many bytes as the bench has room for.
double best_read_gb_s(StreamBench& bench, std::size_t bytes);
// What an instruction can do in registers, in G operations a second; those without a loop of their
// own are multiply-adds.
double peak_g_operations_s(const std::string& instruction, int threads);

// Measures the limits, which takes some 100 ms, and prints a note and, where `json` names a file,
// a document. `prompt`: its tokens. Throws Error(argument) where the file cannot be written.
struct TimesRequest {
  bool note = false;
  std::string json;  // empty: none
};
void report_times(const TimesRequest& request, const generate::LanguageModel& model,
                  const generate::DecoderCounts& counts, std::int64_t prompt, int threads,
                  bool drafts);

}  // namespace rooflane
