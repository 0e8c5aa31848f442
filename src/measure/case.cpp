// Cases as one line of text, and back. See case.hpp.
#include "measure/case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "core/text.hpp"
#include "core/tuned.hpp"

namespace rooflane {

namespace {

constexpr char hex_digits[] = "0123456789ABCDEF";

bool must_be_encoded(unsigned char c) { return c <= ' ' || c == '%' || c == 0x7f; }

std::string encode(std::string_view value) {
  std::string text;
  for (const char character : value) {
    const auto c = static_cast<unsigned char>(character);
    if (must_be_encoded(c)) {
      text += {'%', hex_digits[c >> 4], hex_digits[c & 15]};
    } else {
      text += character;
    }
  }
  return text;
}

std::string decode(std::string_view field, std::string_view text) {
  std::string value;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      value += text[i];
      continue;
    }
    const std::string_view digits(hex_digits, 16);
    const std::size_t high = i + 2 < text.size() ? digits.find(text[i + 1]) : digits.npos;
    const std::size_t low = i + 2 < text.size() ? digits.find(text[i + 2]) : digits.npos;
    if (high == digits.npos || low == digits.npos) {
      throw argument_error(
          fmt::format("case: {}={}: allowed after % are two digits of 0-9 and A-F", field, text));
    }
    value += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return value;
}

std::int64_t integer_field(std::string_view field, std::string_view text, std::int64_t least,
                           std::int64_t most) {
  const auto value = parse_integer(text);
  if (!value || *value < least || *value > most) {
    throw argument_error(
        fmt::format("case: {}={}: allowed is an integer from {} to {}", field, text, least, most));
  }
  return *value;
}

std::uint64_t seed_field(std::string_view text) {
  std::uint64_t seed = 0;
  bool good = !text.empty() && text.size() <= 20;
  for (const char c : text) {
    const auto digit = static_cast<std::uint64_t>(c - '0');
    good = good && c >= '0' && c <= '9' &&
           seed <= (std::numeric_limits<std::uint64_t>::max() - digit) / 10;
    seed = seed * 10 + digit;
  }
  if (!good) {
    throw argument_error(
        fmt::format("case: seed={}: allowed is an integer from 0 to 18446744073709551615", text));
  }
  return seed;
}

}  // namespace

std::string_view name_of(CacheMode mode) { return mode == CacheMode::warm ? "warm" : "cold"; }
std::string_view name_of(Timer timer) { return timer == Timer::steady ? "steady" : "event"; }

std::string Case::text() const {
  const Case defaults;
  std::string line = fmt::format("{} variant={}", problem.text(), encode(variant));
  if (!tuning.values().empty()) line += fmt::format(" tuning={}", encode(tuning.text()));
  if (stored) line += fmt::format(" tuning_source={}", from_store);
  if (math != defaults.math) line += fmt::format(" math={}", encode(math));
  if (threads != defaults.threads) line += fmt::format(" threads={}", threads);
  if (!placement.empty()) line += fmt::format(" placement={}", encode(placement));
  if (!isa.empty()) line += fmt::format(" isa={}", encode(isa));
  if (!library.empty()) line += fmt::format(" library={}", encode(library));
  if (device != defaults.device) line += fmt::format(" device={}", device);
  if (cache != defaults.cache) line += fmt::format(" cache={}", name_of(cache));
  if (timer != defaults.timer) line += fmt::format(" timer={}", name_of(timer));
  if (seed != defaults.seed) line += fmt::format(" seed={}", seed);
  if (distribution != &uniform) line += fmt::format(" distribution={}", distribution->name);
  return line;
}

std::string_view tuning_source_of(const Case& c, const Variant& variant) {
  if (variant.tunables.empty() && c.tuning.values().empty()) return "";
  if (c.tuning.values().empty()) return from_model;
  return c.stored ? from_store : from_user;
}

const Math& Case::math_record() const {
  const Math* const found = find_math(problem.kernel(), math);
  return found != nullptr ? *found : fp32;
}

Environment Case::environment() const {
  Environment env;
  env.threads = threads;
  env.isa = isa;
  env.math = math;
  env.library = library;
  env.device = device;
  env.device_timer = timer == Timer::event;
  env.tuned = &no_tuned_schedules();
  return env;
}

Case parse_case(std::string_view text, const Catalogue& catalogue) {
  Case c;
  const std::vector<std::string_view> words = split(text, ' ');
  c.problem = parse_problem(words.front(), catalogue.kernels());
  std::string tuning;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    if (equals == std::string_view::npos) {
      throw argument_error(fmt::format("case: '{}' is not FIELD=VALUE", words[i]));
    }
    const std::string_view field = words[i].substr(0, equals);
    const std::string value = decode(field, words[i].substr(equals + 1));
    if (field == "variant") {
      c.variant = value;
    } else if (field == "tuning") {
      tuning = value;
    } else if (field == "tuning_source") {
      if (value != from_store) {
        throw argument_error(
            fmt::format("case: tuning_source={}: allowed is {}", value, from_store));
      }
      c.stored = true;
    } else if (field == "math") {
      c.math = value;
    } else if (field == "threads") {
      c.threads = static_cast<int>(integer_field(field, value, 0, 1 << 16));
    } else if (field == "placement") {
      c.placement = value;
    } else if (field == "isa") {
      c.isa = value;
    } else if (field == "library") {
      c.library = value;
    } else if (field == "device") {
      c.device = static_cast<int>(integer_field(field, value, 0, 1 << 16));
    } else if (field == "cache") {
      if (value != "warm" && value != "cold") {
        throw argument_error(unknown_name("cache mode", value, {"warm", "cold"}));
      }
      c.cache = value == "warm" ? CacheMode::warm : CacheMode::cold;
    } else if (field == "timer") {
      if (value != "steady" && value != "event") {
        throw argument_error(unknown_name("timer", value, {"steady", "event"}));
      }
      c.timer = value == "steady" ? Timer::steady : Timer::event;
    } else if (field == "seed") {
      c.seed = seed_field(value);
    } else if (field == "distribution") {
      c.distribution = &distribution_named(value);
    } else {
      throw argument_error(
          unknown_name("field of a case", field,
                       {"variant", "tuning", "tuning_source", "math", "threads", "placement", "isa",
                        "library", "device", "cache", "timer", "seed", "distribution"}));
    }
  }
  if (c.variant.empty()) throw argument_error("case: field variant is missing");
  const Variant& variant = variant_of(c, catalogue);
  if (!tuning.empty()) c.tuning = parse_tuning(variant, tuning);
  if (c.stored && tuning.empty()) throw argument_error("case: tuning_source without a tuning");
  return c;
}

const CatalogueEntry& entry_of(const Case& c, const Catalogue& catalogue) {
  const Kernel& kernel = c.problem.kernel();
  std::string_view name = c.variant;
  if (!c.library.empty()) {
    const auto variants = catalogue.variants(kernel);
    const bool known = std::any_of(variants.begin(), variants.end(),
                                   [&](const CatalogueEntry* e) { return e->name == name; });
    if (!known) name = name.substr(0, name.find('-'));
  }
  return catalogue.variant(kernel, name);
}

const Variant& variant_of(const Case& c, const Catalogue& catalogue) {
  return *entry_of(c, catalogue).variant;
}

}  // namespace rooflane
