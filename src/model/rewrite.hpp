// What rewrites of calls share (fuse.hpp, low_precision.hpp, kv_type.hpp): views compared, problems
// rebuilt, steps numbered again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/call.hpp"
#include "model/instance.hpp"

namespace rooflane::model {

// A call with the step that it belongs to.
struct NamedCall {
  Call call;
  std::string step;
  int line = 0;
};
std::vector<NamedCall> named_calls(const Phase& phase);
// The phase's calls from now on; steps in the order in which they are first called.
void set_calls(Phase& phase, std::vector<NamedCall> calls);

const Operand* find_operand(const Call& call, std::string_view name);
Views views_of(const Call& call);
void set_view(Views& views, std::string_view name, const Strided& view);

// The same elements in the same order; axes of length 1 do not count.
bool same_elements(const Strided& x, const Strided& y);
// Whether they may share an element: decided by ranges.
bool may_overlap(const Strided& x, const Strided& y);

// Whether what `tensor` holds behind call `index` is read by a later one.
bool is_read_behind(const Phase& phase, std::size_t index, std::size_t tensor);

// The parameters that are set, without one of them.
Problem without(const Problem& problem, std::string_view param);

}  // namespace rooflane::model
