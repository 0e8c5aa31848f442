// Ends the program when nobody reads its answers any more, because its reader was killed.
#pragma once

namespace rooflane {

// From now on, while this process works too. A file or a terminal as standard output never ends.
void end_with_reader();

}  // namespace rooflane
