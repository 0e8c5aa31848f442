// Files of tuned schedules (docs/tuning.md): reading them, and which one is in use.
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <list>
#include <mutex>
#include <sstream>

#include "cache_folder.hpp"
#include "catalogue.hpp"
#include "error.hpp"
#include "json_text.hpp"
#include "seeds.hpp"
#include "text.hpp"
#include "traits.hpp"
#include "tuned.hpp"

namespace rooflane {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int version = 1;
constexpr const char* version_key = "rooflane_tuned";
constexpr std::int64_t most_tuned_threads = 1 << 16;

// Fields of one JSON object, by name; what is wrong is said with `where` in front.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("an object {...} expected");
  }

  static std::string text_of(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw argument_error(where_.empty() ? what : where_ + ": " + what);
  }
  // Null: it is not there.
  const json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  const json& at(const char* name) const {
    const json* const found = find(name);
    if (found == nullptr) fail(fmt::format("field {} is missing", name));
    return *found;
  }
  std::string text(const char* name) const {
    if (!at(name).is_string())
      fail(fmt::format("{}: a text expected, not {}", name, text_of(at(name))));
    return at(name).get<std::string>();
  }
  std::string text_or_nothing(const char* name) const {
    return find(name) == nullptr ? std::string() : text(name);
  }
  std::int64_t count(const char* name, std::int64_t most) const {
    const json& number = at(name);
    if (!number.is_number_integer() || number < 0 || number > most) {
      fail(fmt::format("{}: a whole number from 0 to {} expected, not {}", name, most,
                       text_of(number)));
    }
    return number.get<std::int64_t>();
  }
  bool flag(const char* name) const {
    if (find(name) == nullptr) return false;
    if (!at(name).is_boolean()) {
      fail(fmt::format("{}: true or false expected, not {}", name, text_of(at(name))));
    }
    return at(name).get<bool>();
  }

 private:
  const json& object_;
  std::string where_;
};

// Only people read it, but what they read should be figures.
void check_ratio(const Fields& entry, const std::string& where) {
  const json* const ratio = entry.find("ratio");
  if (ratio == nullptr) return;
  const Fields fields(*ratio, where + ": ratio");
  for (const char* name : {"value", "low", "high"}) {
    if (!fields.at(name).is_number()) fields.fail(fmt::format("{}: a number expected", name));
  }
}

std::optional<Problem> problem_of(const Fields& fields, const std::string& kernel,
                                  std::span<const Kernel* const> kernels) {
  const std::string shape = fields.text("shape");
  if (!shape.starts_with(kernel + ":")) {
    fields.fail(fmt::format("shape: a problem of {} expected, not '{}'", kernel, shape));
  }
  for (const Kernel* known : kernels) {
    if (known->name != kernel) continue;
    const Kernel* const only[] = {known};
    try {
      return parse_problem(parse_problem(shape, only).text(), only);
    } catch (const Error& error) {
      fields.fail(fmt::format("shape: {}", error.what()));
    }
  }
  return std::nullopt;
}

// The text; what its keys mean is the variant's to say.
std::string tuning_of(const Fields& fields) {
  const std::string text = fields.text("tuning");
  std::size_t keys = 0;
  try {
    keys = parse_key_values(text).size();
  } catch (const Error& error) {
    fields.fail(fmt::format("tuning: {}", error.what()));
  }
  if (keys == 0) fields.fail("tuning: it names no tunable");
  return text;
}

// Files of before had no such field: their problems were timed as a program would find them.
bool is_cold(const Fields& fields, const TunedEntry& entry) {
  const std::string cache = fields.text_or_nothing("cache");
  if (cache.empty()) return entry.threads > 0 && entry.problem && usually_cold(*entry.problem);
  if (cache != "warm" && cache != "cold") {
    fields.fail(fmt::format("cache: warm or cold expected, not {}", cache));
  }
  return cache == "cold";
}

