// The lines that a worker is asked with: each gets an answer that is a line of the protocol.
#include "measure/worker_protocol.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {
namespace {

// Answers at once and computes nothing: what it is asked with was read by then.
class Idle final : public Worker {
 public:
  Opened open(const Case& c) override {
    require(!c.text().empty());
    return {};
  }
  Verification verify(const std::string& /*reference_path*/) override { return {}; }
  bool reproduces(std::uint64_t /*output_hash*/, bool /*follow*/) override { return false; }
  Calibration calibrate() override { return {}; }
  Samples sample(int n, std::int64_t runs) override {
    if (n < 1 || runs < 1) throw WorkerError(Status::runtime_error, "nothing asked for");
    return {};
  }
  std::optional<PhaseProfile> profile(const PhaseRequest& /*request*/) override {
    return std::nullopt;
  }
  bool draws(const Distribution& /*distribution*/) override { return true; }
  void close() override {}
  bool settle() override { return true; }
  pid_t process() override { return -1; }
  std::int64_t peak_rss_bytes() override { return 0; }
};

}  // namespace

void requests_target(std::string_view input) {
  static const Catalogue catalogue = Catalogue::built_in();
  Idle worker;
  const nlohmann::json reply = protocol::answer(worker, catalogue, std::string(input));
  require(nlohmann::json::parse(protocol::line_of(reply)).at("ok").is_boolean());
}

}  // namespace rooflane::fuzz
