// Verdicts against a source: what a reason says, in its words, of the verdict, of the cheat and of
// the first wrong element.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/problem.hpp"
#include "core/status.hpp"

namespace rooflane::judge {

enum class Verdict {
  winner,
  tie,
  loser,
  undecided,  // of a right kernel
  inaccurate,
  failed,
  suspect,
  crash,
  timeout,
  build,  // against it
};
std::string_view name_of(Verdict verdict);  // "WINNER"
bool is_right(Verdict verdict);

struct Cheat {
  int number;
  const char* name;
};
// Reasons begin with "NAME: " where something can be told.
std::optional<Cheat> cheat_in(std::string_view reason);

struct FirstWrong {
  std::string shape;
  std::string distribution;
  int threads = 1;
  std::string tensor;
  std::int64_t row = 0, col = 0;  // all axes but the last are one
  double got = 0, expected = 0, bound = 0;
};
// The element of a reason as verification writes it: "element y[3,5] is 1, expected 2 within 3".
std::optional<FirstWrong> wrong_element(const std::string& reason, const Problem& problem);

const Cheat& cheat_number(int number);
Verdict verdict_of(Status status, const std::string& reason);
// Whether a refusal in truth is a process that ended, or a run that failed.
bool ended_in_a_call(const std::string& reason);
// "plugin judged: run failed: crash: …" begins where it says what happened.
std::string without_prefix(const std::string& reason);

// Where a source failed and everywhere else did not.
struct Circumstances {
  bool uniform = true;  // inputs
  bool hidden = false;
  bool round = false;  // sizes like the listed ones: no tail is to blame
  bool other_threads = false;
};
// What that says of the cause: "NAME: ", or nothing.
std::string suspicion(const std::string& reason, const std::optional<FirstWrong>& wrong,
                      const Circumstances& circumstances);

}  // namespace rooflane::judge
