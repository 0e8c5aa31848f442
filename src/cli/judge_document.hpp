// The result of `judge`: its JSON document and the same in words. Its schema is in
// judge_schema.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "judge/judge.hpp"

namespace rooflane {

nlohmann::ordered_json judge_document(const judge::Request& request,
                                      const judge::Judgement& judgement);
std::string judge_text(const nlohmann::ordered_json& document);
// Attempts as `--history` shows them.
std::string history_text(const std::vector<nlohmann::ordered_json>& attempts);

}  // namespace rooflane
