// Opening CBLAS libraries: the default one, files that are none, and the choice of a core type.
// Numbers are right for every variant elsewhere (kernel tests); here only that calls arrive.
#include "backends/cblas.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/error.hpp"

namespace fs = std::filesystem;
using namespace rooflane;

namespace {

// A folder of its own that is removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "rooflane-cblas-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

void write(const std::string& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

std::string read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void check_refused(const std::string& path, const std::string& why) {
  INFO("path ", path);
  try {
    cblas::open(path);
    FAIL("was opened");
  } catch (const Error& error) {
    const std::string message = error.what();
    CHECK(error.kind() == ErrorKind::argument);
    CHECK(message.find("'" + path + "'") != std::string::npos);
    CHECK(message.find("cblas_sgemm") != std::string::npos);
    CHECK_MESSAGE(message.find(why) != std::string::npos, message);
    CHECK(message.find('\n') == std::string::npos);
  }
}

// The one file that the cache of `folder` holds.
std::string cache_file(const Folder& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder / "rooflane")) {
    files.push_back(entry.path().string());
  }
  REQUIRE(files.size() == 1);
  return files[0];
}

// A shared library that is not a CBLAS: the C library.
std::string other_library() {
  Dl_info where{};
  REQUIRE(dladdr(reinterpret_cast<void*>(&getpid), &where) != 0);
  return where.dli_fname;
}

}  // namespace

TEST_CASE("the default library computes with one and with two threads") {
  const auto library = cblas::open("");
  INFO(library->description);
  for (const int threads : {1, 2}) {
    library->set_num_threads(threads);
    const std::array<float, 6> a = {1, 2, 3, 4, 5, 6};  // [2,3]
    const std::array<float, 3> x = {1, 10, 100};
    std::array<float, 4> c = {-1, -1, -1, -1};  // a·aᵀ
    library->sgemm(cblas::row_major, cblas::no_trans, cblas::trans, 2, 2, 3, 1, a.data(), 3,
                   a.data(), 3, 0, c.data(), 2);
    CHECK(c == std::array<float, 4>{14, 32, 32, 77});
    std::array<float, 2> y = {1, 1};
    library->sgemv(cblas::row_major, cblas::no_trans, 2, 3, 2, a.data(), 3, x.data(), 1, 1,
                   y.data(), 1);
    CHECK(y == std::array<float, 2>{643, 1309});
    CHECK(library->sdot(3, a.data(), 1, x.data(), 1) == 321);
    CHECK(library->sasum(3, x.data(), 1) == 111);
    std::array<float, 3> z{};
    library->scopy(3, x.data(), 1, z.data(), 1);
    library->sscal(3, 2, z.data(), 1);
    library->saxpy(3, -1, x.data(), 1, z.data(), 1);
    CHECK(z == x);
  }
}

TEST_CASE("the description has name, version and core type, and a path is opened once") {
  const auto library = cblas::open("");
  CHECK(library->description.starts_with("OpenBLAS 0."));
  CHECK(std::count(library->description.begin(), library->description.end(), ' ') == 2);
  CHECK(fs::exists(library->path));
  CHECK(cblas::open("") == library);
  CHECK((cblas::open(library->path)->sgemm == library->sgemm));
  CHECK_FALSE(cblas::absent_reason(""));
}

TEST_CASE("a file that is no CBLAS is an argument error that names it") {
  const Folder folder;
  check_refused(folder / "absent.so", "is no file");
  check_refused("/", "is no file");
  write(folder / "empty.so", "");
  check_refused(folder / "empty.so", "is no 64-bit ELF file");
  write(folder / "text.so", "not a library\n");
  check_refused(folder / "text.so", "is no 64-bit ELF file");
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  check_refused(folder / "pipe", "is no file");
  const std::string whole = read(cblas::open("")->path);
  write(folder / "half.so", whole.substr(0, whole.size() / 2));
  check_refused(folder / "half.so", "is truncated");
  write(folder / "head.so", whole.substr(0, 70));
  check_refused(folder / "head.so", "is truncated");
  check_refused(other_library(), "lacks cblas_sgemm");
}

TEST_CASE("a CBLAS with 64-bit integers is refused, whatever its names promise") {
  check_refused(FIXTURES_DIR "/cblas_ilp64.so", "has 64-bit integers");
}

TEST_CASE("the best core type is a name that the library takes, and it is kept on disk") {
  const Folder cache;
  setenv("XDG_CACHE_HOME", (cache / "").c_str(), 1);
  const auto first = cblas::best_environment("");
  REQUIRE(first.size() == 1);
  CHECK(first[0].first == "OPENBLAS_CORETYPE");
  const std::string file = cache_file(cache);
  const std::string entry = read(file);
  CHECK(entry.ends_with("\n" + first[0].second + "\nend\n"));

  // Answers come from the file: one that was changed by hand comes back unchanged.
  std::string changed = entry;
  changed.replace(entry.size() - first[0].second.size() - 5, first[0].second.size(), "Fromdisk");
  write(file, changed);
  CHECK(cblas::best_environment("")[0].second == "Fromdisk");
  // Also for the same library under its own name.
  CHECK(cblas::best_environment(cblas::open("")->path)[0].second == "Fromdisk");

  // Corrupted in any way: measured again and fixed.
  for (const std::string& bad : {std::string(), std::string("rubbish"), std::string(5000, '\0'),
                                 entry.substr(0, entry.size() - 6), "x" + entry}) {
    write(file, bad);
    const auto again = cblas::best_environment("");
    REQUIRE(again.size() == 1);
    CHECK(again[0].second != "Fromdisk");
    CHECK(read(file).ends_with("\nend\n"));
  }
  CHECK(cache_file(cache) == file);  // and no temporary file is left
}

TEST_CASE("the core type is measured although another one is forced on this process") {
  const Folder cache;
  setenv("XDG_CACHE_HOME", (cache / "").c_str(), 1);
  cblas::open("");  // already held: the children must not inherit its core type
  setenv("OPENBLAS_CORETYPE", "Nehalem", 1);
  const auto answer = cblas::best_environment("");
  unsetenv("OPENBLAS_CORETYPE");
  REQUIRE(answer.size() == 1);
#if defined(__x86_64__)
  const bool nehalem_is_slow = __builtin_cpu_supports("avx2");
#else
  const bool nehalem_is_slow = true;  // no core type of this architecture
#endif
  if (nehalem_is_slow) CHECK(answer[0].second != "Nehalem");
}

TEST_CASE("a cache that cannot be written changes nothing") {
  const Folder folder;
  write(folder / "file", "");
  setenv("XDG_CACHE_HOME", (folder / "file").c_str(), 1);
  CHECK(cblas::best_environment("").size() == 1);
}

TEST_CASE("a library that is no OpenBLAS needs no environment") {
  const Folder cache;
  setenv("XDG_CACHE_HOME", (cache / "").c_str(), 1);
  CHECK(cblas::best_environment(other_library()).empty());
  CHECK_THROWS_AS(cblas::best_environment("/nowhere/libblas.so"), Error);
}
