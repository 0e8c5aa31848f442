// `rooflane ceilings`: measures and prints this machine's limits.
#include "measure/ceilings.hpp"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/json_output.hpp"
#include "cli/options.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "io/json.hpp"
#include "io/table.hpp"
#include "measure/ceilings_json.hpp"

namespace rooflane {
namespace {

std::string where(int threads, const std::string& device) {
  std::string count =
      threads > 0 ? fmt::format("{} thread{}", threads, threads == 1 ? "" : "s") : "";
  if (device.empty()) return count;
  return count.empty() ? device : device + ", " + count;
}

std::string one_decimal(double rate) { return fmt::format("{:.1f}", rate); }

std::string terminal_text(const Ceilings& ceilings) {
  TextTable fma{{{"FMA peak"}, {"math"}, {"ISA"}, {"GFLOP/s", true}}, {}};
  for (const FmaCeiling& peak : ceilings.fma) {
    fma.rows.push_back({where(peak.threads, peak.device), peak.math,
                        peak.isa.empty() ? "-" : peak.isa, one_decimal(peak.gflops)});
  }
  TextTable rates{{{"in registers"}, {"ISA"}, {"exp G/s", true}, {"unfused GFLOP/s", true}}, {}};
  for (const RateCeiling& rate : ceilings.rates) {
    rates.rows.push_back({where(rate.threads, rate.device), rate.isa.empty() ? "-" : rate.isa,
                          fmt::format("{:.2f}", rate.exp_g_s), one_decimal(rate.unfused_gflops)});
  }
  std::string text = terminal_table(fma) + "\n" + terminal_table(rates);
  for (const BandwidthCurve& curve : ceilings.bandwidth) {
    TextTable table{{{"footprint", true},
                     {"read GB/s", true},
                     {"write GB/s", true},
                     {"copy GB/s", true},
                     {"plateau"},
                     {"best loops (read; write; copy)"}},
                    {}};
    for (const BandwidthPoint& point : curve.points) {
      table.rows.push_back(
          {print_bytes(static_cast<std::size_t>(point.footprint_bytes)),
           one_decimal(point.read_gb_s), one_decimal(point.write_gb_s),
           one_decimal(point.copy_gb_s), plateau_at(curve, point.footprint_bytes),
           fmt::format("{}; {}; {}", point.read_method, point.write_method, point.copy_method)});
    }
    text += fmt::format("\nbandwidth, {}\n{}", where(curve.threads, curve.device),
                        terminal_table(table));
  }
  if (!ceilings.transfer.empty()) {
    TextTable table{
        {{"transfer"}, {"host memory"}, {"to device GB/s", true}, {"from device GB/s", true}}, {}};
    for (const TransferCeiling& transfer : ceilings.transfer) {
      table.rows.push_back({transfer.device, "pageable", one_decimal(transfer.pageable_h2d_gb_s),
                            one_decimal(transfer.pageable_d2h_gb_s)});
      table.rows.push_back({transfer.device, "pinned", one_decimal(transfer.pinned_h2d_gb_s),
                            one_decimal(transfer.pinned_d2h_gb_s)});
    }
    text += "\n" + terminal_table(table);
  }
  if (!ceilings.launch.empty()) {
    TextTable table{{{"empty kernel"}, {"launch to end us", true}, {"on the device us", true}}, {}};
    for (const LaunchCeiling& launch : ceilings.launch) {
      table.rows.push_back({where(launch.threads, launch.device),
                            fmt::format("{:.2f}", launch.host_ns * 1e-3),
                            fmt::format("{:.2f}", launch.device_ns * 1e-3)});
    }
    text += "\n" + terminal_table(table);
  }
  text += "\ncross-checks\n";
  for (const std::string& note : ceilings.notes) text += "- " + note + "\n";
  for (const std::string& warning : ceilings.warnings) text += "- WARNING: " + warning + "\n";
  return text;
}

std::vector<DeviceId> devices_to_measure(const Arguments& arguments) {
  const bool given = arguments.has("--cl-device");
  const int chosen = given ? read_device(arguments) : 0;
  std::vector<DeviceId> devices;
  for (const Backend* backend : all_backends()) {
    if (backend->devices == nullptr) continue;
    for (int index = 0; index < backend->devices->count(); ++index) {
      if (!given || index == chosen) devices.push_back({backend->devices, index});
    }
  }
  return devices;
}

void declare_ceilings(Arguments& arguments) {
  arguments.json_output(
      "print JSON instead of the table; with FILE, write it there and print the table");
  arguments.repeatable("--threads", "N,...", "thread counts; default: 1 and all physical cores");
  declare_device(arguments);
  arguments.option("--seconds", "S", "total time; default: 20");
  arguments.examples({"rooflane ceilings --seconds 4 --threads 1 --json ceilings.json"});
}

int run_ceilings(const Arguments& arguments, Catalogue&, const CliSettings&) {
  Complaints complaints;
  CeilingsRequest request;
  const std::optional<JsonOutput> json =
      complaints.check([&] { return std::optional(JsonOutput(arguments)); });
  request.threads = complaints.check([&] {
    const std::vector<std::string> pieces = arguments.list("--threads");
    if (!pieces.empty()) return parse_threads(pieces);
    return default_threads(Many::yes);
  });
  request.seconds = complaints.check(
      [&] { return parse_seconds("--seconds", arguments.value("--seconds").value_or("20")); });
  request.devices = complaints.check([&] { return devices_to_measure(arguments); });
  complaints.raise();

  ProgressLine progress;
  request.progress = [&](double done, const std::string& what) {
    progress.show(fmt::format("[{:3.0f} %] {}", 100 * done, what));
  };
  const Ceilings ceilings = measure_ceilings(request);
  progress.wipe();
  if (!json->replaces_text()) std::cout << terminal_text(ceilings);
  if (json->asked()) {
    nlohmann::ordered_json document = {{"schema_version", 1}, {"machine", machine_json(machine())}};
    document["ceilings"] = nlohmann::ordered_json(nlohmann::json(ceilings));
    json->write(document);
  }
  return 0;
}

}  // namespace

const Verb ceilings_verb = {"ceilings", "measures this machine's limits", declare_ceilings,
                            run_ceilings};

}  // namespace rooflane
