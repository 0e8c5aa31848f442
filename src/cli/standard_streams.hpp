// Handles errors of the three standard streams.
#pragma once

namespace rooflane {

// To be called before anything is opened. A standard file that the caller closed stays unusable
// instead of becoming the next file that is opened, into which results would be printed; and a
// limit on the size of files (ulimit -f) is an error of the write and no signal.
void guard_standard_streams();

// Brings what was printed out. Throws Error(argument) with the cause where it cannot be written;
// where only nobody reads any more, ends the program as a pipe's signal does.
void flush_standard_output();

}  // namespace rooflane
