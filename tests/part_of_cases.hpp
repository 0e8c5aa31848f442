// A part of the cases that a test walks through: all of them, or every n-th from the k-th on where
// the environment says PART_OF_CASES=k/n. For where all of them take too long: programs that a
// device's compiler needs seconds for, shared by several tests, and emulated CPUs.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdlib>

namespace rooflane::test {

class Part {
 public:
  Part() {
    const char* part = std::getenv("PART_OF_CASES");
    if (part == nullptr) return;
    char* rest = nullptr;
    next_ = std::strtoul(part, &rest, 10);
    REQUIRE(*rest == '/');
    step_ = std::strtoul(rest + 1, &rest, 10);
    REQUIRE((*rest == '\0' && step_ > next_));
  }
  // Whether the next case is one of the part.
  bool takes() {
    if (next_-- != 0) return false;
    next_ = step_ - 1;
    return true;
  }

 private:
  std::size_t next_ = 0, step_ = 1;
};

// Whether the next case is one of the part, counting all that the program comes to, so that each
// n-th is met although a problem may have only a few.
inline bool takes_next_case() {
  static Part part;
  return part.takes();
}

}  // namespace rooflane::test
