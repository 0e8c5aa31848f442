// All of the library's public interface in one include: the catalogue of kernels and variants,
// problems, plans, tuned schedules, views, buffers, threads, errors. Measuring is not here: that is
// the program `rooflane`. examples/link/main.cpp is a complete example.
#pragma once

#include "core/buffer.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/kernel.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/planning.hpp"
#include "core/problem.hpp"
#include "core/seeds.hpp"
#include "core/tensor.hpp"
#include "core/tuned.hpp"
#include "core/variant.hpp"
