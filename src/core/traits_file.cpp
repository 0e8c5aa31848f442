// Traits as text, and the file that keeps them. See traits.hpp.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>
#include <system_error>
#include <vector>

#include "core/cache_folder.hpp"
#include "core/error.hpp"
#include "core/seeds.hpp"
#include "core/text.hpp"
#include "core/traits.hpp"

namespace rooflane {
namespace {

namespace fs = std::filesystem;

// The first line names the format, the last one says that nothing was cut off.
constexpr const char* first_line = "rooflane-traits 1";
constexpr const char* last_line = "end";

// What older files lack, and what they get.
struct Optional {
  const char* key;
  double Traits::*value;
  double usual;
};
constexpr Optional optional_fields[] = {{"jitter", &Traits::jitter, 0.01},
                                        {"pages", &Traits::pages, 1536},
                                        {"page_walk", &Traits::page_walk, 4e-9}};

// Rates that older files lack: 0 stands for what was not measured.
constexpr const char* optional_rates[] = {"one.copy", "many.copy"};

// Constants that were not learned are not in the file: they are those of the program that reads it.
bool is_constant(std::string_view key) {
  ModelConstants constants;
  const std::vector<NamedConstant> all = named_constants(constants);
  return std::any_of(all.begin(), all.end(), [&](const auto& c) { return c.name == key; });
}

// Every number of a file with one or more values under a key; print and parse both walk this.
struct Field {
  std::string key;
  double* values;
  int count;
  double least;  // smallest value allowed
};

std::vector<Field> rate_fields(const std::string& who, Traits::Rates& rates) {
  return {{who + ".read", rates.read, levels, 1},
          {who + ".write", rates.write, levels, 1},
          {who + ".stream", &rates.stream, 1, 1},
          {who + ".copy", rates.copy, copies, 0}};
}

std::vector<Field> fields_of(Traits& traits) {
  std::vector<Field> fields = rate_fields("one", traits.one);
  for (const Field& field : rate_fields("many", traits.many)) fields.push_back(field);
  fields.push_back({"transpose", &traits.transpose, 1, 1});
  fields.push_back({"region", &traits.region, 1, 0});
  fields.push_back({"task", &traits.task, 1, 0});
  for (const Optional& field : optional_fields) {
    fields.push_back({field.key, &(traits.*field.value), 1, 0});
  }
  for (const NamedConstant& constant : named_constants(traits.constants)) {
    fields.push_back({constant.name, constant.value, 1, constant.least});
  }
  return fields;
}

struct Size {
  const char* key;
  std::int64_t* value;
};

std::vector<Size> sizes_of(Traits& traits) {
  return {{"l1_bytes", &traits.l1_bytes},
          {"l2_bytes", &traits.l2_bytes},
          {"l3_bytes", &traits.l3_bytes}};
}

constexpr int most_threads = 1 << 16;
constexpr std::int64_t most_bytes = std::int64_t{1} << 50;

double parse_value(const std::string& where, std::string_view word, double least) {
  const std::optional<double> value = parse_real(word);
  if (!value || !std::isfinite(*value) || *value < least) {
    throw argument_error(fmt::format("{} '{}': a number of at least {}", where, word, least));
  }
  return *value;
}

std::int64_t parse_count(const std::string& where, std::string_view word, std::int64_t most) {
  const std::optional<std::int64_t> count = parse_integer(word);
  if (!count || *count < 1 || *count > most) {
    throw argument_error(fmt::format("{} '{}': a whole number from 1 to {}", where, word, most));
  }
  return *count;
}

// One line's words after its key, read into what the key stands for.
class Reader {
 public:
  explicit Reader(MeasuredTraits& out) : out_(out) {
    for (const Optional& field : optional_fields) out.at_isa.*field.value = field.usual;
    for (const Size& size : sizes_of(out.at_isa)) {
      add(size.key, 1, [size](const std::string& where, const auto& words) {
        *size.value = parse_count(where, words[0], most_bytes);
      });
    }
    add("threads", 1, [this](const std::string& where, const auto& words) {
      out_.at_isa.threads = static_cast<int>(parse_count(where, words[0], most_threads));
    });
    for (const Field& field : fields_of(out.at_isa)) {
      add(field.key, field.count, [field](const std::string& where, const auto& words) {
        for (int i = 0; i < field.count; ++i) {
          field.values[i] = parse_value(where, words[static_cast<std::size_t>(i)], field.least);
        }
      });
    }
  }

