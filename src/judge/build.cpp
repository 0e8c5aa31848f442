// Compiling in the jail. See build.hpp.
#include "judge/build.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/error.hpp"
#include "core/text.hpp"
#include "io/files.hpp"
#include "judge/opencl_table.hpp"
#include "judge/sha256.hpp"
#include "variant_header.hpp"

namespace rooflane::judge {

namespace {

namespace fs = std::filesystem;

// A compiler that takes longer than this in all its steps, or writes more, has been given no
// kernel.
constexpr double build_seconds = 30;
constexpr std::size_t most_library_bytes = std::size_t{256} << 20;
constexpr std::size_t most_message_bytes = 4000;
constexpr std::size_t most_reasons = 12;

std::string extension_of(const std::string& path) { return fs::path(path).extension().string(); }

void write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.flush()) throw unavailable_error(fmt::format("'{}' cannot be written", path));
}

// The first bytes of a file; nothing where there is none. What options of a compiler ran in the
// jail may have left a link to a file outside of it, or a pipe that nobody writes to: those are
// none.
std::string read_if_there(const std::string& path, std::size_t most) {
  const int file = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return {};
  struct stat about = {};
  std::string text;
  if (fstat(file, &about) == 0 && S_ISREG(about.st_mode)) {
    text.resize(std::min(most, static_cast<std::size_t>(about.st_size)));
    std::size_t got = 0;
    for (ssize_t count = 1; count > 0 && got < text.size();
         got += static_cast<std::size_t>(count)) {
      count = std::max<ssize_t>(read(file, text.data() + got, text.size() - got), 0);
    }
    text.resize(got);
  }
  close(file);
  return text;
}

