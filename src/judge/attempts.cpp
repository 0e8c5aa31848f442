// See attempts.hpp.
#include "judge/attempts.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/cache_folder.hpp"
#include "core/error.hpp"
#include "core/json_text.hpp"
#include "io/files.hpp"

namespace rooflane::judge {

using nlohmann::ordered_json;

std::string default_archive() {
  if (const char* const given = std::getenv("ROOFLANE_JUDGE_ARCHIVE")) return given;
  const std::filesystem::path folder = cache_folder();
  if (folder.empty())
    throw argument_error("--archive FILE is needed: neither HOME nor XDG_CACHE_HOME is set");
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  return folder / "judge.jsonl";
}

std::vector<ordered_json> attempts_in(const std::string& path, const std::string& kernel) {
  std::vector<ordered_json> attempts;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    ordered_json attempt = ordered_json::parse(line, nullptr, false);
    if (!attempt.is_object() || !attempt.contains("kernel") || !attempt.contains("verdict"))
      continue;
    if (kernel.empty() || attempt["kernel"] == kernel) attempts.push_back(std::move(attempt));
  }
  return attempts;
}

std::int64_t keep_attempt(const std::string& path, ordered_json document,
                          const std::string& source) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) throw argument_error(fmt::format("--archive '{}' cannot be written", path));
  // Judgements that end at the same time get numbers of their own.
  flock(file, LOCK_EX);
  const auto number = static_cast<std::int64_t>(attempts_in(path, "").size()) + 1;
  document["attempt"] = number;
  document["source"]["text"] = source;
  const std::string line =
      document.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  try {
    write_all(file, line, path);
  } catch (const Error&) {
    close(file);
    throw;
  }
  close(file);
  return number;
}

}  // namespace rooflane::judge
