// From a kernel's record to a C function and the table around it. See signature.hpp.
#include "judge/signature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "core/kernel.hpp"
#include "core/text.hpp"

namespace rooflane::judge {

namespace {

// float16 and bfloat16 have no type that every C compiler knows: their bits.
std::string c_type_of(DType dtype) {
  const std::string_view name = dtype->name;
  if (name == "float32") return "float";
  if (name == "float16" || name == "bfloat16") return "uint16_t";
  if (name == "int8") return "int8_t";
  if (name == "int32") return "int32_t";
  return "uint8_t";  // and the blocks of quantised formats
}

std::string meaning_of(const TensorSpec& tensor) {
  std::vector<std::string> axes;
  for (const Axis& axis : tensor.axes) {
    axes.push_back(axis.times == 1 ? std::string(axis.param)
                                   : fmt::format("{}*{}", axis.times, axis.param));
  }
  return fmt::format("[{}] {}{}", join(axes, ","), tensor.dtype->name,
                     tensor.dtype->quantisation.bits > 0 ? ", rows of blocks" : "");
}

// Whether the function is given an optional parameter. Numbers behind a chain belong to its words.
bool is_argument(const Problem& problem, const ParamSpec& param, bool behind_chain) {
  if (param.required || problem.has(param.name)) return true;
  if (param.kind != ParamKind::real) return false;
  const bool plain = param.default_value == 0 || param.default_value == 1;
  return param.default_from != nullptr || (!plain && !behind_chain);
}

}  // namespace

Signature signature_of(const Problem& problem) {
  const Kernel& kernel = problem.kernel();
  Signature signature{kernel.name, {}};
  for (const TensorSpec& tensor : kernel.tensors(problem)) {
    const bool constant = !is_written(tensor.role);
    signature.arguments.push_back(
        {Argument::Kind::tensor, tensor.name,
         std::string(constant ? "const " : "") + c_type_of(tensor.dtype) + "*", meaning_of(tensor),
         std::string(tensor.dtype->name), constant});
  }
  for (const ParamKind kind : {ParamKind::size, ParamKind::real}) {
    bool behind_chain = false;
    for (const ParamSpec& param : kernel.params) {
      behind_chain = behind_chain || param.kind == ParamKind::chain;
      if (param.kind != kind || !is_argument(problem, param, behind_chain)) continue;
      const bool size = kind == ParamKind::size;
      signature.arguments.push_back({size ? Argument::Kind::size : Argument::Kind::number,
                                     param.name, size ? "int64_t" : "float",
                                     size ? "" : "as docs/variants.md has it", "", false});
    }
  }
  // layernorm's tensor beta and a number of that name would be one word.
  std::set<std::string> seen;
  for (Argument& argument : signature.arguments) {
    if (!seen.insert(argument.name).second) argument.name += "_value";
  }
  return signature;
}

std::string Signature::text() const {
  std::vector<std::string> words;
  for (const Argument& argument : arguments) words.push_back(argument.c_type + " " + argument.name);
  return fmt::format("void {}({})", function, join(words, ", "));
}

std::string described_signature(const Problem& problem) {
  const Signature signature = signature_of(problem);
  std::string text = fmt::format("// {}\n// {}\n", problem.text(), problem.kernel().summary);
  for (const Argument& argument : signature.arguments) {
    if (argument.kind != Argument::Kind::tensor) continue;
    text += fmt::format("//   {}: {}, {}\n", argument.name, argument.constant ? "input" : "output",
                        argument.meaning);
  }
  return text + signature.text() + ";\n";
}

std::string header_of(const Signature& signature) {
  return fmt::format(
      "#include <stdint.h>\n#ifdef __cplusplus\nextern \"C\"\n#endif\n"
      "__attribute__((visibility(\"default\"))) {};\n",
      signature.text());
}

std::string table_of(const Signature& signature, bool many_threads) {
  std::string fields, values, tensors, call, dtypes;
  std::set<std::string> formats;
  for (const Argument& argument : signature.arguments) {
    const std::string& name = argument.name;
    const std::string_view param = std::string_view(name).substr(0, name.find("_value"));
    call += fmt::format("{}p->{}", call.empty() ? "" : ", ", name);
    if (argument.kind == Argument::Kind::tensor) {
      fields += fmt::format("  {} {};\n", argument.c_type, name);
      tensors += fmt::format("  if (has_gaps(rooflane_find(tensors, \"{0}\"))) return 1;\n", name);
      tensors += fmt::format("  p->{0} = rooflane_find(tensors, \"{0}\")->data;\n", name);
      if (formats.insert(argument.dtype).second) dtypes += fmt::format("\"{}\", ", argument.dtype);
      continue;
    }
    fields += fmt::format("  {} {};\n", argument.c_type, name);
    values += fmt::format("  p->{} = ({})rooflane_value(problem, \"{}\");\n", name, argument.c_type,
                          param);
  }
  return fmt::format(
      R"(#include <stdlib.h>
#include "signature.h"
#include "variant.h"

struct judged {{
{0}}};
static void* plan(const rooflane_problem* problem, int32_t threads, const int64_t* tuning,
                  const rooflane_tensors* constants) {{
  struct judged* p = calloc(1, sizeof(struct judged));
  (void)threads, (void)tuning, (void)constants;
  if (p == NULL) return NULL;
{1}  return p;
}}
/* The function takes pointers: it cannot know of a distance between rows. */
static int has_gaps(const rooflane_tensor* t) {{
  int64_t elements = 1;
  for (int32_t i = t->rank; i-- > 0; elements *= t->shape[i]) {{
    if (t->shape[i] > 1 && t->strides[i] != elements) return 1;
  }}
  return 0;
}}
static int32_t bind(void* plan, const rooflane_tensors* tensors) {{
  struct judged* p = plan;
{2}  return 0;
}}
static int32_t run(void* plan) {{
  const struct judged* p = plan;
  {3}({4});
  return 0;
}}
static const char* const dtypes[] = {{{5}NULL}};
static const rooflane_variant variant = {{.kernel = "{3}", .many_threads = {6}, .dtypes = dtypes,
                                         .plan = plan, .bind = bind, .run = run, .destroy = free}};
static const rooflane_plugin plugin = {{ROOFLANE_VARIANT_ABI, 1, &variant, NULL}};
const rooflane_plugin* rooflane_describe(void) {{ return &plugin; }}
)",
      fields, values, tensors, signature.function, call, dtypes, many_threads ? 1 : 0);
}

std::vector<Problem> described_problems(const Kernel& kernel) {
  Problem plain(kernel);
  for (const ParamSpec& param : kernel.params) {
    if (!param.required) continue;
    if (param.kind == ParamKind::size) {
      plain.set(param.name, static_cast<double>(std::max<std::int64_t>(64, param.least)));
    } else if (param.kind == ParamKind::choice) {
      plain.set(param.name, 0.0);
    }
  }
  std::vector<Problem> problems = {plain};
  std::set<std::string> seen = {signature_of(plain).text()};
  for (const ParamSpec& param : kernel.params) {
    if (param.kind != ParamKind::choice || param.dtypes.empty()) continue;
    for (const std::string& choice : choices_of(param)) {
      Problem other = plain;
      try {
        other.set(param.name, choice);
        other.check();
      } catch (const Error&) {
        continue;  // block formats ask for another order of b
      }
      if (other.text() != plain.text()) problems.push_back(other);
    }
  }
  return problems;
}

}  // namespace rooflane::judge
