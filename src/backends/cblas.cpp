// Opening a CBLAS library with dlopen and reading what it is: OpenBLAS, MKL, BLIS or another.
// Which core type OpenBLAS should run at is measured in cblas_environment.cpp.
#include "backends/cblas.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>
#include <type_traits>

#include "backends/cblas_load.hpp"
#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane::cblas {
namespace {

namespace fs = std::filesystem;

// The OpenMP build first: it shares one pool of threads with everything else in the process.
std::vector<std::string> default_files() {
  const std::string debian = fmt::format("/usr/lib/{}/", multiarch);
  return {debian + "openblas-openmp/libopenblas.so.0",  // Debian 12, 13, Ubuntu 24.04
          debian + "libopenblas.so.0",                  // whichever build the alternatives chose
          "/usr/lib64/libopenblaso.so.0",               // Fedora's OpenMP build
          "/usr/lib64/libopenblas.so.0",
          "/usr/lib/libopenblas.so.0",
          "/usr/local/lib/libopenblas.so.0"};
}

Error no_cblas(const std::string& name, const std::string& why) {
  return argument_error(
      fmt::format("BLAS library '{}': {}; want a shared library with cblas_sgemm or "
                  "scipy_cblas_sgemm and 32-bit "
                  "integers",
                  name, why));
}

// dlopen of a file cut short dies by SIGBUS, so look at it first. Nothing when it may be opened.
std::optional<std::string> elf_defect(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return "cannot be read";
  const std::uint64_t size = fs::file_size(file);
  Elf64_Ehdr header{};
  if (!in.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
    return "is no 64-bit ELF file";
  }
  if (header.e_type != ET_DYN || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return "is no shared library";
  }
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    in.seekg(static_cast<std::streamoff>(header.e_phoff + i * sizeof segment));
    if (!in.read(reinterpret_cast<char*>(&segment), sizeof segment) || segment.p_filesz > size ||
        segment.p_offset > size - segment.p_filesz) {
      return "is truncated";
    }
  }
  return std::nullopt;
}

// An open library and the prefix of its names ("" or "scipy_").
struct Symbols {
  void* handle = nullptr;
  std::string prefix;

  // The function NAME, with the library's prefix or without; null when there is none.
  template <class Function>
  Function* find(const std::string& name) const {
    void* symbol = dlsym(handle, (prefix + name).c_str());
    if (symbol == nullptr) symbol = dlsym(handle, name.c_str());
    return reinterpret_cast<Function*>(symbol);
  }

  template <class Function>
  void require(Function*& function, const char* symbol, const std::string& name) const {
    function = find<Function>(symbol);
    if (function == nullptr) throw no_cblas(name, fmt::format("lacks {}", symbol));
  }
};

// OpenBLAS maps a buffer for each thread while it is loaded, and where `ulimit -v` leaves no room
// it tries again forever.
void require_addresses(const std::string& name) {
  constexpr std::size_t buffer = std::size_t{128} << 20;  // its BUFFER_SIZE on 64-bit machines
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const char* given = std::getenv("OMP_NUM_THREADS");
  const auto threads = given != nullptr ? parse_integer(given) : std::nullopt;
  const std::int64_t buffers =
      1 + std::max<std::int64_t>(1, threads.value_or(std::thread::hardware_concurrency()));
  const std::size_t bytes = static_cast<std::size_t>(buffers) * buffer;
  void* room = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    throw unavailable_error(fmt::format(
        "'{}' is not opened: a BLAS library may need {} MiB of addresses, and ulimit -v allows "
        "this process {} in all",
        name, bytes >> 20, limit.rlim_cur >> 20));
  }
  munmap(room, bytes);
}

// Whether the library takes 64-bit integers under the names that promise 32 bits (ILP64 builds).
// The stride 0xFFFFFFFF is -1 in 32 bits and runs backwards from x[1], and is 16 GiB ahead in 64
// bits: there lies reserved memory full of zeros. False where so much address space is not granted.
bool has_64_bit_integers(const Symbols& symbols) {
  constexpr std::int64_t stride = 0xFFFFFFFF;
  constexpr std::size_t before = 64;  // floats in front of x; a library may look there too
  constexpr std::size_t bytes = (before + 2 + stride) * sizeof(float);
  void* reserved = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return false;
  float* x = static_cast<float*>(reserved) + before;
  x[-1] = 5;
  x[0] = 2;
  x[1] = 3;
  const std::array<float, 2> y = {1, 10};
  const float dot =
      symbols.find<float(std::int64_t, const float*, std::int64_t, const float*, std::int64_t)>(
          "cblas_sdot")(2, x, stride, y.data(), 1);
  munmap(reserved, bytes);
  return dot == 1 * 2 + 10 * 0;  // 32 bits: 1·3 + 10·2
}

// Fills in what identifies OpenBLAS; false when it is another library.
bool describe_openblas(const Symbols& symbols, Library& library) {
  auto* config = symbols.find<char*()>("openblas_get_config");
  auto* core = symbols.find<char*()>("openblas_get_corename");
  auto* threads = symbols.find<void(int)>("openblas_set_num_threads");
  if (config == nullptr || core == nullptr || threads == nullptr) return false;
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY USE_OPENMP SkylakeX MAX_THREADS=128"
  const std::string text = config();
  const std::vector<std::string_view> words = split(text, ' ');
  const bool versioned = words.size() >= 2 && words[0] == "OpenBLAS";
  library.description =
      fmt::format("OpenBLAS {}{}", versioned ? std::string(words[1]) + " " : "", core());
  library.set_num_threads = threads;
  return true;
}

