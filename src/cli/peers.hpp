// The interface to scripts/peers.py: its path, its peers, its requests. The script runs the peers.
#pragma once

#include <string>
#include <vector>

namespace rooflane {

class PeersScript {
 public:
  // $ROOFLANE_PEERS, else peers.py beside this program: ../scripts, ../share/rooflane/scripts.
  // Throws Error(unavailable) when there is none.
  PeersScript();

  const std::vector<std::string>& names() const { return names_; }
  // Makes what the peers need; progress on standard error, minutes the first time. A peer that
  // cannot be had says so when it is served.
  void prepare(const std::vector<std::string>& names) const;
  std::vector<std::string> worker_command(const std::string& name) const;
  // The CBLAS library of a peer that is one; empty for the others. Throws Error(unavailable) when
  // it cannot be had.
  static bool is_library(const std::string& name);
  std::string library(const std::string& name) const;

 private:
  std::vector<std::string> command(const std::vector<std::string>& arguments) const;

  std::string path_;
  std::vector<std::string> names_;
};

}  // namespace rooflane
