// The cache of OpenCL programs on disk: what is kept, what is refused, what goes first, and that a
// context builds right programs whatever its files hold.
#include "backends/opencl_programs.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "backends/opencl.hpp"
#include "core/temporary_folder.hpp"
#include "opencl_device.hpp"

using namespace rooflane;
using opencl::ProgramCache;
using test::has_device;

namespace {

namespace fs = std::filesystem;

constexpr std::size_t plenty = std::size_t{1} << 30;

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

std::string contents(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

void overwrite(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

void set_age(const fs::path& file, int minutes) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
}

constexpr const char* source = "__kernel void f(__global int* x) { *x = N; }";

// What the kernel of `source` writes with this N.
int answer(opencl::Context& context, const std::string& options) {
  const opencl::DeviceBuffer memory(context, sizeof(int));
  opencl::KernelCall call(context, context.program(source, options), "f");
  call.set_args(context, memory.get());
  const opencl::Queue queue = context.queue(false);
  const std::size_t one = 1;
  int value = 0;
  context.check(
      clEnqueueNDRangeKernel(queue.get(), call.get(), 1, nullptr, &one, &one, 0, nullptr, nullptr),
      "clEnqueueNDRangeKernel");
  context.check(clEnqueueReadBuffer(queue.get(), memory.get(), CL_TRUE, 0, sizeof value, &value, 0,
                                    nullptr, nullptr),
                "clEnqueueReadBuffer");
  return value;
}

}  // namespace

TEST_CASE("a program is found again under its key and under no other") {
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path(), plenty);
  const std::string program("bytes\0of any kind\n", 18);
  CHECK_FALSE(cache.read("key"));
  cache.write("key", program);
  CHECK(cache.read("key") == program);
  CHECK_FALSE(cache.read("kez"));
  CHECK(ProgramCache(folder.path(), plenty).read("key") == program);
  cache.write("key", "another");
  CHECK(cache.read("key") == "another");
  cache.remove("key");
  CHECK_FALSE(cache.read("key"));
}

TEST_CASE("the folder of programs is its user's alone") {
  const TemporaryFolder folder;
  const fs::path programs = folder / "programs";
  ProgramCache(programs, plenty).write("key", "program");
  CHECK(fs::status(programs).permissions() == fs::perms::owner_all);
}

TEST_CASE("a file whose name collides with another key's is not taken for it") {
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path(), plenty);
  cache.write("first", "program");
  const fs::path first = files_in(folder.path()).at(0);
  cache.write("second", "program of second");
  for (const fs::path& file : files_in(folder.path())) {
    if (file != first) fs::copy_file(first, file, fs::copy_options::overwrite_existing);
  }
  CHECK_FALSE(cache.read("second"));
  CHECK(cache.read("first") == "program");
}

TEST_CASE("a file cut short anywhere, lengthened or with any byte changed counts as absent") {
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path(), plenty);
  cache.write("key", "program");
  const fs::path file = files_in(folder.path()).at(0);
  const std::string whole = contents(file);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    overwrite(file, whole.substr(0, length));
    CHECK_FALSE(cache.read("key"));
  }
  overwrite(file, whole + "x");
  CHECK_FALSE(cache.read("key"));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x41);
    overwrite(file, changed);
    CHECK_FALSE(cache.read("key"));
  }
  overwrite(file, whole);
  CHECK(cache.read("key") == "program");
}

TEST_CASE("beyond the bound the programs used longest ago go, and files of others stay") {
  const TemporaryFolder folder;
  const ProgramCache unbounded(folder.path(), plenty);
  const std::string program(1000, 'p');
  overwrite(folder / "notes.txt", "mine");
  set_age(folder / "notes.txt", 1000);
  unbounded.write("a", program);
  const fs::path a = files_in(folder.path()).at(0).extension() == ".txt"
                         ? files_in(folder.path()).at(1)
                         : files_in(folder.path()).at(0);
  const std::size_t each = fs::file_size(a);
  for (const char* key : {"b", "c"}) unbounded.write(key, program);
  for (const fs::path& file : files_in(folder.path())) set_age(file, 100);
  CHECK(unbounded.read("a"));  // now the one used last
  const ProgramCache bounded(folder.path(), 2 * each);
  bounded.write("d", program);
  CHECK(bounded.read("a"));
  CHECK_FALSE(bounded.read("b"));
  CHECK_FALSE(bounded.read("c"));
  CHECK(bounded.read("d"));
  CHECK(contents(folder / "notes.txt") == "mine");
  bounded.write("e", std::string(3 * each, 'p'));
  CHECK_FALSE(bounded.read("e"));
  CHECK(bounded.read("d"));
}

