// `rooflane run`: one kernel on the user's own arrays. Everything is checked before the first
// allocation; the output file is replaced only when it is complete.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "cli/options.hpp"
#include "cli/restart.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "cli/watchdog.hpp"
#include "cli/workers.hpp"
#include "core/buffer.hpp"
#include "core/text.hpp"
#include "io/files.hpp"
#include "io/npy.hpp"
#include "measure/verify.hpp"

namespace rooflane {
namespace {

// OpenBLAS reads its core type when it is opened, and reading the arguments opened it: where it
// runs at another than the best type, the program starts itself over, with the environment that
// worker processes get.
void restart_at_best_core_type(const Libraries& libraries, const std::string& library,
                               const std::string& program) {
  if (is_restarted()) return;
  const std::string description = libraries.open(library).description;
  const Variables environment = libraries.best_environment(library);
  if (std::all_of(environment.begin(), environment.end(), [&](const auto& setting) {
        return description.ends_with(" " + setting.second);
      })) {
    return;
  }
  restart(environment, program);
}

struct NamedFile {
  std::string name;
  std::string path;
};

struct Input {
  NamedFile file;
  NpyHeader header;
};

NamedFile parse_named_file(const std::string& option, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw argument_error(fmt::format("{} '{}' does not parse: write NAME=FILE.npy", option, text));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Problem read_params(const Arguments& arguments, const Kernel& kernel, Complaints& complaints) {
  Problem known(kernel);
  complaints.check([&] {
    try {
      const std::string text = arguments.value("--params").value_or("");
      for (const auto& [key, value] : parse_key_values(text)) known.set(key, value);
    } catch (const Error& error) {
      throw Error(error.kind(), std::string("--params: ") + error.what());
    }
    return true;
  });
  return known;
}

std::vector<Input> read_headers(const Arguments& arguments, Complaints& complaints) {
  std::vector<Input> inputs;
  for (const std::string& text : arguments.values("--in")) {
    complaints.check([&] {
      Input input{parse_named_file("--in", text), {}};
      for (const Input& known : inputs) {
        if (known.file.name == input.file.name) {
          throw argument_error(fmt::format("--in gives '{}' twice", input.file.name));
        }
      }
      try {
        input.header = read_npy_header(input.file.path);
      } catch (const Error& error) {
        throw Error(error.kind(), fmt::format("--in {}: {}", input.file.name, error.what()));
      }
      inputs.push_back(std::move(input));
      return true;
    });
  }
  return inputs;
}

// A file for every output, in the order given.
std::vector<NamedFile> read_outputs(const Arguments& arguments, const Problem& known) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : known.kernel().tensors(known)) {
    if (is_written(tensor.role)) names.push_back(tensor.name);
  }
  std::vector<NamedFile> files;
  for (const std::string& text : arguments.values("--out")) {
    files.push_back(parse_named_file("--out", text));
    const std::string& name = files.back().name;
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw argument_error(
          "--out: " + unknown_name(fmt::format("output of {}", known.kernel().name), name, names));
    }
    if (std::count_if(files.begin(), files.end(),
                      [&](const NamedFile& file) { return file.name == name; }) > 1) {
      throw argument_error(fmt::format("--out gives '{}' twice", name));
    }
    try {
      require_writable(files.back().path);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("--out {}: {}", name, error.what()));
    }
  }
  for (const std::string& name : names) {
    if (std::any_of(files.begin(), files.end(),
                    [&](const NamedFile& file) { return file.name == name; })) {
      continue;
    }
    throw argument_error(fmt::format("--out is missing: write --out {}=FILE.npy", name));
  }
  return files;
}

