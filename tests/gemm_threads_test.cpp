// How threads share a product of hwy's: rows, columns, k, the packing. Right for every number of
// threads, also for more than there are parts.
#include <doctest/doctest.h>

#include "core/seeds.hpp"
#include "generated_catalogue.hpp"
#include "tests/gemm_ways.hpp"
#include "tests/part_of_cases.hpp"

using namespace rooflane;
using namespace rooflane::gemm_ways;

TEST_CASE("hwy: every path is right for few and for many threads, twice in a row") {
  // A b contiguous along k that parts pack for themselves, by rows, by columns and in parts of k;
  // sums of parts wider than what a thread adds up at a time; one B micro-panel and a few, packed
  // in pieces of k; too few rows for all threads where c is most of the work; batches; a skinny n,
  // vectorised along m, and last columns, also where k would be shared without them; many small
  // products.
  for (const char* shape : {"m=84,n=18,k=2520,trans_b=1",
                            "m=143,n=245,k=621,trans_b=1,alpha=2,beta=-1",
                            "m=400,n=48,k=600,trans_b=1,trans_a=1",
                            "m=4,n=177,k=1847,beta=3",
                            "m=18,n=296,k=686,trans_b=1",
                            "m=37,n=89,k=1350,trans_b=1,batch=2,beta=1",
                            "m=24,n=18,k=1241,batch=3",
                            "m=284,n=780,k=6,trans_b=1",
                            "m=206,n=1503,k=12,trans_a=1,trans_b=1,beta=1",
                            "m=354,n=783,k=27",
                            "m=486,n=111,k=8,trans_b=1,batch=2",
                            "m=19,n=888,k=13,trans_b=1",
                            "m=130,n=40,k=700,prepack=1",
                            "m=267,n=5,k=797,trans_b=1",
                            "m=56,n=4,k=800,trans_a=1,trans_b=1",
                            "m=56,n=3,k=900,trans_a=1,trans_b=1,beta=1",
                            "m=1500,n=4,k=200,trans_a=1",
                            "m=900,n=3,k=700,trans_a=1,trans_b=1",
                            "m=700,n=20,k=520,trans_a=1",
                            "m=700,n=20,k=520,trans_a=1,trans_b=1",
                            "m=64,n=4,k=64,batch=300",
                            "m=15,n=4,k=64,trans_a=1,batch=200"}) {
    const Problem problem = gemm_problem(shape);
    OwnedOperands operands(problem, seed, 1);
    for (const int threads : {2, 7, 16}) {
      Environment env;
      env.threads = threads;
      for (const int path : {-1, 1, 2, 3, 4}) {
        Tuning tuning;
        if (path >= 0) tuning.set("path", path);
        if (gemm::hwy.tuning_defect(problem, tuning, env) || !test::takes_next_case()) continue;
        INFO(problem.text(), " threads=", threads, " ", tuning.text());
        operands.poison_output();
        const auto plan = make_plan(gemm::hwy, problem, tuning, env, operands.all());
        plan->bind(operands.all());
        plan->run();
        check_right(problem, operands.all(), operands.output());
        // What threads hand out to each other is as it was.
        operands.poison_output();
        plan->run();
        check_right(problem, operands.all(), operands.output());
      }
    }
  }
}
