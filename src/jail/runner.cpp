// The program in which a judged kernel runs: loads its library and calls it when the doorbell
// rings. It knows nothing of references, times or other kernels, and links to the C library alone,
// so that nothing of Rooflane is mapped beside a stranger's code. Started by jailed_plugin.cpp, in
// the jail of jail.cpp; with `--limits … -- COMMAND` it lays limits on itself and becomes COMMAND
// (the compiler).
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/landlock.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/float_unit.hpp"
#include "jail/runner_protocol.hpp"
#include "rooflane/variant.h"

namespace {

using namespace rooflane;
using namespace rooflane::jail;

void copy_text(char* to, std::size_t bytes, const char* from) {
  std::snprintf(to, bytes, "%s", from != nullptr ? from : "");
}

template <std::size_t N>
void copy_text(char (&to)[N], const char* from) {
  copy_text(to, N, from);
}

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

long futex(std::atomic<std::uint32_t>* word, int op, std::uint32_t value) {
  return syscall(SYS_futex, word, op, value, nullptr, nullptr, 0);
}

// Memory that the measuring process owns, mapped between two guard regions.
constexpr std::size_t guard_bytes = 1 << 16;
void* map_guarded(int descriptor, std::size_t bytes, bool writable) {
  constexpr std::size_t huge = std::size_t{2} << 20;
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t whole = (bytes + page - 1) / page * page;
  auto* const reserved =
      static_cast<char*>(mmap(nullptr, whole + 2 * guard_bytes + huge, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (reserved == MAP_FAILED) return nullptr;
  // Where huge pages may be had, they need this alignment.
  auto place = reinterpret_cast<std::uintptr_t>(reserved) + guard_bytes;
  if (bytes >= huge) place = (place + huge - 1) / huge * huge;
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const mapped = mmap(reinterpret_cast<void*>(place), whole, protection,
                            MAP_SHARED | MAP_FIXED, descriptor, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (bytes >= huge) madvise(mapped, whole, MADV_HUGEPAGE);
  return mapped;
}

struct Runner {
  const rooflane_plugin* plugin = nullptr;
  const rooflane_variant* variant = nullptr;
  void* plan = nullptr;
  Doorbell* bell = nullptr;
  // What the kernel is given: it may keep pointers to these.
  Request request;  // static: a stack need not hold it
  rooflane_param params[most_params];
  rooflane_quantisation quantisations[most_tensors];
  rooflane_tensor tensors[most_tensors];
  void* memory[most_tensors];
  Answer answer;
};

Runner runner;

void fail(const char* text) {
  runner.answer.good = 0;
  copy_text(runner.answer.text, text);
}

const char* last_error() {
  return runner.plugin->last_error != nullptr ? runner.plugin->last_error() : nullptr;
}

void describe_variant(const rooflane_variant& from, VariantMessage& to) {
  copy_text(to.kernel, from.kernel);
  copy_text(to.name, from.name);
  copy_text(to.library, from.library);
  to.many_threads = from.many_threads;
  to.constants = from.constants;
  to.may_refuse = from.unsupported != nullptr ? 1 : 0;
  for (to.dtype_count = 0; from.dtypes != nullptr && from.dtypes[to.dtype_count] != nullptr;) {
    if (to.dtype_count == most_dtypes) return fail("describes too many dtypes");
    copy_text(to.dtypes[to.dtype_count], from.dtypes[to.dtype_count]);
    ++to.dtype_count;
  }
  if (from.tunable_count > most_tunables) return fail("describes too many tunables");
  to.tunable_count = static_cast<std::uint32_t>(from.tunable_count);
  for (std::uint32_t i = 0; i < to.tunable_count; ++i) {
    const rooflane_tunable& tunable = from.tunables[i];
    copy_text(to.tunables[i].name, tunable.name);
    copy_text(to.tunables[i].meaning, tunable.meaning);
    to.tunables[i].least = tunable.least;
    to.tunables[i].most = tunable.most;
    to.tunables[i].value = tunable.value;
  }
  const bool complete = from.plan != nullptr && from.bind != nullptr && from.run != nullptr &&
                        from.destroy != nullptr && from.kernel != nullptr;
  if (!complete)
    fail("describes a variant that lacks its kernel's name, plan, bind, run or destroy");
}

void load() {
  // A library linked with -ffast-math makes denormals zeros when it is loaded.
  const std::uint32_t state = float_unit_state();
  void* const library = dlopen(runner.request.path, RTLD_NOW | RTLD_LOCAL);
  set_float_unit_state(state);
  if (library == nullptr) return fail(dlerror());
  using Describe = const rooflane_plugin* (*)();
  const auto describe = reinterpret_cast<Describe>(dlsym(library, "rooflane_describe"));
  if (describe == nullptr) return fail("is no plugin: it exports no rooflane_describe");
  runner.plugin = describe();
  if (runner.plugin == nullptr || runner.plugin->variants == nullptr) {
    return fail("is no plugin: rooflane_describe returned no variants");
  }
  runner.answer.abi = runner.plugin->abi;
  if (runner.plugin->abi != ROOFLANE_VARIANT_ABI) return;
  if (runner.plugin->variant_count > most_variants) return fail("describes too many variants");
  runner.answer.variant_count = runner.plugin->variant_count;
  for (std::uint32_t i = 0; i < runner.answer.variant_count; ++i) {
    describe_variant(runner.plugin->variants[i], runner.answer.variants[i]);
  }
}

// Tensors of the request in C, over memory that came with it.
rooflane_tensors tensors_of_request() {
  Request& request = runner.request;
  for (std::uint32_t i = 0; i < request.tensor_count; ++i) {
    TensorMessage& from = request.tensors[i];
    rooflane_quantisation& quantisation = runner.quantisations[i];
    quantisation = {from.bits, from.block, from.block_bytes, from.scale,
                    from.zero[0] != '\0' ? from.zero : nullptr};
    rooflane_tensor& to = runner.tensors[i];
    to.name = from.name;
    to.data = from.memory != no_memory
                  ? static_cast<char*>(runner.memory[from.memory]) + from.offset
                  : nullptr;
    to.dtype = from.dtype;
    to.quantisation = from.has_quantisation != 0 ? &quantisation : nullptr;
    to.rank = from.rank;
    std::memcpy(to.shape, from.shape, sizeof to.shape);
    std::memcpy(to.strides, from.strides, sizeof to.strides);
  }
  return {runner.tensors, request.tensor_count};
}

void plan() {
  Request& request = runner.request;
  if (runner.plugin == nullptr || request.variant >= runner.plugin->variant_count) {
    return fail("no such variant");
  }
  runner.variant = &runner.plugin->variants[request.variant];
  for (std::uint32_t i = 0; i < request.param_count; ++i) {
    ParamMessage& param = request.params[i];
    runner.params[i] = {param.name, param.value, param.has_text != 0 ? param.text : nullptr};
  }
  const rooflane_problem problem = {request.kernel, runner.params, request.param_count};
  if (request.op == Op::ask) {
    const auto ask = runner.variant->unsupported;
    const char* const reason = ask != nullptr ? ask(&problem, request.threads) : nullptr;
    if (reason != nullptr) fail(reason);
    return;
  }
  const rooflane_tensors constants = tensors_of_request();
  runner.plan = runner.variant->plan(&problem, request.threads, request.tuning, &constants);
  if (runner.plan == nullptr) fail(last_error());
}

void bind() {
  if (runner.plan == nullptr) return fail("nothing is planned");
  const rooflane_tensors tensors = tensors_of_request();
  if (runner.variant->bind(runner.plan, &tensors) != 0) fail(last_error());
}

// While it lives, this thread stays on the CPU that the caller waits on, unless the kernel chose
// other CPUs for it.
class CallersCpu {
 public:
  explicit CallersCpu(std::int32_t cpu) {
    if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof before_, &before_) != 0)
      return;
    if (!CPU_ISSET(cpu, &before_)) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    moved_ = sched_setaffinity(0, sizeof set, &set) == 0;
  }
  ~CallersCpu() {
    if (moved_) sched_setaffinity(0, sizeof before_, &before_);
  }
  CallersCpu(const CallersCpu&) = delete;
  CallersCpu& operator=(const CallersCpu&) = delete;

 private:
  cpu_set_t before_;
  bool moved_ = false;
};

// Waits for `rung` to differ from `last`.
std::uint32_t wait_for_ring(Doorbell& bell, std::uint32_t last) {
  for (std::uint32_t spins = bell.spins; spins > 0; --spins) {
    const std::uint32_t rung = bell.rung.load(std::memory_order_acquire);
    if (rung != last) return rung;
    relax();
  }
  if (const std::uint32_t rung = bell.rung.load(std::memory_order_acquire); rung != last) {
    return rung;
  }
  const CallersCpu cpu(bell.cpu);
  bell.runner_sleeps.store(1, std::memory_order_seq_cst);
  std::uint32_t rung = bell.rung.load(std::memory_order_seq_cst);
  while (rung == last) {
    futex(&bell.rung, FUTEX_WAIT, last);
    rung = bell.rung.load(std::memory_order_seq_cst);
  }
  bell.runner_sleeps.store(0, std::memory_order_relaxed);
  return rung;
}

// Work that takes twice as long for twice the steps, and touches no memory.
void multiply(std::uint32_t steps) {
  std::uint64_t value = steps;
  for (std::uint32_t i = 0; i < steps; ++i) {
    value *= 0x9e3779b97f4a7c15;
    asm volatile("" : "+r"(value));
  }
}

std::int32_t run_often(std::uint32_t runs) {
  if (runner.plan == nullptr) return -1;
  for (std::uint32_t i = 1; i <= runs; ++i) {
    runner.bell->begun = i;
    const std::int32_t status = runner.variant->run(runner.plan);
    if (status == 0) continue;
    copy_text(runner.bell->error, last_error());
    return status;
  }
  return 0;
}

// Serves runs until the bell rings 0, which means: read the socket again.
void serve_bell() {
  Doorbell& bell = *runner.bell;
  std::uint32_t last = bell.done.load();
  while (true) {
    last = wait_for_ring(bell, last);
    if (last == 0) break;
    if (bell.runs == 0) {
      multiply(bell.steps);
    } else {
      const std::uint32_t before = float_unit_state();
      bell.status = run_often(bell.runs);
      if (float_unit_state() != before) {
        bell.changed_state = 1;
        set_float_unit_state(before);
      }
    }
    bell.done.store(last, std::memory_order_seq_cst);
    if (bell.caller_sleeps.load(std::memory_order_seq_cst) != 0) {
      futex(&bell.done, FUTEX_WAKE, 1);
    }
  }
  bell.done.store(0, std::memory_order_seq_cst);
  futex(&bell.done, FUTEX_WAKE, 1);
}

// One request with the descriptors that came along. False at the end.
bool receive() {
  Request& request = runner.request;
  iovec part = {&request, sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * (most_tensors + 1))];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t count = recvmsg(runner_socket, &message, MSG_CMSG_CLOEXEC);
  if (count != static_cast<ssize_t>(sizeof request)) return false;
  int descriptors[most_tensors + 1];
  std::size_t descriptor_count = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    descriptor_count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::memcpy(descriptors, CMSG_DATA(c), descriptor_count * sizeof(int));
  }
  runner.answer.good = 1;
  if (request.op == Op::load) {  // the doorbell comes with it
    void* const page =
        mmap(nullptr, sizeof(Doorbell), PROT_READ | PROT_WRITE, MAP_SHARED, descriptors[0], 0);
    if (page == MAP_FAILED) return false;
    runner.bell = static_cast<Doorbell*>(page);
  } else {
    for (std::size_t i = 0; i < descriptor_count; ++i) {
      runner.memory[i] =
          map_guarded(descriptors[i], request.memory_bytes[i], request.memory_writable[i] != 0);
      if (runner.memory[i] == nullptr) fail("memory cannot be mapped");
    }
  }
  for (std::size_t i = 0; i < descriptor_count; ++i) close(descriptors[i]);
  return true;
}

