// The list of backends and what follows from a record: absence, workers' settings, groups.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

#include "backends/highway.hpp"
#include "backends/scalar.hpp"
#include "bench/groups.hpp"
#include "bench/worker_pool.hpp"
#include "core/error.hpp"
#include "fakes.hpp"
#include "measure/foreign.hpp"

using namespace rooflane;

namespace {

const Backend* backend_named(std::string_view name) {
  for (const Backend* backend : all_backends()) {
    if (backend->name == name) return backend;
  }
  return nullptr;
}

bool is_set(const Variables& environment, std::string_view name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const auto& variable) { return variable.first == name; });
}

// A variant of softmax that is the scalar one but for its backend.
struct Catalogued {
  explicit Catalogued(const Backend& backend) {
    const Kernel& kernel = catalogue.kernel("softmax");
    variant = *catalogue.variant(kernel, "scalar").variant;
    variant.name = "probe";
    variant.backend = &backend;
    catalogue.add(CatalogueEntry{.name = "probe", .variant = &variant});
  }
  const CatalogueEntry& entry() const {
    return catalogue.variant(catalogue.kernel("softmax"), "probe");
  }
  BenchOptions options() const {
    BenchOptions made;
    made.catalogue = &catalogue;
    made.problems = {{parse_problem("softmax:rows=4,cols=8", catalogue.kernels()), ""}};
    made.variants = {"probe"};
    return made;
  }
  Catalogue catalogue = Catalogue::built_in();
  Variant variant{};
};

}  // namespace

TEST_CASE("every variant's backend is one of the list, which has each name once") {
  std::set<std::string> names;
  for (const Backend* backend : all_backends()) CHECK(names.insert(backend->name).second);
  const Catalogue catalogue = Catalogue::built_in();
  for (const CatalogueEntry& entry : catalogue.entries()) {
    INFO(entry.name);
    CHECK(backend_named(entry.variant->backend->name) == entry.variant->backend);
  }
}

TEST_CASE("a backend that was not built is not in the list, and its variants are absent") {
  const Catalogue catalogue = Catalogue::built_in();
  for (const char* name : {"opencl", "onednn"}) {
    INFO(name);
    const auto& absent = catalogue.absent();
    const bool is_absent = std::any_of(absent.begin(), absent.end(), [&](const auto& variant) {
      return variant.variant == name && variant.reason.starts_with("built without");
    });
    CHECK(is_absent == (backend_named(name) == nullptr));
  }
}

TEST_CASE("a backend that this machine lacks makes its variants absent, with its reason") {
  const Backend lacking = {.name = "lacking", .absent_reason = [](const std::string& library) {
                             return std::optional("no such machine for '" + library + "'");
                           }};
  const Catalogued probe(lacking);
  CHECK(absent_reason(probe.entry()) == "no such machine for ''");
  CatalogueEntry with_library = probe.entry();
  with_library.library = "/lib/x";
  CHECK(absent_reason(with_library) == "no such machine for '/lib/x'");
  const Backend plain = {.name = "plain"};
  CHECK_FALSE(absent_reason(Catalogued(plain).entry()));
}

TEST_CASE("workers are bound thread by thread unless others than the backend start threads") {
  const Backend own = {.name = "own"};
  const Backend foreign = {.name = "foreign", .foreign_threads = true};
  for (const Backend* backend : {&own, &foreign}) {
    const Catalogued probe(*backend);
    const Variables environment = worker_environment({}, probe.entry(), {0, 1});
    CHECK(is_set(environment, "OMP_NUM_THREADS"));
    CHECK(is_set(environment, "OMP_PLACES") == !backend->foreign_threads);
  }
}

TEST_CASE("a backend's library gets the environment it runs best with, and the default path") {
  static constexpr Libraries libraries = {.open =
                                              [](const std::string& path) {
                                                return LibraryFacts{path, "Library 1"};
                                              },
                                          .best_environment =
                                              [](const std::string& path) {
                                                if (path.empty())
                                                  throw unavailable_error("no default");
                                                return Variables{{"LIBRARY_PATH_GIVEN", path}};
                                              }};
  const Backend opening = {.name = "opening", .libraries = &libraries};
  const Catalogued probe(opening);
  BenchOptions options = probe.options();
  options.library = "/lib/y";
  const Suite suite = make_suite(options);
  const Case& c = suite.groups.at(0).cases.at(0).measured;
  CHECK(c.library == "/lib/y");
  CHECK(is_set(worker_environment(c, probe.entry(), {0}), "LIBRARY_PATH_GIVEN"));
  CHECK_FALSE(is_set(worker_environment({}, probe.entry(), {0}), "LIBRARY_PATH_GIVEN"));
  const Catalogued plain(scalar::backend);
  options.catalogue = &plain.catalogue;
  CHECK(make_suite(options).groups.at(0).cases.at(0).measured.library.empty());
}

TEST_CASE("one case per ISA target where the backend takes one, else a single case") {
  const Backend taking = {.name = "taking", .takes_isa = true};
  const Backend fixed = {.name = "fixed"};
  for (const Backend* backend : {&taking, &fixed}) {
    const Catalogued probe(*backend);
    BenchOptions options = probe.options();
    options.isas = {isa_targets().back(), ""};
    CHECK(make_suite(options).groups.at(0).cases.size() == (backend->takes_isa ? 2 : 1));
  }
}

TEST_CASE("another build's variants have this build's backends, and one of their own elsewhere") {
  Catalogue catalogue = Catalogue::built_in();
  ForeignWorker worker;
  worker.command = {FAKE_PROGRAM, "worker"};
  worker.name = [](const Offer& offer) { return offer.variant + "@old"; };
  add_foreign(catalogue, worker, std::chrono::seconds(60));
  const Kernel& kernel = catalogue.kernel("softmax");
  CHECK(catalogue.variant(kernel, "scalar@old").variant->backend == &scalar::backend);
  const Backend* const unknown = catalogue.variant(kernel, "fake-zeros@old").variant->backend;
  CHECK(unknown->name == std::string("fake"));
  CHECK(backend_named("fake") == nullptr);
  CHECK(unknown->devices == nullptr);
}
