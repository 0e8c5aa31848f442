// The program's scripts: scripts/ of the tree it was built in, or share/rooflane/scripts if it is
// installed.
#pragma once

#include <string>
#include <vector>

namespace rooflane {

// The path of a script: what the environment variable names, else beside the program. `what` begins
// the message of the Error, argument or unavailable, that is thrown when there is none.
std::string script_path(const std::string& file, const std::string& variable,
                        const std::string& what);

// A command as results record it: paths in the tree that the program was built in are relative to
// that tree, so that they say nothing of the machine's folders.
std::vector<std::string> recorded_command(const std::vector<std::string>& words);

// Becomes the Python script with these arguments, which finds this program in ROOFLANE_PROGRAM.
// Throws as script_path does, and where there is no Python.
[[noreturn]] void become_script(const std::string& file, const std::string& variable,
                                const std::string& what, const std::vector<std::string>& words);

}  // namespace rooflane