  void read(const std::string& where, std::string_view key, std::string_view rest) {
    if (!seen_.insert(std::string(key)).second && key != "fma" && key != "unit") {
      throw argument_error(fmt::format("{}: '{}' stands twice", where, key));
    }
    if (key == "machine") {
      out_.machine = rest;
    } else if (key == "date") {
      out_.date = rest;
    } else if (key == "isa") {
      out_.isa = rest;
    } else if (key == "fma") {
      read_peak(where, "fma takes an ISA target", split(rest, ' '), out_.fma);
    } else if (key == "unit") {
      read_peak(where, "unit takes an instruction", split(rest, ' '), out_.at_isa.units);
    } else {
      read_numbers(where, key, split(rest, ' '));
    }
  }

  void finish() {
    std::vector<std::string> missing;
    for (const char* key : {"machine", "date", "isa", "fma"}) {
      if (!seen_.contains(key)) missing.emplace_back(key);
    }
    for (const auto& [key, entry] : numbers_) {
      const bool optional = std::any_of(std::begin(optional_fields), std::end(optional_fields),
                                        [&](const Optional& field) { return key == field.key; }) ||
                            std::find(std::begin(optional_rates), std::end(optional_rates), key) !=
                                std::end(optional_rates);
      if (!seen_.contains(key) && !optional && !is_constant(key)) missing.push_back(key);
    }
    if (!missing.empty()) throw argument_error("missing: " + join(missing, ", "));
    const auto peak = out_.fma.find(out_.isa);
    if (peak == out_.fma.end()) throw argument_error("missing: fma " + out_.isa);
    out_.at_isa.one.fma = peak->second.one;
    out_.at_isa.many.fma = peak->second.many;
  }

 private:
  using Words = std::vector<std::string_view>;
  struct Entry {
    int count;
    std::function<void(const std::string& where, const Words& words)> read;
  };

  void add(const std::string& key, int count,
           std::function<void(const std::string& where, const Words& words)> read) {
    numbers_[key] = {count, std::move(read)};
  }

  static void read_peak(const std::string& where, const char* takes, const Words& words,
                        std::map<std::string, Traits::Peak>& peaks) {
    if (words.size() != 3) {
      throw argument_error(fmt::format("{}: {} and two numbers", where, takes));
    }
    const std::string what = fmt::format("{}: {}", where, words[0]);
    peaks[std::string(words[0])] = {parse_value(what, words[1], 1), parse_value(what, words[2], 1)};
  }

  void read_numbers(const std::string& where, std::string_view key, const Words& words) {
    const auto entry = numbers_.find(std::string(key));
    if (entry == numbers_.end()) {
      std::vector<std::string> keys = {"machine", "date", "isa", "fma", "unit"};
      for (const auto& [name, ignored] : numbers_) keys.push_back(name);
      throw argument_error(where + ": " + unknown_name("key", key, keys));
    }
    if (static_cast<int>(words.size()) != entry->second.count) {
      throw argument_error(fmt::format("{}: {} takes {} numbers", where, key, entry->second.count));
    }
    entry->second.read(fmt::format("{}: {}", where, key), words);
  }

