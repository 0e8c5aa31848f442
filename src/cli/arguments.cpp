// Arguments of a verb on top of CLI11.
#include "cli/arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "core/text.hpp"

namespace rooflane {
namespace {

std::string long_name(const std::string& names) { return names.substr(names.rfind(',') + 1); }

// The text after the name of something that may be given more than once.
constexpr const char* repeated = " ...";

// All values are lists for CLI11; the help shows dots only where more than one is allowed.
class HelpText : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = option->get_type_name();
    return option->get_positional() || type.empty() ? type : " " + type;
  }
  std::string make_option_usage(const CLI::Option* option) const override {
    return make_option_name(option, true) + option->get_type_name();
  }
};

}  // namespace

Arguments::Arguments(const std::string& verb, const std::string& summary)
    : app_(std::make_unique<CLI::App>(summary, "rooflane " + verb)),
      valid_flags_{"--help", "--version"} {
  app_->allow_extras();
  app_->formatter(std::make_shared<HelpText>());
  app_->set_help_flag("-h,--help", "print this help");
  app_->set_version_flag("--version", "", "print the version");
}

Arguments::~Arguments() = default;

void Arguments::declare(const std::string& names, const std::string& value, const std::string& help,
                        bool many) {
  Declared& entry = declared_[long_name(names)];
  entry.many = many;
  app_->add_option(names, entry.values, help)->allow_extra_args(false)->type_name(value);
  for (const std::string_view name : split(names, ',')) valid_flags_.emplace_back(name);
}

void Arguments::option(const std::string& names, const std::string& value,
                       const std::string& help) {
  declare(names, value, help, false);
}

void Arguments::repeatable(const std::string& names, const std::string& value,
                           const std::string& help) {
  declare(names, value + repeated, help, true);
}

void Arguments::flag(const std::string& name, const std::string& help) {
  app_->add_flag(name, flags_[name], help);
  valid_flags_.push_back(name);
}

// CLI11 takes any number, so that a word too many does not hide an unknown flag; parse() counts.
void Arguments::declare_positional(const std::string& name, const std::string& help, bool many) {
  has_positionals_ = true;
  Declared& entry = declared_[name];
  entry.many = many;
  app_->add_option(name, entry.values, help)->type_name(many ? repeated : "");
}

void Arguments::positional(const std::string& name, const std::string& help) {
  declare_positional(name, help, false);
}

void Arguments::positionals(const std::string& name, const std::string& help) {
  declare_positional(name, help, true);
}

void Arguments::json_output(const std::string& help) {
  takes_json_ = true;
  // For the help and the nearest name; its words never reach CLI11, which knows no optional value.
  app_->add_flag("--json", help)->type_name(has_positionals_ ? "[=FILE]" : "[FILE]");
  valid_flags_.emplace_back("--json");
}

// The words less those of --json, which are taken down.
std::vector<std::string> Arguments::without_json(const std::vector<std::string>& words) {
  if (!takes_json_) return words;
  constexpr std::string_view with_value = "--json=";
  std::vector<std::string> others;
  int given = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--json") {
      const bool takes_next =
          !has_positionals_ && i + 1 < words.size() && !words[i + 1].starts_with("-");
      json_ = takes_next ? words[++i] : "";
      ++given;
      if (takes_next && json_->empty()) throw argument_error("--json is empty; it needs a value");
    } else if (words[i].starts_with(with_value)) {
      json_ = words[i].substr(with_value.size());
      ++given;
    } else {
      others.push_back(words[i]);
    }
  }
  if (given > 1) {
    throw argument_error(fmt::format("--json is given {} times, but is allowed only once", given));
  }
  return others;
}

void Arguments::pass_through(const std::string& prefix) { prefix_ = prefix; }

void Arguments::examples(const std::vector<std::string>& commands) {
  examples_ = commands;
  std::string text = "Examples:\n";
  for (const std::string& command : commands) text += "  " + command + "\n";
  app_->footer(text);
}

