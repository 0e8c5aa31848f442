// From a call's arguments to a problem: sizes and number formats from arrays, the rest from
// parameters. Generic: no kernel is named.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/planning.hpp"
#include "core/problem.hpp"
#include "python/array.hpp"

namespace rooflane::python {

const Catalogue& catalogue();  // what this module was built with

// The arrays of a dictionary from tensor names.
std::vector<Array> arrays_of(const nb::dict& named, Access access);
// Null: there is none of that name.
const Array* find_array(std::span<const Array> arrays, std::string_view name);

// The parameters of a dictionary: numbers, flags as bool, names as text; None leaves the default.
// Throws Error naming a parameter that the kernel lacks, nb::type_error for other values.
Problem known_problem(const Kernel& kernel, const nb::dict& parameters);

// What the arrays add: the formats of tensors, flags that a tensor of their name stands for
// (attention's mask), sizes. Throws Error as infer_problem does.
Problem inferred_problem(Problem known, std::span<const Array> inputs,
                         std::span<const Array> outputs);

// The arrays' shapes in elements of the problem's formats, in the form that infer_problem needs.
std::vector<NamedShape> shapes_of(const Problem& problem, std::span<const Array> arrays);

// Views of the tensors with a role that `wanted` accepts. Throws Error for an array that is missing
// or belongs to no tensor, or where a value lies outside its tensor's domain.
Operands operands_of(const Problem& problem, std::span<const Array> arrays, bool (*wanted)(Role));

// PlanOptions from a dictionary of their names; None leaves the default.
PlanOptions plan_options(const nb::dict& options);

}  // namespace rooflane::python