TunedEntry entry_of(const json& object, const std::string& where,
                    std::span<const Kernel* const> kernels) {
  const Fields fields(object, where);
  TunedEntry entry;
  entry.kernel = fields.text("kernel");
  entry.variant = fields.text("variant");
  entry.problem = problem_of(fields, entry.kernel, kernels);
  entry.math = fields.text("math");
  entry.threads = static_cast<int>(fields.count("threads", most_tuned_threads));
  entry.isa = fields.text("isa");
  entry.device = fields.text("device");
  entry.tuning = tuning_of(fields);
  entry.cold = is_cold(fields, entry);
  entry.exact = fields.flag("exact");
  entry.time = fields.text_or_nothing("time");
  for (const char* name : {"default", "build"}) fields.text_or_nothing(name);
  check_ratio(fields, where);
  return entry;
}

// Where the text stops being JSON, without what the library calls its own errors.
std::string syntax_error(const json::exception& error) {
  const std::string what = error.what();
  const std::size_t mark = what.find("] ");
  return "is no JSON: " + (mark == std::string::npos ? what : what.substr(mark + 2));
}

bool is_none(const char* given) { return *given == '\0' || std::string_view(given) == "none"; }

}  // namespace

TunedSchedules parse_tuned(std::string_view text, std::span<const Kernel* const> kernels) {
  json document;
  try {
    document = parse_json(text);
  } catch (const json::exception& error) {
    throw argument_error(syntax_error(error));
  }
  const Fields fields(document, "");
  if (fields.at(version_key) != version) {
    fields.fail(fmt::format("{}: {} expected, not {}", version_key, version,
                            Fields::text_of(fields.at(version_key))));
  }
  TunedSchedules schedules;
  schedules.machine = Fields(fields.at("machine"), "machine").text("key");
  const json& entries = fields.at("entries");
  if (!entries.is_array()) fields.fail("entries: a list [...] expected");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    schedules.entries.push_back(entry_of(entries[i], fmt::format("entry {}", i + 1), kernels));
  }
  return schedules;
}

TunedSource read_tuned(const fs::path& file, bool named) {
  TunedSource source{file, named, std::nullopt, ""};
  std::error_code failed;
  if (file.empty() || (!named && !fs::exists(file, failed))) return source;
  std::ifstream in(file, std::ios::binary);
  if (!in || fs::is_directory(file, failed)) {
    source.problem = fs::exists(file, failed) ? "cannot be read" : "there is no such file";
    return source;
  }
  std::ostringstream text;
  text << in.rdbuf();
  try {
    TunedSchedules schedules = parse_tuned(text.str(), Catalogue::built_in().kernels());
    if (!named && schedules.machine != machine_key(machine())) {
      source.problem = fmt::format("of another machine ({})", schedules.machine);
    } else {
      source.schedules = std::move(schedules);
    }
  } catch (const Error& error) {
    source.problem = error.what();
  }
  return source;
}

fs::path tuned_store() {
  const fs::path folder = cache_folder();
  if (folder.empty()) return {};
  return folder / fmt::format("tuned-{:016x}.json", fnv1a64(machine_key(machine())));
}

namespace {

// All that were read: whoever holds one keeps it.
struct TunedSources {
  std::mutex mutex;
  std::list<TunedSource> read;
  std::atomic<const TunedSource*> last{nullptr};
};

TunedSources& sources() {
  static TunedSources all;
  return all;
}

TunedSource source_in_use() {
  const char* const given = std::getenv("ROOFLANE_TUNED");
  if (given == nullptr) return read_tuned(tuned_store(), false);
  return is_none(given) ? TunedSource() : read_tuned(given, true);
}

const TunedSource& read_source_in_use() {
  TunedSources& all = sources();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const TunedSource& kept = all.read.emplace_back(source_in_use());
  all.last.store(&kept, std::memory_order_release);
  return kept;
}

}  // namespace

const TunedSource& tuned_source() {
  const TunedSource* const known = sources().last.load(std::memory_order_acquire);
  return known != nullptr ? *known : read_source_in_use();
}

void reread_tuned() { read_source_in_use(); }

const TunedSchedules& tuned_schedules() {
  const TunedSource& source = tuned_source();
  if (source.named && !source.schedules) {
    throw argument_error(
        fmt::format("ROOFLANE_TUNED: '{}': {}", source.file.string(), source.problem));
  }
  return source.schedules ? *source.schedules : no_tuned_schedules();
}

}  // namespace rooflane
