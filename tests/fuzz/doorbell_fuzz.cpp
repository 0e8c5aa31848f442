// What a judged kernel's process may do to the one that measures it: the input is a script that a
// process follows in the runner's place. It writes words of the doorbell and messages of any kind,
// answers, falls silent, stops or ends. Each call then gives an answer or an Error, and in time.
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "backends/plugin_table.hpp"
#include "jail/jailed_plugin.hpp"
#include "jail/runner_process.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {
namespace {

using namespace rooflane::jail;

// Takes numbers and bytes from the script; zeros behind its end.
class Script {
 public:
  explicit Script(std::string_view bytes) : bytes_(bytes) {}
  bool ended() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto first = static_cast<std::uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return first;
  }
  std::string_view take(std::size_t count) {
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view bytes_;
};

void answer_bell(Doorbell& bell) {
  for (int i = 0; i < 50 && bell.rung.load() == bell.done.load(); ++i) usleep(100);
  bell.done.store(bell.rung.load());
  syscall(SYS_futex, &bell.done, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

[[noreturn]] void follow(Script script, int socket, Doorbell& bell) {
  for (int signal = 1; signal < 32; ++signal) ::signal(signal, SIG_DFL);  // not the fuzzer's
  static Request request;
  static Answer answer;
  constexpr std::size_t most_bytes = 2000;
  while (!script.ended()) {
    const std::uint8_t step = script.byte();
    switch (step % 10) {
      case 0: {  // any byte of the page
        const std::size_t at = script.byte() * 16 % (sizeof bell - 16) + step % 16;
        const std::string_view value = script.take(4);
        std::memcpy(reinterpret_cast<char*>(&bell) + at, value.data(), value.size());
        break;
      }
      case 1:
      case 2:
        answer_bell(bell);
        break;
      case 3:
        recv(socket, &request, sizeof request, step % 20 > 10 ? 0 : MSG_DONTWAIT);
        break;
      case 4:
      case 5: {  // an answer with one field that the script has written
        answer = {};
        answer.good = step % 20 < 10 ? 1 : 0;
        answer.abi = ROOFLANE_VARIANT_ABI;
        answer.variant_count = script.byte();
        const std::size_t at = (script.byte() * 256u + script.byte()) % (sizeof answer / 4);
        const std::string_view value = script.take(script.byte());
        const std::size_t bytes = std::min(value.size(), sizeof answer - at * 4);
        std::memcpy(reinterpret_cast<char*>(&answer) + at * 4, value.data(), bytes);
        send(socket, &answer, sizeof answer, MSG_NOSIGNAL);
        break;
      }
      case 6: {  // bytes that are not an answer
        const std::string_view text = script.take(std::min<std::size_t>(script.byte(), most_bytes));
        send(socket, text.data(), text.size(), MSG_NOSIGNAL);
        break;
      }
      case 7:  // words that change all the time
        for (int i = 0; i < 5000; ++i) {
          bell.done.store(static_cast<std::uint32_t>(i));
          bell.caller_sleeps.store(static_cast<std::uint32_t>(i) * step);
          bell.error[i % text_bytes] = static_cast<char>(step);
        }
        break;
      case 8:
        usleep(script.byte() * 10);
        break;
      default:
        if (step % 40 == 9) _exit(script.byte());
        if (step % 40 == 19) raise(script.byte() % 32);
        if (step % 40 == 29) close(socket);
    }
  }
  pause();
  _exit(0);
}

template <class Call>
void ask(Call call) {
  try {
    call();
  } catch (const Error& error) {
    require(*error.what() != '\0');
  }
}

}  // namespace

void doorbell_target(std::string_view input) {
  static const Catalogue catalogue = Catalogue::built_in();
  Script script(input);
  JailedPlugin plugin;
  plugin.name = "judged";
  plugin.call_seconds = plugin.plan_seconds = 0.02;
  // No CPU of this process: it then spins instead of sleeping.
  if (script.byte() % 2 == 1) plugin.cpus = {1023};
  int sockets[2];
  require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
  const int file = memfd_create("rooflane-doorbell", MFD_CLOEXEC);
  require(file >= 0 && ftruncate(file, sizeof(Doorbell)) == 0);
  void* const page = mmap(nullptr, sizeof(Doorbell), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  require(page != MAP_FAILED);
  const pid_t child = fork();
  require(child >= 0);
  if (child == 0) {
    setpgid(0, 0);
    close(sockets[0]);
    follow(script, sockets[1], *static_cast<Doorbell*>(page));
  }
  setpgid(child, child);
  munmap(page, sizeof(Doorbell));
  close(sockets[1]);
  RunnerProcess runner(plugin, child, sockets[0], file);
  static Request request;
  request.op = Op::load;
  ask([&] {
    const Answer answer = runner.ask(request, {runner.bell_file()});
    plugin::checked_variants(catalogue, plugin.name, take_description(answer));
  });
  ask([&] { runner.run(); });
  ask([&] { runner.run(); });
  ask([&] { runner.rest(); });
  ask([&] { runner.wake(); });
  ask([&] { require(runner.call_ns() >= 0); });
  ask([&] { runner.run(); });
  for (const std::string& name : runner.mapped_files()) require(!name.empty());
}

}  // namespace rooflane::fuzz
