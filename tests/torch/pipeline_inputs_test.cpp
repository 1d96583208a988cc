// What a pipeline's stages get: of the batch, and from each other.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "rank_threads.h"

namespace unisono::testing {
namespace {

using parallel::MakeStage;
using parallel::Pipeline;
using parallel::PipelineOptions;
using parallel::Stage;
using parallel::Tensors;
using ::testing::Each;
using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;

// Each rank's error, "" for none.
template <class Body>
std::vector<std::string> errors_of(int world_size, const Body& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(world_size));
  run_ranks(world_size, [&](const Group& group) {
    try {
      body(group);
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  return errors;
}

Stage sum_stage(int /*number*/) {
  return {.module = nullptr, .forward = [](const Tensors& inputs) {
            at::Tensor sum = inputs.at(0);
            for (std::size_t i = 1; i < inputs.size(); ++i) {
              sum = sum + inputs[i];
            }
            return Tensors{sum};
          }};
}

TEST(PipelineInputs, RanksThatGiveThemToOtherStagesAreAllTold) {
  EXPECT_THAT(errors_of(2,
                        [](const Group& group) {
                          const Pipeline model(group,
                                               MakeStage(sum_stage),
                                               {.inputs = {{.input = 1, .stage = group->rank()}}});
                        }),
              Each(HasSubstr("what stages get of the batch is input 0 to stage 0, input 1 to stage "
                             "0 on rank 0 and input 0 to stage 0, input 1 to stage 1 on "
                             "rank 1")));
}

}  // namespace
}  // namespace unisono::testing