Arguments::Outcome Arguments::parse(const std::vector<std::string>& words) {
  words_ = words;
  std::vector<std::string> own;
  for (const std::string& word : words) {
    // CLI11 would take the next word for the value of `--csv=`.
    if (word.starts_with("--") && word.find('=') == word.size() - 1) {
      throw argument_error(fmt::format("{} is empty; it needs a value", word));
    }
  }
  for (const std::string& word : without_json(words)) {
    const bool passed = !prefix_.empty() && word.starts_with(prefix_);
    (passed ? passed_ : own).push_back(word);
  }
  try {
    // CLI11 takes the words last to first.
    app_->parse(std::vector<std::string>(own.rbegin(), own.rend()));
  } catch (const CLI::CallForHelp&) {
    return Outcome::help;
  } catch (const CLI::CallForVersion&) {
    return Outcome::version;
  } catch (const CLI::ArgumentMismatch& error) {
    // CLI11 begins with the option: "--csv: 1 required FILE missing".
    const std::string text = error.what();
    throw argument_error(fmt::format("{} needs a value", text.substr(0, text.find(':'))));
  } catch (const CLI::ParseError& error) {
    throw argument_error(error.what());
  }
  for (const std::string& word : app_->remaining()) {
    if (word.starts_with("-") && word.size() > 1) {
      throw argument_error(unknown_name("flag", word.substr(0, word.find('=')), valid_flags_));
    }
    throw argument_error(fmt::format("unexpected argument '{}'", word));
  }
  for (const auto& [name, entry] : declared_) {
    if (!entry.many && entry.values.size() > 1 && !name.starts_with("-")) {
      throw argument_error(fmt::format("unexpected argument '{}'", entry.values[1]));
    }
    if (!entry.many && entry.values.size() > 1) {
      throw argument_error(
          fmt::format("{} is given {} times, but is allowed only once", name, entry.values.size()));
    }
    for (const std::string& value : entry.values) {
      if (value.empty()) throw argument_error(fmt::format("{} is empty; it needs a value", name));
    }
  }
  return Outcome::run;
}

std::string Arguments::help() const { return app_->help(); }

std::vector<Arguments::Described> Arguments::described() const {
  std::vector<Described> all;
  for (const CLI::Option* option : app_->get_options()) {
    Described described;
    for (const std::string& name : option->get_snames()) described.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) described.names.push_back("--" + name);
    described.is_positional = option->get_positional();
    if (described.is_positional) described.names = {option->get_name()};
    described.value = option->get_type_name();
    described.is_repeatable = described.value.ends_with(repeated);
    if (described.is_repeatable) {
      described.value.resize(described.value.size() - std::string_view(repeated).size());
    }
    described.help = option->get_description();
    all.push_back(std::move(described));
  }
  return all;
}

bool Arguments::has(const std::string& name) const {
  const auto flag = flags_.find(name);
  if (flag != flags_.end()) return flag->second;
  return !values(name).empty();
}

std::optional<std::string> Arguments::value(const std::string& name) const {
  const std::vector<std::string>& all = values(name);
  return all.empty() ? std::nullopt : std::optional(all.front());
}

const std::vector<std::string>& Arguments::values(const std::string& name) const {
  return declared_.at(name).values;
}

std::vector<std::string> Arguments::list(const std::string& name) const {
  std::vector<std::string> pieces;
  for (const std::string& value : values(name)) {
    for (const std::string_view piece : split(value, ',')) {
      if (piece.empty()) {
        throw argument_error(
            fmt::format("{} '{}' has an empty item; separate items by one comma", name, value));
      }
      pieces.emplace_back(piece);
    }
  }
  return pieces;
}

void Complaints::add(const Error& error) {
  std::optional<Error>& slot = error.kind() == ErrorKind::argument ? argument_ : unavailable_;
  if (!slot) slot = error;
}

void Complaints::raise() const {
  if (argument_) throw *argument_;
  if (unavailable_) throw *unavailable_;
}

}  // namespace rooflane
