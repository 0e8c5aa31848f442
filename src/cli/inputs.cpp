// `rooflane inputs`: a problem's inputs and its double-precision reference as .npy files.
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <numeric>

#include "cli/options.hpp"
#include "cli/verbs.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/text.hpp"
#include "io/files.hpp"
#include "io/npy.hpp"
#include "measure/verify.hpp"

namespace rooflane {
namespace {

// The reference is computed in blocks of rows of about this many elements, handed out one by one.
constexpr std::int64_t block_elements = 1 << 14;

std::vector<double> whole_reference(const Problem& problem, const Operands& inputs,
                                    const TensorSpec& output) {
  const Shape shape = tensor_shape(problem, output);
  const std::int64_t cols = shape.back();
  const std::int64_t rows =
      std::accumulate(shape.begin(), shape.end() - 1, std::int64_t{1}, std::multiplies<>());
  std::vector<double> value(static_cast<std::size_t>(rows * cols));
  if (value.empty()) return value;
  const std::int64_t block = std::max<std::int64_t>(1, block_elements / cols);
  const std::int64_t blocks = (rows + block - 1) / block;
  const Float32Copies wide(inputs);
  const Math& math = *problem.kernel().maths.front();
  const int threads = machine().physical_cores;
  // Bodies of a parallel region must not throw: each thread's memory is reserved here.
  Region all_columns;
  all_columns.cols.resize(static_cast<std::size_t>(cols));
  std::iota(all_columns.cols.begin(), all_columns.cols.end(), 0);
  std::vector<Region> regions(static_cast<std::size_t>(threads), all_columns);
  for (Region& region : regions) region.rows.reserve(static_cast<std::size_t>(block));
  const auto bounds_of_thread = static_cast<std::size_t>(block * cols);
  std::vector<double> bounds(2 * bounds_of_thread * regions.size());
  parallel_for(nullptr, threads, blocks, [&](std::int64_t task, int thread) {
    Region& region = regions[static_cast<std::size_t>(thread)];
    const std::int64_t first = task * block;
    region.rows.resize(static_cast<std::size_t>(std::min(block, rows - first)));
    std::iota(region.rows.begin(), region.rows.end(), first);
    double* const bound = bounds.data() + 2 * bounds_of_thread * static_cast<std::size_t>(thread);
    problem.kernel().reference(problem, math, wide.operands(), output.name, region,
                               {value.data() + first * cols, bound, bound + bounds_of_thread});
  });
  return value;
}

void declare_inputs(Arguments& arguments) {
  arguments.positional("KERNEL", "the kernel");
  arguments.option("--shape", "SHAPE", "one problem: KERNEL:key=value,...");
  arguments.option("--seed", "N", "seed of the inputs; default: 1");
  arguments.option("--distribution", "NAME", distribution_help("default: uniform"));
  arguments.option("--out", "DIR", "folder for NAME.npy and OUTPUT_reference.npy (float64)");
  arguments.examples({"rooflane inputs gemm --shape gemm:m=4,n=3,k=5 --seed 1 --out gemm-problem"});
}

Problem read_problem(const Arguments& arguments, const Catalogue& catalogue) {
  const auto name = arguments.value("KERNEL");
  if (!name) {
    throw argument_error("KERNEL is missing; valid: " + join(catalogue.kernel_names(), ", "));
  }
  const Kernel& kernel = catalogue.kernel(*name);
  const auto shape = arguments.value("--shape");
  if (!shape) throw argument_error("--shape is missing: KERNEL:key=value,...");
  Problem problem;
  try {
    problem = parse_problem(*shape, catalogue.kernels());
  } catch (const Error& error) {
    throw Error(error.kind(), std::string("--shape: ") + error.what());
  }
  if (&problem.kernel() != &kernel) {
    throw argument_error(fmt::format("--shape '{}' is not a shape of {}", *shape, kernel.name));
  }
  return problem;
}

std::string prepare_folder(const Arguments& arguments) {
  const auto folder = arguments.value("--out");
  if (!folder) throw argument_error("--out is missing: a folder for the files");
  std::error_code error;
  std::filesystem::create_directories(*folder, error);
  if (error || !std::filesystem::is_directory(*folder)) {
    throw argument_error(fmt::format("--out '{}': the folder cannot be created: {}", *folder,
                                     error ? error.message() : "it is a file"));
  }
  require_writable(*folder + "/x.npy");
  return *folder;
}

int run_inputs(const Arguments& arguments, Catalogue& catalogue, const CliSettings&) {
  Complaints complaints;
  const Problem problem = complaints.check([&] { return read_problem(arguments, catalogue); });
  const std::int64_t seed = complaints.check([&] {
    return parse_count("--seed", arguments.value("--seed").value_or("1"), 0,
                       std::numeric_limits<std::int64_t>::max());
  });
  const Distribution* const distribution = complaints.check(
      [&] { return &read_distribution(arguments.value("--distribution").value_or("uniform")); });
  complaints.raise();
  const InputSeed inputs(static_cast<std::uint64_t>(seed), *distribution);
  // The reference in double and its blocks need memory in addition to the float32 operands.
  require_memory(problem, 3);
  const std::string folder = prepare_folder(arguments);

  const OwnedOperands operands(problem, inputs, machine().physical_cores);
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    const Shape shape = tensor_shape(problem, tensor);
    const auto path = [&](const char* suffix) {
      return fmt::format("{}/{}{}.npy", folder, tensor.name, suffix);
    };
    if (is_read(tensor.role)) {
      write_npy(path(""), shape, tensor.dtype, operands.inputs().at(tensor.name).data);
      std::cout << path("") << "\n";
    }
    if (is_written(tensor.role)) {
      write_npy(path("_reference"), shape, &float64,
                whole_reference(problem, operands.inputs(), tensor).data());
      std::cout << path("_reference") << "\n";
    }
  }
  return 0;
}

}  // namespace

const Verb inputs_verb = {"inputs", "writes a problem's inputs and reference as .npy",
                          declare_inputs, run_inputs};

}  // namespace rooflane
