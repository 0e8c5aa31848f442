// The files of the program cache. See opencl_programs.hpp.
#include "backends/opencl_programs.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/cache_folder.hpp"
#include "core/seeds.hpp"
#include "core/text.hpp"

namespace rooflane::opencl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view mark = "rooflane program 1\n";
constexpr std::string_view extension = ".program";
// Some 1000 programs of NVIDIA's size (PTX, 50 to 250 KB).
constexpr std::size_t usual_most_bytes = std::size_t{128} << 20;
// A file that is still being written after this long belongs to a process that died.
constexpr auto abandoned = std::chrono::hours(1);

void append_number(std::string& text, std::uint64_t number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  text.append(bytes, sizeof bytes);
}

std::optional<std::uint64_t> take_number(std::string_view& text) {
  std::uint64_t number = 0;
  if (text.size() < sizeof number) return std::nullopt;
  std::memcpy(&number, text.data(), sizeof number);
  text.remove_prefix(sizeof number);
  return number;
}

// A number and that many bytes.
std::optional<std::string_view> take_piece(std::string_view& text) {
  const auto length = take_number(text);
  if (!length || *length > text.size()) return std::nullopt;
  const std::string_view piece = text.substr(0, *length);
  text.remove_prefix(*length);
  return piece;
}

std::optional<std::string> contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

// False when it cannot be written in full; nothing is left then.
bool write_whole(const fs::path& file, std::string_view text) {
  // Two threads may write at once, hence the counter.
  static std::atomic<unsigned> counter{0};
  const fs::path fresh = fmt::format("{}.{}.{}", file.string(), getpid(), counter++);
  std::error_code failed;
  {
    std::ofstream out(fresh, std::ios::binary);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.close();
    if (!out) {
      fs::remove(fresh, failed);
      return false;
    }
  }
  fs::rename(fresh, file, failed);
  if (!failed) return true;
  std::error_code ignored;
  fs::remove(fresh, ignored);
  return false;
}

struct Entry {
  fs::path file;
  fs::file_time_type used;
  std::size_t bytes;
};

std::vector<Entry> entries_of(const fs::path& folder) {
  std::vector<Entry> entries;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code gone;  // another process may remove it meanwhile
    const auto used = fs::last_write_time(at->path(), gone);
    const auto bytes = gone ? 0 : fs::file_size(at->path(), gone);
    if (!gone) entries.push_back({at->path(), used, bytes});
  }
  return entries;
}

bool is_program(const Entry& entry) { return entry.file.extension() == extension; }

// Under the name that write_whole gives a program before it is complete.
bool is_unfinished(const Entry& entry) {
  return entry.file.filename().string().find(fmt::format("{}.", extension)) != std::string::npos;
}

}  // namespace

ProgramCache::ProgramCache(fs::path folder, std::size_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {}

const ProgramCache* ProgramCache::of_user() {
  static const std::optional<ProgramCache> cache = []() -> std::optional<ProgramCache> {
    if (const char* named = std::getenv("ROOFLANE_PROGRAM_CACHE")) {
      if (*named == '\0') return std::nullopt;
      return ProgramCache(named, usual_most_bytes);
    }
    const fs::path folder = cache_folder();
    if (folder.empty()) return std::nullopt;
    return ProgramCache(folder / "programs", usual_most_bytes);
  }();
  return cache ? &*cache : nullptr;
}

bool ProgramCache::is_asked_for() { return std::getenv("ROOFLANE_PROGRAM_CACHE") != nullptr; }

fs::path ProgramCache::file_of(std::string_view key) const {
  return folder_ / fmt::format("{:016x}{}", fnv1a64(key), extension);
}

std::optional<std::string> ProgramCache::read(std::string_view key) const {
  const fs::path file = file_of(key);
  const std::optional<std::string> text = contents(file);
  if (!text || !text->starts_with(mark)) return std::nullopt;
  std::string_view rest = *text;
  rest.remove_prefix(mark.size());
  const auto held_key = take_piece(rest);
  const auto hash = take_number(rest);
  const auto program = take_piece(rest);
  // A driver may die of a damaged program: PoCL 3.1 does.
  if (!held_key || *held_key != key || !hash || !program || !rest.empty() ||
      fnv1a64(*program) != *hash) {
    return std::nullopt;
  }
  std::error_code ignored;
  fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);
  return std::string(*program);
}

void ProgramCache::write(std::string_view key, std::string_view program) const {
  std::string text(mark);
  append_number(text, key.size());
  text += key;
  append_number(text, fnv1a64(program));
  append_number(text, program.size());
  text += program;
  if (text.size() > most_bytes_) return;
  std::error_code failed;
  // Drivers execute what lies here: nobody else may write it.
  if (fs::create_directories(folder_, failed)) {
    fs::permissions(folder_, fs::perms::owner_all, failed);
  }
  if (failed) return;
  evict_oldest(text.size());
  write_whole(file_of(key), text);
}

void ProgramCache::remove(std::string_view key) const {
  std::error_code ignored;
  fs::remove(file_of(key), ignored);
}

void ProgramCache::evict_oldest(std::size_t room) const {
  std::vector<Entry> entries = entries_of(folder_);
  std::size_t held = room;
  std::error_code ignored;
  for (const Entry& entry : entries) {
    if (is_program(entry)) {
      held += entry.bytes;
    } else if (is_unfinished(entry) && fs::file_time_type::clock::now() - entry.used > abandoned) {
      fs::remove(entry.file, ignored);
    }
  }
  std::erase_if(entries, [](const Entry& entry) { return !is_program(entry); });
  std::sort(entries.begin(), entries.end(),
            [](const Entry& x, const Entry& y) { return x.used < y.used; });
  for (const Entry& entry : entries) {
    if (held <= most_bytes_) return;
    fs::remove(entry.file, ignored);
    held -= entry.bytes;
  }
}

std::string ProgramCache::state() const {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  std::string why = failed ? failed.message() : "";
  if (!failed) {
    const fs::path trial = folder_ / "trial";
    if (write_whole(trial, mark)) {
      fs::remove(trial, failed);
    } else {
      why = "a file in it cannot be written";
    }
  }
  if (!why.empty()) {
    return fmt::format("{}: {}; programs are built anew in every process", folder_.string(), why);
  }
  std::size_t count = 0;
  std::size_t bytes = 0;
  for (const Entry& entry : entries_of(folder_)) {
    if (!is_program(entry)) continue;
    ++count;
    bytes += entry.bytes;
  }
  return fmt::format("{}: {} program{}, {}", folder_.string(), count, count == 1 ? "" : "s",
                     print_bytes(bytes));
}

}  // namespace rooflane::opencl