// The arrays' shapes in elements of the tensors that they are for.
std::vector<NamedShape> shapes_of(const std::vector<Input>& inputs, const Problem& known) {
  const std::vector<TensorSpec> tensors = known.kernel().tensors(known);
  std::vector<NamedShape> shapes;
  for (const Input& input : inputs) {
    const auto tensor = std::find_if(tensors.begin(), tensors.end(), [&](const TensorSpec& spec) {
      return spec.name == input.file.name;
    });
    if (tensor == tensors.end()) {  // refused by name where sizes are inferred
      shapes.push_back({input.file.name, input.header.shape});
      continue;
    }
    try {
      shapes.push_back({input.file.name, tensor_shape_of(input.header, tensor->dtype)});
    } catch (const Error& error) {
      throw Error(error.kind(),
                  fmt::format("--in {}: '{}': {}", input.file.name, input.file.path, error.what()));
    }
  }
  return shapes;
}

// Arrays in memory: inputs, and outputs between guard zones.
class Arrays {
 public:
  View add(const Shape& shape, const TensorSpec& tensor) {
    View view = contiguous_view(nullptr, shape, tensor.dtype);
    const std::size_t bytes = view.dtype->bytes(view.elements());
    if (is_written(tensor.role)) {
      view.data = outputs_.emplace_back(bytes).data();
    } else {
      view.data = inputs_.emplace_back(bytes).data();
    }
    return view;
  }
  bool guards_intact() const {
    return std::all_of(outputs_.begin(), outputs_.end(),
                       [](const GuardedBuffer& output) { return output.guards_intact(); });
  }

 private:
  std::vector<Buffer> inputs_;
  std::vector<GuardedBuffer> outputs_;
};

void note_conversion(const Input& input, DType dtype) {
  if (input.header.dtype->npy == dtype->npy || dtype->block > 1) return;
  print_note(fmt::format("--in {}: {} converted to {}", input.file.name, input.header.dtype->name,
                         dtype->name));
}

// Reads an array; values outside the tensor's domain are refused, since plans trust it.
void read_values(const Input& input, const Problem& problem, const TensorSpec& tensor,
                 const View& view) {
  try {
    read_npy(input.file.path, input.header, tensor.dtype, view.data);
    require_in_domain(problem, tensor, view);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("--in {}: {}", input.file.name, error.what()));
  }
}

// Plans and runs, at most `timeout` seconds.
void compute(const Problem& problem, const Target& target, const Tuning& tuning,
             const Environment& env, const Operands& operands, const Operands& constants,
             std::optional<double> timeout) {
  std::optional<Watchdog> watchdog;
  if (timeout) watchdog.emplace(*timeout, problem.text() + " by " + target.entry->name);
  const auto plan = make_plan(*target.entry->variant, problem, tuning, env, constants);
  plan->bind(operands);
  plan->upload();
  plan->run();
  plan->download();
}

// Reads inputs, computes, writes. Returns the exit status: 1, and no file, where the variant wrote
// outside its outputs.
int run_on_files(const Problem& problem, const Target& target, const Tuning& tuning,
                 const Environment& env, const std::vector<Input>& inputs,
                 const std::vector<NamedFile>& outputs, std::optional<double> timeout) {
  Arrays arrays;
  Operands operands, constants;
  const std::vector<TensorSpec> tensors = problem.kernel().tensors(problem);
  for (const TensorSpec& tensor : tensors) {
    const View view = arrays.add(tensor_shape(problem, tensor), tensor);
    operands.set(tensor.name, view);
    if (tensor.role == Role::constant) constants.set(tensor.name, view);
    for (const Input& input : inputs) {
      if (input.file.name != tensor.name) continue;
      note_conversion(input, tensor.dtype);
      read_values(input, problem, tensor, view);
    }
  }
  compute(problem, target, tuning, env, operands, constants, timeout);
  if (!arrays.guards_intact()) {
    print_error(fmt::format("FAILED: {} by {} wrote outside the output", problem.text(),
                            target.entry->name));
    return 1;
  }
  const std::vector<NamedShape> shapes = shapes_of(inputs, problem);
  for (const NamedFile& output : outputs) {
    const auto tensor = std::find_if(tensors.begin(), tensors.end(), [&](const TensorSpec& spec) {
      return spec.name == output.name;
    });
    write_npy(output.path, output_array_shape(problem, *tensor, shapes), tensor->dtype,
              operands.at(output.name).data);
  }
  return 0;
}

