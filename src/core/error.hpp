// Exceptions: Error for what a user can cause, two more for what only a device's compiler knows.
// Everything else is an assertion.
#pragma once

#include <stdexcept>
#include <string>

namespace rooflane {

// Who can fix it; this determines the program's exit status.
enum class ErrorKind {
  argument = 2,     // the text or content of an argument is wrong
  unavailable = 3,  // valid, but this machine or build cannot serve it
};

// The message is one line that names the argument and what is allowed.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// A device that cannot run a tuning, as only its compiler knows: too many registers or too much
// local memory. From a tuning of the default list the next one is tried (make_plan); one that was
// asked for is an error.
class UnfitTuning : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A program that the device's compiler refused; the message holds its log.
class BuildError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline Error argument_error(const std::string& message) { return {ErrorKind::argument, message}; }
inline Error unavailable_error(const std::string& message) {
  return {ErrorKind::unavailable, message};
}

}  // namespace rooflane
