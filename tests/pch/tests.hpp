// What most tests include, parsed once for all of them (tests/meson.build). Each test includes what
// it needs itself.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/catalogue.hpp"
#include "core/seeds.hpp"
#include "core/temporary_folder.hpp"
#include "measure/verify.hpp"
