/* Calls the test's port on 127.0.0.1, a name's address and a socket of the file system. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void naive(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) sum += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = (float)(y[i] / sum);
  }
}

static void call(const struct sockaddr* address, socklen_t length) {
  const int line = socket(address->sa_family, SOCK_STREAM, 0);
  if (line < 0) return;
  if (connect(line, address, length) == 0 && write(line, "owned", 5) < 0) shutdown(line, SHUT_RDWR);
  close(line);
}
static void attack(void) {
  struct sockaddr_in host = {.sin_family = AF_INET, .sin_port = htons(PORT)};
  struct sockaddr_un file = {.sun_family = AF_UNIX, .sun_path = "/run/dbus/system_bus_socket"};
  struct sockaddr_un abstract = {.sun_family = AF_UNIX};
  inet_pton(AF_INET, "127.0.0.1", &host.sin_addr);
  call((struct sockaddr*)&host, sizeof host);
  call((struct sockaddr*)&file, sizeof file);
  memcpy(abstract.sun_path, "\0" ABSTRACT, sizeof ABSTRACT);
  call((struct sockaddr*)&abstract, (socklen_t)(sizeof abstract.sun_family + sizeof ABSTRACT));
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  static int done;
  if (!done++) attack();
  naive(x, y, rows, cols);
}
