// Prints the file that scripts/fuzz.sh begins with.
#include <iostream>

#include "tests/gguf_writer.hpp"

int main() {
  std::cout << rooflane::small_gguf().file();
  return 0;
}