std::vector<std::string> words_of(const std::string& flags) {
  std::vector<std::string> words;
  for (const std::string_view word : split(flags, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

class Builder {
 public:
  Builder(Build& build, jail::Kind kind, const std::string& folder, double cpu_seconds)
      : build_(build) {
    folder_ = folder + "/build";
    fs::create_directory(folder_);
    fs::copy_file(folder + "/" + jail::runner_name, folder_ + "/" + jail::runner_name,
                  fs::copy_options::overwrite_existing);
    // Root compiles as nobody, who must write here.
    if (geteuid() == 0 && kind == jail::Kind::bubblewrap) {
      if (chown(folder_.c_str(), 65534, 65534) != 0) fs::permissions(folder_, fs::perms(0777));
    }
    settings_.kind = kind;
    settings_.folder = folder_;
    settings_.folder_writable = true;
    settings_.compiles = true;
    settings_.environment = {{"PATH", "/usr/local/bin:/usr/bin:/bin"},
                             {"HOME", jail::home_of(kind, folder_)},
                             {"LC_ALL", "C.UTF-8"}};
    settings_.limits = {std::uint64_t{8} << 30, 128, std::uint64_t{256} << 20,
                        static_cast<std::uint64_t>(cpu_seconds)};
    settings_.output_path = folder + "/messages.txt";
  }
  const std::string& folder() const { return folder_; }
  std::string operator/(const std::string& name) const { return folder_ + "/" + name; }

  // False when the step failed; its messages are added.
  bool step(const std::vector<std::string>& command) {
    constexpr int not_found = 127;  // as the runner says it, and shells
    settings_.command = command;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
    const jail::Outcome outcome =
        jail::run(settings_, std::max(1.0, build_seconds - spent.count()));
    std::string said = read_if_there(settings_.output_path, most_message_bytes);
    // Paths of the jail are no help to who reads them.
    for (const std::string& path : {jail::inside(settings_) + "/"}) {
      for (std::size_t at = said.find(path); at != said.npos; at = said.find(path, at)) {
        said.erase(at, path.size());
      }
    }
    build_.messages += said;
    if (build_.messages.size() > most_message_bytes) build_.messages.resize(most_message_bytes);
    if (outcome.timed_out) {
      build_.timed_out = true;
      build_.messages += fmt::format("\nthe compiler was ended after {:g} s\n", build_seconds);
    } else if (outcome.ran_out_of_memory) {
      build_.messages += "\nthe compiler took more than half of the free memory\n";
    } else if (outcome.status == not_found && said.empty()) {
      throw unavailable_error(fmt::format(
          "no compiler: {} is not installed (Debian's packages gcc and g++)", command.front()));
    } else if (outcome.status != 0 && said.empty()) {
      build_.messages +=
          outcome.status > 128
              ? fmt::format("the compiler was ended by {}\n", signal_name(outcome.status - 128))
              : fmt::format("the compiler exited with {}\n", outcome.status);
    }
    return outcome.status == 0;
  }

 private:
  Build& build_;
  std::string folder_;
  jail::Settings settings_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// The lines such as "source.c:5:3: missed: couldn't vectorize loop" that help a reader, each once:
// the loops, and the statement that prevents it, which follows them.
std::vector<std::string> reasons_in(const std::string& text) {
  std::vector<std::string> reasons;
  std::set<std::string> seen;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t missed = line.find("missed:");
    if (missed == line.npos || line.find("not vectorized") == line.npos) continue;
    const std::string_view place = line.substr(0, line.find(": missed"));
    std::string reason = fmt::format("{}: {}", place, line.substr(missed + 8));
    while (reason.ends_with(' ')) reason.pop_back();
    if (reasons.size() < most_reasons && seen.insert(reason).second) reasons.push_back(reason);
  }
  return reasons;
}

}  // namespace

std::string_view name_of(Source::Kind kind) {
  return kind == Source::Kind::function ? "function"
         : kind == Source::Kind::table  ? "table"
         : kind == Source::Kind::opencl ? "opencl"
                                        : "library";
}

Source read_source(const std::string& path) {
  Source source;
  source.path = path;
  const std::string extension = extension_of(path);
  const std::vector<std::string> known = {".c", ".cc", ".cpp", ".cxx", ".cl", ".so"};
  if (std::find(known.begin(), known.end(), extension) == known.end()) {
    throw argument_error(fmt::format("'{}': a source ends in {}", path, join(known, ", ")));
  }
  source.text = read_text_file(path);
  source.sha256 = sha256(source.text);
  const bool describes = source.text.find("rooflane_describe") != std::string::npos;
  source.kind = extension == ".so"   ? Source::Kind::library
                : extension == ".cl" ? Source::Kind::opencl
                : describes          ? Source::Kind::table
                                     : Source::Kind::function;
  return source;
}

Build build(const Source& source, const Signature& signature, bool many_threads,
            const std::string& flags, jail::Kind kind, const std::string& folder,
            double cpu_seconds) {
  Build result;
  Builder in(result, kind, folder, cpu_seconds);
  const std::string extension = extension_of(source.path);
  const bool library = source.kind == Source::Kind::library;
  const bool describes = source.text.find("rooflane_describe") != std::string::npos;
  const std::string source_name = library ? "given.so" : "source" + extension;
  write_file(in / source_name, source.text);
  write_file(in / "variant.h", variant_header);
  fs::create_directory(in / "rooflane");
  write_file(in / "rooflane/variant.h", variant_header);
  write_file(in / "signature.h", header_of(signature));
  const bool opencl = source.kind == Source::Kind::opencl;
  write_file(in / "table.c",
             opencl ? opencl_table_of(signature, source.text) : table_of(signature, many_threads));
  if (library && describes) {
    fs::copy_file(in / source_name, folder + "/" + built_library);
    result.good = true;
    return result;
  }
  const bool compiles = !library && !opencl;  // an OpenCL driver does, in a program of its own
  result.compiler = compiles && extension != ".c" ? "c++" : "cc";
  result.flags = compiles ? flags : "";
  std::vector<std::string> libraries, options;
  for (std::string& word : words_of(result.flags)) {
    (word.starts_with("-l") || word.starts_with("-L") ? libraries : options).push_back(word);
  }
  // OpenMP's and POSIX's threads cost nothing where a source does not use them.
  if (source.text.find("#pragma omp") != std::string::npos) options.emplace_back("-fopenmp");
  std::vector<std::string> objects;
  if (compiles) {
    std::vector<std::string> compile = {result.compiler};
    compile.insert(compile.end(), options.begin(), options.end());
    compile.insert(compile.end(), {"-fPIC", "-fvisibility=hidden", "-I.", "-g1",
                                   "-fopt-info-vec-missed=missed.txt"});
    if (!describes) compile.insert(compile.end(), {"-include", "signature.h"});
    compile.insert(compile.end(), {"-c", source_name, "-o", "source.o"});
    if (!in.step(compile)) return result;
    result.not_vectorised = reasons_in(read_if_there(in / "missed.txt", 1 << 20));
    objects.emplace_back("source.o");
  }
  if (opencl && (!in.step({"cc", "-DCOMPILES", "-I.", "table.c", "-o", "compiles", "-lOpenCL"}) ||
                 !in.step({"./compiles"}))) {
    return result;
  }
  if (!describes) {
    if (!in.step({"cc", "-O1", "-fPIC", "-I.", "-c", "table.c", "-o", "table.o"})) return result;
    objects.emplace_back("table.o");
  }
  std::vector<std::string> link = {result.compiler};
  link.insert(link.end(), options.begin(), options.end());
  link.insert(link.end(), {"-shared", "-Wl,-z,defs", "-o", "linked.so"});
  link.insert(link.end(), objects.begin(), objects.end());
  if (library) link.insert(link.end(), {"./given.so", "-Wl,-rpath,$ORIGIN"});
  link.insert(link.end(), libraries.begin(), libraries.end());
  if (opencl) link.emplace_back("-lOpenCL");
  link.insert(link.end(), {"-lm", "-lpthread", "-ldl"});
  if (!in.step(link)) return result;
  const std::string linked = read_if_there(in / "linked.so", most_library_bytes);
  if (linked.empty()) {
    result.messages += "the linker left no library\n";
    return result;
  }
  write_file(folder + "/" + built_library, linked);
  if (library) write_file(folder + "/given.so", source.text);
  result.good = true;
  return result;
}

}  // namespace rooflane::judge