TEST_CASE("what a dead process left half written is cleared away, what is being written is not") {
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path(), plenty);
  overwrite(folder / "0123.program.77.0", "half");
  overwrite(folder / "0123.program.78.0", "half");
  set_age(folder / "0123.program.77.0", 120);
  cache.write("key", "program");
  CHECK_FALSE(fs::exists(folder / "0123.program.77.0"));
  CHECK(fs::exists(folder / "0123.program.78.0"));
}

TEST_CASE("a folder that cannot be made is no error, and the state says so") {
  const TemporaryFolder folder;
  overwrite(folder / "file", "no folder");
  const ProgramCache cache(fs::path(folder / "file") / "programs", plenty);
  cache.write("key", "program");
  CHECK_FALSE(cache.read("key"));
  CHECK(cache.state().find("built anew in every process") != std::string::npos);
  const ProgramCache usable(fs::path(folder / "made") / "programs", plenty);
  usable.write("key", "program");
  CHECK(usable.state().find(": 1 program, ") != std::string::npos);
}

TEST_CASE("threads that write one program at once leave it whole") {
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path(), plenty);
  const std::string program(100'000, 'p');
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      for (int j = 0; j < 20; ++j) {
        cache.write("key", program);
        const auto read = cache.read("key");
        if (read && *read != program) std::abort();
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(cache.read("key") == program);
  CHECK(files_in(folder.path()).size() == 1);
}

TEST_CASE("a second context takes programs from disk, by source and options") {
  if (!has_device()) return;
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path(), plenty);
  const auto first = opencl::Context::fresh(0, &cache);
  CHECK(answer(*first, "-DN=5") == 5);
  CHECK(first->programs_from_cache() == 0);
  CHECK(files_in(folder.path()).size() == 1);
  const auto second = opencl::Context::fresh(0, &cache);
  CHECK(answer(*second, "-DN=5") == 5);
  CHECK(second->programs_from_cache() == 1);
  CHECK(answer(*second, "-DN=6") == 6);
  CHECK(second->programs_from_cache() == 1);
}

TEST_CASE("a truncated or corrupted program is built anew and kept again") {
  if (!has_device()) return;
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path(), plenty);
  CHECK(answer(*opencl::Context::fresh(0, &cache), "-DN=5") == 5);
  const fs::path file = files_in(folder.path()).at(0);
  const std::string whole = contents(file);
  std::string corrupted = whole;
  corrupted[whole.size() / 2] = static_cast<char>(corrupted[whole.size() / 2] ^ 0x41);
  for (const std::string& damaged : {whole.substr(0, whole.size() / 2), std::string(), corrupted}) {
    overwrite(file, damaged);
    const auto context = opencl::Context::fresh(0, &cache);
    CHECK(answer(*context, "-DN=5") == 5);
    CHECK(context->programs_from_cache() == 0);
    const auto next = opencl::Context::fresh(0, &cache);
    CHECK(answer(*next, "-DN=5") == 5);
    CHECK(next->programs_from_cache() == 1);
  }
}

TEST_CASE("a whole file whose program the driver refuses is built anew") {
  if (!has_device()) return;
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path(), plenty);
  CHECK(answer(*opencl::Context::fresh(0, &cache), "-DN=5") == 5);
  // Its key follows the mark, as a length and a text.
  const std::string whole = contents(files_in(folder.path()).at(0));
  const std::size_t mark = whole.find('\n') + 1;
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data() + mark, sizeof length);
  const std::string key = whole.substr(mark + sizeof length, length);
  REQUIRE(cache.read(key));
  CHECK(key.find(opencl::device(0).driver) != std::string::npos);
  CHECK(key.find(opencl::device(0).name) != std::string::npos);
  cache.write(key, "no program of any driver");
  const auto context = opencl::Context::fresh(0, &cache);
  CHECK(answer(*context, "-DN=5") == 5);
  CHECK(context->programs_from_cache() == 0);
}