  MeasuredTraits& out_;
  std::map<std::string, Entry> numbers_;
  std::set<std::string> seen_;
};

}  // namespace

std::string print_traits(const MeasuredTraits& measured) {
  Traits traits = measured.at_isa;
  std::string text = fmt::format("{}\nmachine {}\ndate {}\nisa {}\nthreads {}\n", first_line,
                                 measured.machine, measured.date, measured.isa, traits.threads);
  const auto print_peaks = [&](const char* key, const std::map<std::string, Traits::Peak>& peaks) {
    for (const auto& [name, peak] : peaks) {
      text += fmt::format("{} {} {} {}\n", key, name, print_real(peak.one), print_real(peak.many));
    }
  };
  print_peaks("fma", measured.fma);
  print_peaks("unit", traits.units);
  for (const Size& size : sizes_of(traits)) text += fmt::format("{} {}\n", size.key, *size.value);
  const bool learned = !(traits.constants == ModelConstants());
  for (const Field& field : fields_of(traits)) {
    if (is_constant(field.key) && !learned) continue;
    text += field.key;
    for (int i = 0; i < field.count; ++i) text += " " + print_real(field.values[i]);
    text += "\n";
  }
  return text + last_line + "\n";
}

MeasuredTraits parse_traits(std::string_view text) {
  std::vector<std::string_view> lines = split(text, '\n');
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.empty() || lines.front() != first_line) {
    throw argument_error(fmt::format("line 1: '{}' expected", first_line));
  }
  if (lines.back() != last_line) {
    throw argument_error(fmt::format("cut off: the last line is not '{}'", last_line));
  }
  MeasuredTraits measured;
  Reader reader(measured);
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    const std::string where = fmt::format("line {}", i + 1);
    const std::size_t space = lines[i].find(' ');
    const std::string_view rest =
        space == std::string_view::npos ? std::string_view() : lines[i].substr(space + 1);
    reader.read(where, lines[i].substr(0, space), rest);
  }
  reader.finish();
  return measured;
}

std::string machine_key(const Machine& machine) {
  return fmt::format("{}, L1d {}, L2 {}, L3 {}, {} CPUs", machine.cpu, machine.l1d_bytes,
                     machine.l2_bytes, machine.l3_bytes, machine.all_cpus);
}

fs::path traits_file() {
  if (const char* given = std::getenv("ROOFLANE_TRAITS"); given != nullptr) {
    return std::string_view(given) == "none" ? fs::path() : fs::path(given);
  }
  const fs::path folder = cache_folder();
  if (folder.empty()) return {};
  return folder / fmt::format("traits-{:016x}", fnv1a64(machine_key(machine())));
}

TraitsSource read_traits(const fs::path& file) {
  TraitsSource source{file, std::nullopt, ""};
  std::error_code failed;
  if (file.empty() || !fs::exists(file, failed)) return source;
  std::ifstream in(file, std::ios::binary);
  if (!in || fs::is_directory(file, failed)) {
    source.problem = "cannot be read";
    return source;
  }
  std::ostringstream text;
  text << in.rdbuf();
  try {
    MeasuredTraits measured = parse_traits(text.str());
    if (measured.machine != machine_key(machine())) {
      source.problem = fmt::format("measured on another machine ({})", measured.machine);
    } else {
      source.measured = std::move(measured);
    }
  } catch (const Error& error) {
    source.problem = error.what();
  }
  return source;
}

const TraitsSource& traits_source() {
  static const TraitsSource source = read_traits(traits_file());
  return source;
}

void write_traits(const fs::path& file, const MeasuredTraits& measured) {
  std::error_code failed;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), failed);
  const fs::path fresh = fmt::format("{}.{}", file.string(), getpid());
  int why = failed.value();
  {
    errno = 0;
    std::ofstream out(fresh);
    out << print_traits(measured);
    if (out.flush()) {
      fs::rename(fresh, file, failed);
      if (!failed) return;
      errno = failed.value();
    }
    if (why == 0) why = errno;
  }
  fs::remove(fresh, failed);
  throw argument_error(
      fmt::format("traits: {} cannot be written: {}", file.string(), std::strerror(why)));
}

}  // namespace rooflane