// Files can be read and executed as they are visible, and written below /tmp alone, whatever the
// mounts say. Kernels without Landlock leave it to the mounts.
void restrict_files() {
  landlock_ruleset_attr attributes = {};
  attributes.handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                 LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                 LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                                 LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                 LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
  // Unless it is handled, no file may move from one folder to another, not even below /tmp, which
  // linkers do.
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version >= 2) attributes.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
  const int rules = static_cast<int>(
      syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes.handled_access_fs, 0));
  if (rules < 0) return;
  constexpr const char* folders[] = {"/tmp", "/dev/null"};
  for (const char* const folder : folders) {
    landlock_path_beneath_attr beneath = {};
    beneath.allowed_access = attributes.handled_access_fs;
    if (std::strcmp(folder, "/tmp") != 0) beneath.allowed_access = LANDLOCK_ACCESS_FS_WRITE_FILE;
    beneath.parent_fd = open(folder, O_PATH | O_CLOEXEC);
    if (beneath.parent_fd < 0) continue;
    syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
    close(beneath.parent_fd);
  }
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  syscall(SYS_landlock_restrict_self, rules, 0);
  close(rules);
}

void limit(int resource, const char* text) {
  const rlim_t value = std::strtoull(text, nullptr, 10);
  if (value == 0) return;
  rlimit limits = {value, value};
  if (setrlimit(static_cast<__rlimit_resource>(resource), &limits) != 0) _exit(126);
}

}  // namespace

// runner MEMORY PROCESSES FILE_BYTES CPU_SECONDS LANDLOCK [COMMAND…]: limits of 0 are none.
int main(int argc, char** argv) {
  if (argc < 6) return 2;
  limit(RLIMIT_AS, argv[1]);
  limit(RLIMIT_NPROC, argv[2]);
  limit(RLIMIT_FSIZE, argv[3]);
  limit(RLIMIT_CPU, argv[4]);
  rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (std::strcmp(argv[5], "1") == 0) restrict_files();
  if (argc > 6) {
    execvp(argv[6], argv + 6);
    return 127;
  }
  while (receive()) {
    if (runner.request.op == Op::load && runner.request.path[0] != '\0') load();
    if (runner.request.op == Op::ask || runner.request.op == Op::plan) plan();
    if (runner.request.op == Op::bind) bind();
    if (send(runner_socket, &runner.answer, sizeof runner.answer, MSG_NOSIGNAL) < 0) break;
    if (runner.request.op == Op::wait_for_bell) serve_bell();
  }
  _exit(0);
}
