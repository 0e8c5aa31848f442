// Ceilings to JSON and back, field by field.
#include "measure/ceilings_json.hpp"

#include <nlohmann/json.hpp>

#include "core/json_text.hpp"

namespace rooflane {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FmaCeiling, math, isa, threads, device, gflops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RateCeiling, isa, threads, device, exp_g_s, unfused_gflops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BandwidthPoint, footprint_bytes, read_gb_s, write_gb_s,
                                   copy_gb_s, read_method, write_method, copy_method)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Plateau, label, largest_footprint_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BandwidthCurve, threads, device, points, plateaus)
// Files of earlier versions know fewer figures of the link.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TransferCeiling, device, h2d_gb_s, d2h_gb_s,
                                                pageable_h2d_gb_s, pageable_d2h_gb_s,
                                                pinned_h2d_gb_s, pinned_d2h_gb_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LaunchCeiling, device, threads, host_ns, device_ns)

namespace {

// The library takes a number of threads from any number, be it one that no int holds.
void require_threads(const nlohmann::json& ceilings, const char* list) {
  const auto found = ceilings.find(list);
  if (found == ceilings.end() || !found->is_array()) return;
  for (const nlohmann::json& entry : *found) {
    if (entry.is_object() && entry.contains("threads")) integer_from<int>(entry["threads"]);
  }
}

}  // namespace

void to_json(nlohmann::json& j, const Ceilings& ceilings) {
  j = {{"fma", ceilings.fma},
       {"rates", ceilings.rates},
       {"bandwidth", ceilings.bandwidth},
       {"transfer", ceilings.transfer},
       {"launch", ceilings.launch},
       {"notes", ceilings.notes},
       {"warnings", ceilings.warnings}};
}

void from_json(const nlohmann::json& j, Ceilings& ceilings) {
  for (const char* list : {"fma", "rates", "bandwidth", "launch"}) require_threads(j, list);
  j.at("fma").get_to(ceilings.fma);
  j.at("rates").get_to(ceilings.rates);
  j.at("bandwidth").get_to(ceilings.bandwidth);
  j.at("transfer").get_to(ceilings.transfer);
  ceilings.launch = j.value("launch", std::vector<LaunchCeiling>());
  j.at("notes").get_to(ceilings.notes);
  j.at("warnings").get_to(ceilings.warnings);
}

}  // namespace rooflane
