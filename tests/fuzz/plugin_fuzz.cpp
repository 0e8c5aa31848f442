// Tables of plugins, built from the input with pointers that are good or null: an accepted variant
// is complete, is new, and its tunables at their own values are a tuning that reads back.
#include <list>
#include <vector>

#include "backends/plugin_table.hpp"
#include "tests/fuzz/input_values.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {
namespace {

// A table with all that it points to.
class Table {
 public:
  explicit Table(InputValues& values) {
    const std::uint8_t flags = values.byte();
    variants_.resize(values.byte() % 4);
    for (rooflane_variant& variant : variants_) fill(variant, values);
    table_.abi = (flags & 1) != 0 ? values.byte() : ROOFLANE_VARIANT_ABI;
    // A count that is a lie is one above what can be.
    table_.variant_count =
        (flags & 2) != 0 ? ~std::uint32_t{0} : static_cast<std::uint32_t>(variants_.size());
    table_.variants = (flags & 4) != 0 ? nullptr : variants_.data();
  }
  const rooflane_plugin* get() const { return &table_; }

 private:
  const char* text(InputValues& values) { return texts_.emplace_back(values.word()).c_str(); }

  void fill(rooflane_variant& variant, InputValues& values) {
    const std::uint8_t flags = values.byte(), more = values.byte();
    if ((flags & 1) == 0) variant.kernel = text(values);
    if ((flags & 2) == 0) variant.name = text(values);
    if ((flags & 4) != 0) {
      auto& dtypes = dtypes_.emplace_back(values.byte() % 16);
      for (const char*& dtype : dtypes) dtype = text(values);
      dtypes.push_back(nullptr);
      variant.dtypes = dtypes.data();
    }
    auto& tunables = tunables_.emplace_back(more % 4);
    for (rooflane_tunable& tunable : tunables) {
      tunable = {(flags & 8) != 0 ? nullptr : text(values), text(values), values.integer(),
                 values.integer(), values.integer()};
    }
    variant.tunables = (flags & 16) != 0 ? nullptr : tunables.data();
    variant.tunable_count = (flags & 32) != 0 ? ~std::size_t{0} : tunables.size();
    variant.plan = [](const rooflane_problem*, std::int32_t, const std::int64_t*,
                      const rooflane_tensors*) -> void* { return nullptr; };
    variant.bind = [](void*, const rooflane_tensors*) { return std::int32_t{0}; };
    variant.run = [](void*) { return std::int32_t{0}; };
    if ((flags & 64) == 0) variant.destroy = [](void*) {};
  }

  rooflane_plugin table_{};
  std::vector<rooflane_variant> variants_;
  std::list<std::string> texts_;
  std::list<std::vector<const char*>> dtypes_;
  std::list<std::vector<rooflane_tunable>> tunables_;
};

}  // namespace

void plugin_target(std::string_view input) {
  static const Catalogue catalogue = Catalogue::built_in();
  InputValues values(input);
  const Table table(values);
  for (const plugin::CheckedVariant& checked :
       plugin::checked_variants(catalogue, "fuzz", table.get())) {
    require(checked.kernel != nullptr && checked.table.destroy != nullptr);
    require(!checked.dtypes.empty());
    const Variant variant = {.name = checked.name.c_str(),
                             .kernel = checked.kernel,
                             .backend = nullptr,
                             .threads = Threads::one,
                             .tunables = checked.tunables,
                             .unsupported = nullptr,
                             .tunings = no_tunings,
                             .plan = nullptr};
    Tuning own;
    for (std::size_t i = 0; i < checked.tunables.size(); ++i) {
      own.set(checked.tunables[i].name, checked.table.tunables[i].value);
    }
    require(parse_tuning(variant, own.text()).text() == own.text());
  }
}

}  // namespace rooflane::fuzz
