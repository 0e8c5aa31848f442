// SHA-256 (FIPS 180-4) of a text, in hexadecimal: the name of a source in the archive.
#pragma once

#include <string>
#include <string_view>

namespace rooflane::judge {

std::string sha256(std::string_view text);

}  // namespace rooflane::judge