void declare_run(Arguments& arguments) {
  arguments.positional("KERNEL", "the kernel");
  arguments.option("--params", "k=v,...", "parameters other than sizes: alpha=2,eps=1e-5");
  arguments.repeatable("--in", "NAME=FILE", "an input array, .npy");
  arguments.repeatable("--out", "NAME=FILE", "the output array, .npy");
  declare_common(arguments, Many::no);
  declare_plugins(arguments);
  arguments.examples({"rooflane inputs softmax --shape softmax:rows=4,cols=8 --out softmax-problem",
                      "rooflane run softmax -v hwy --in x=softmax-problem/x.npy --out y=y.npy"});
}

int run_run(const Arguments& arguments, Catalogue& catalogue, const CliSettings& settings) {
  Complaints complaints;
  const CommonOptions common = read_common(arguments, catalogue, Many::no, complaints);
  load_plugins(arguments, common, settings, catalogue, complaints);
  const auto name = arguments.value("KERNEL");
  if (!name) {
    throw argument_error("KERNEL is missing; valid: " + join(catalogue.kernel_names(), ", "));
  }
  const Kernel& kernel = catalogue.kernel(*name);
  if (common.variants.size() != 1) {
    complaints.add(
        argument_error("-v takes one variant; valid: " + join(catalogue.variant_names(), ", ")));
  }
  std::vector<Target> targets;
  if (common.variants.size() == 1) {
    targets = select_targets(catalogue, {&kernel}, common.variants, complaints).targets;
  }
  complaints.check([&] {
    if (!targets.empty()) check_tunings(common.tunings, targets);
    return true;
  });
  const Problem known = read_params(arguments, kernel, complaints);
  const std::vector<Input> inputs = read_headers(arguments, complaints);
  const std::vector<NamedFile> outputs =
      complaints.check([&] { return read_outputs(arguments, known); });
  // Sizes follow from arrays that could all be read, and are compared whatever else is wrong.
  std::optional<Problem> inferred;
  if (inputs.size() == arguments.values("--in").size()) {
    complaints.check([&] {
      inferred = infer_problem(known, shapes_of(inputs, known));
      // Device variants hold a second copy.
      const bool device = !targets.empty() && targets[0].entry->variant->threads == Threads::device;
      require_memory(*inferred, device ? 2 : 1);
      return true;
    });
  }
  complaints.raise();

  const Problem& problem = *inferred;
  const Target& target = targets.front();
  const Variant& variant = *target.entry->variant;
  Environment env;
  if (!common.isas.empty()) env.isa = common.isas.front();
  env.math = math_for(problem, common.math);
  env.library = target.entry->library;
  env.device = common.device;
  env.tuned = common.tuned.get();
  Tuning tuning;
  for (const auto& [name_of_variant, text] : common.tunings) tuning = parse_tuning(variant, text);
  env.threads = threads_of(variant, tuning) == Threads::one ? 1 : common.threads.front();
  if (const auto reason = refusal(variant, problem, env)) {
    throw unavailable_error(
        fmt::format("{} by {} is UNSUPPORTED: {}", problem.text(), target.entry->name, *reason));
  }
  const Libraries* libraries = variant.backend->libraries;
  if (libraries != nullptr && !settings.worker_command.empty()) {
    restart_at_best_core_type(*libraries, env.library, settings.worker_command.front());
  }
  return run_on_files(problem, target, tuning, env, inputs, outputs, common.timeout);
}

}  // namespace

const Verb run_verb = {"run", "runs a kernel on your own .npy arrays", declare_run, run_run};

}  // namespace rooflane
