// Names of enumerators. See kernel_names.hpp.
#include "kernel_names.hpp"

namespace rooflane {

const char* name_of(ParamKind kind) {
  switch (kind) {
    case ParamKind::size:
      return "size";
    case ParamKind::flag:
      return "flag";
    case ParamKind::real:
      return "real";
    case ParamKind::choice:
      return "choice";
    case ParamKind::chain:
      return "chain";
  }
  return "";
}

const char* name_of(Role role) {
  switch (role) {
    case Role::input:
      return "input";
    case Role::constant:
      return "constant";
    case Role::output:
      return "output";
    case Role::updated:
      return "updated";
  }
  return "";
}

}  // namespace rooflane