// The functions of a product in MKL's other formats, named after it.
template <class Family>
void find_family(const Symbols& symbols, const std::string& name, Family& family) {
  const auto find = [&]<class Function>(const char* suffix, Function*& function) {
    function = symbols.find<Function>(name + suffix);
  };
  find("", family.multiply);
  find("_pack_get_size", family.pack_get_size);
  find("_pack", family.pack);
  find("_compute", family.compute);
}

bool describe_mkl(const Symbols& symbols, Library& library) {
  // The names with capitals are MKL's C interface; those in lower case may be Fortran's.
  auto* version = symbols.find<void(char*, int)>("MKL_Get_Version_String");
  auto* threads = symbols.find<void(int)>("MKL_Set_Num_Threads");
  if (version == nullptr || threads == nullptr) return false;
  // "Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build ..."
  std::array<char, 200> text{};
  version(text.data(), static_cast<int>(text.size()) - 1);
  const std::string_view all = text.data();
  const std::string_view marker = "Version ";
  const auto at = all.find(marker);
  std::string_view number = at == std::string_view::npos ? "" : all.substr(at + marker.size());
  number = number.substr(0, number.find_first_of("- "));
  library.description = number.empty() ? "MKL" : fmt::format("MKL {}", number);
  library.set_num_threads = threads;
  library.sgemm_pack_get_size =
      symbols.find<std::size_t(int, int, int, int)>("cblas_sgemm_pack_get_size");
  library.sgemm_pack =
      symbols.find<std::remove_pointer_t<decltype(library.sgemm_pack)>>("cblas_sgemm_pack");
  library.sgemm_compute =
      symbols.find<std::remove_pointer_t<decltype(library.sgemm_compute)>>("cblas_sgemm_compute");
  find_family(symbols, "cblas_gemm_bf16bf16f32", library.bf16);
  find_family(symbols, "cblas_gemm_s8u8s32", library.integers);
  return true;
}

bool describe_blis(const Symbols& symbols, Library& library) {
  auto* version = symbols.find<const char*()>("bli_info_get_version_str");
  if (version == nullptr) return false;
  library.description = fmt::format("BLIS {}", version());
  auto* arch = symbols.find<int()>("bli_arch_query_id");
  auto* arch_name = symbols.find<const char*(int)>("bli_arch_string");
  if (arch != nullptr && arch_name != nullptr) {
    library.description += fmt::format(" {}", arch_name(arch()));
  }
  auto* threads = symbols.find<void(std::int64_t)>("bli_thread_set_num_threads");
  if (threads != nullptr) {
    library.set_num_threads = [threads](int count) { threads(count); };
  }
  return true;
}

}  // namespace

std::string library_file(const std::string& path) {
  std::error_code ignored;
  if (!path.empty()) {
    if (!fs::is_regular_file(path, ignored)) throw no_cblas(path, "is no file");
    return fs::absolute(path).string();
  }
  for (const std::string& file : default_files()) {
    if (fs::is_regular_file(file, ignored)) return file;
  }
  throw unavailable_error(
      fmt::format("no OpenBLAS found (looked for {}); install libopenblas0-openmp or name a CBLAS "
                  "library with --blas PATH",
                  join(default_files(), ", ")));
}

std::shared_ptr<const Library> load(const std::string& file, const std::string& name) {
  if (const auto defect = elf_defect(file)) throw no_cblas(name, *defect);
  require_addresses(name);
  Symbols symbols;
  symbols.handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (symbols.handle == nullptr)
    throw no_cblas(name, fmt::format("cannot be opened ({})", dlerror()));
  // Never closed again: libraries with threads of their own do not survive dlclose.
  if (symbols.find<void()>("cblas_sgemm") == nullptr) symbols.prefix = "scipy_";

  auto library = std::make_shared<Library>();
  symbols.require(library->sgemm, "cblas_sgemm", name);
  symbols.require(library->sgemv, "cblas_sgemv", name);
  symbols.require(library->sdot, "cblas_sdot", name);
  symbols.require(library->sasum, "cblas_sasum", name);
  symbols.require(library->sscal, "cblas_sscal", name);
  symbols.require(library->saxpy, "cblas_saxpy", name);
  symbols.require(library->scopy, "cblas_scopy", name);
  if (has_64_bit_integers(symbols)) throw no_cblas(name, "has 64-bit integers");
  library->set_num_threads = [](int) {};
  library->path = file;
  library->description = fmt::format("CBLAS {}", fs::path(name).filename().string());
  if (!describe_openblas(symbols, *library) && !describe_mkl(symbols, *library)) {
    describe_blis(symbols, *library);
  }
  return library;
}

std::shared_ptr<const Library> open(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Library>> opened;
  const std::scoped_lock lock(mutex);
  auto& library = opened[path];
  if (!library) {
    const std::string file = library_file(path);
    library = load(file, path.empty() ? file : path);
  }
  return library;
}

std::optional<std::string> absent_reason(const std::string& path) {
  try {
    open(path);
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

namespace {

LibraryFacts open_for_facts(const std::string& path) {
  const auto library = open(path);
  return {library->path, library->description};
}

constexpr Libraries libraries = {.open = open_for_facts, .best_environment = best_environment};

}  // namespace

// A library may have a pool of its own.
const Backend backend = {.name = "cblas",
                         .absent_reason = absent_reason,
                         .libraries = &libraries,
                         .foreign_threads = true};

std::optional<std::string> unsupported_anywhere(const Problem&, const Environment& env) {
  return absent_reason(env.library);
}

}  // namespace rooflane::cblas
