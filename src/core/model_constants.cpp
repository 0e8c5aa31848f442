// The one list of the constants that are fitted. See model_constants.hpp.
#include "core/model_constants.hpp"

#include <algorithm>

namespace rooflane {

std::vector<NamedConstant> named_constants(ModelConstants& constants) {
  // An eighth to eight times what is shipped, unless a share or a count says more.
  std::vector<NamedConstant> named;
  const auto add = [&](const char* name, double& value, double shipped) {
    named.push_back({name, &value, shipped / 8, shipped * 8});
  };
  const ModelConstants shipped;
  GemmConstants& gemm = constants.gemm;
  add("gemm.call_ops", gemm.call_ops, shipped.gemm.call_ops);
  add("gemm.setup_ops", gemm.setup_ops, shipped.gemm.setup_ops);
  add("gemm.tile_ops", gemm.tile_ops, shipped.gemm.tile_ops);
  add("gemm.column_ops", gemm.column_ops, shipped.gemm.column_ops);
  add("gemm.vector_ops", gemm.vector_ops, shipped.gemm.vector_ops);
  add("gemm.block_ops", gemm.block_ops, shipped.gemm.block_ops);
  named.push_back({"gemm.cache_share", &gemm.cache_share, 0.3, 1});
  add("gemm.lead_bytes", gemm.lead_bytes, shipped.gemm.lead_bytes);
  named.push_back({"gemm.followed_runs", &gemm.followed_runs, 2, 64});
  add("gemm.region_share", gemm.region_share, shipped.gemm.region_share);
  add("gemm.jitter_share", gemm.jitter_share, shipped.gemm.jitter_share);
  add("gemm.taken_share", gemm.taken_share, shipped.gemm.taken_share);
  named.push_back({"gemm.split_l2", &gemm.split_l2, 1, 2});
  AttentionConstants& attention = constants.attention;
  add("attention.weight_ops", attention.weight_ops, shipped.attention.weight_ops);
  add("attention.rescale_ops", attention.rescale_ops, shipped.attention.rescale_ops);
  add("attention.micro_tile_ops", attention.micro_tile_ops, shipped.attention.micro_tile_ops);
  add("attention.tile_ops", attention.tile_ops, shipped.attention.tile_ops);
  add("attention.task_ops", attention.task_ops, shipped.attention.task_ops);
  add("attention.decode_tile_ops", attention.decode_tile_ops, shipped.attention.decode_tile_ops);
  add("attention.step_overhead", attention.step_overhead, shipped.attention.step_overhead);
  add("attention.region_share", attention.region_share, shipped.attention.region_share);
  add("attention.jitter_share", attention.jitter_share, shipped.attention.jitter_share);
  return named;
}

std::vector<NamedConstant> named_constants(ModelConstants& constants, std::string_view model) {
  std::vector<NamedConstant> named = named_constants(constants);
  std::erase_if(named, [&](const NamedConstant& c) {
    return !std::string_view(c.name).starts_with(std::string(model) + ".");
  });
  return named;
}

bool operator==(const ModelConstants& x, const ModelConstants& y) {
  ModelConstants left = x, right = y;
  const auto in_left = named_constants(left), in_right = named_constants(right);
  return std::equal(in_left.begin(), in_left.end(), in_right.begin(),
                    [](const auto& l, const auto& r) { return *l.value == *r.value; });
}

}  // namespace rooflane
