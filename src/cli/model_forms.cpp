// See model_forms.hpp.
#include "cli/model_forms.hpp"

#include <fmt/format.h>

#include <utility>

#include "cli/terminal.hpp"
#include "model/fuse.hpp"
#include "model/low_precision.hpp"
#include "model/swaps.hpp"

namespace rooflane {
namespace {

using model::Instance;

// What is called, in which arithmetic: forms with the same text are one.
std::string calls_of(const Instance& instance) {
  std::string text;
  for (const model::Phase& phase : instance.phases) {
    for (const model::Call& call : phase.calls) text += call.problem.text() + call.math + "\n";
  }
  return text;
}

// Units that multiply short numbers, before what the model takes otherwise.
std::vector<std::string> with_units(const ModelArguments& read) {
  std::vector<std::string> names = {"amx", "avx512"};
  names.insert(names.end(), read.preferred.begin(), read.preferred.end());
  return names;
}

class Forms {
 public:
  Forms(const ModelArguments& read, const Instance& plain, const ModelWeights& weights,
        const model::ChainSettings& settings, const Catalogue& catalogue)
      : read_(read),
        plain_(plain),
        weights_(weights),
        settings_(settings),
        catalogue_(catalogue),
        seen_({calls_of(plain)}) {}

  std::vector<ModelForm> all() {
    add("fused", plain_, plain_, read_.preferred);
    const std::vector<std::string> units = with_units(read_);
    add("bf16", plain_, model::with_products_in(plain_, &bfloat16, "bf16"), units);
    add("int8", plain_, model::with_products_in(plain_, &int8_per_channel, "int8-dynamic"), units);
    if (weights_.has_file()) {
      const Instance stored = model::instantiate(read_.text, read_.size, read_.settings,
                                                 catalogue_.kernels(), weights_.file_format());
      add("file", stored, stored, read_.preferred);
      add("file-int8", stored, model::with_math(stored, "int8-dynamic"), units);
    }
    return std::move(forms_);
  }

 private:
  // `from`: the instance with the weights that the source has.
  void add(const std::string& name, const Instance& from, const Instance& form,
           const std::vector<std::string>& preferred) {
    Instance fused = model::fused(form, model::keeping_variants(catalogue_, preferred, settings_));
    for (const std::string& text : seen_) {
      if (text == calls_of(fused)) return;
    }
    if (!is_served(fused, preferred)) {
      print_note(fmt::format("level {}: only scalar can compute it on this machine", name));
      return;
    }
    seen_.push_back(calls_of(fused));
    ModelForm made;
    made.name = name;
    made.instance = std::make_unique<Instance>(std::move(fused));
    made.own_weights = model::converted_weights(from, *made.instance, weights_.source());
    made.weights = made.own_weights.get();
    made.preferred = preferred;
    forms_.push_back(std::move(made));
  }

  // Whether vectors or units compute every product of short numbers.
  bool is_served(const Instance& instance, std::vector<std::string> names) const {
    std::erase(names, "scalar");
    for (const model::Phase& phase : instance.phases) {
      for (const model::Call& call : phase.calls) {
        if (call.math.empty()) continue;
        if (model::rank_of(call, catalogue_, names, settings_) == names.size()) return false;
      }
    }
    return true;
  }

  const ModelArguments& read_;
  const Instance& plain_;
  const ModelWeights& weights_;
  const model::ChainSettings& settings_;
  const Catalogue& catalogue_;
  std::vector<std::string> seen_;
  std::vector<ModelForm> forms_;
};

}  // namespace

std::vector<ModelForm> forms_of(const ModelArguments& read, const Instance& plain,
                                const ModelWeights& weights, const model::ChainSettings& settings,
                                const Catalogue& catalogue) {
  return Forms(read, plain, weights, settings, catalogue).all();
}

Instance fused_instance(const ModelArguments& read, const Instance& instance,
                        const model::ChainSettings& settings, const Catalogue& catalogue) {
  return model::fused(instance, model::keeping_variants(catalogue, read.preferred, settings));
}

}  // namespace rooflane
