// Messages between stages: tensors of all types and layouts.

#include <array>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/message.h"
#include "unisono/torch/nn/activation_checkpoint.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "canonical.h"
#include "pipelines.h"
#include "rank_threads.h"

namespace unisono::testing {
namespace {

using parallel::Pipeline;
using parallel::PipelineOptions;
using parallel::Stage;
using parallel::Tensors;

constexpr std::int64_t kRowsSent = 8;
constexpr int kPartsSent = 2;

constexpr std::array kTypes{torch::kBool,
                            torch::kUInt8,
                            torch::kInt8,
                            torch::kInt16,
                            torch::kInt32,
                            torch::kInt64,
                            torch::kFloat16,
                            torch::kBFloat16,
                            torch::kFloat64,
                            torch::kComplexFloat,
                            torch::kComplexDouble};

// Returns tensors of all kinds, made of x, which has rows of 6.
Tensors all_kinds(const torch::Tensor& x) {
  Tensors kinds{
      x,
      x.t(),                                // Not contiguous.
      x.unsqueeze(0).expand({3, -1, -1}),   // Refers to the same memory three times.
      x.narrow(1, 2, 3),                    // Has gaps in memory.
      x.sum(),                              // Has no dimensions.
      x.narrow(1, 0, 0),                    // Has no elements.
      torch::complex(x, x.square()).conj()  // Lazily conjugated.
  };
  for (const torch::Dtype type : kTypes) {
    kinds.push_back((x * 3).abs().to(type));
  }
  return kinds;
}

// Combines all tensors that can have a gradient. The gradient of the expanded tensor is itself
// expanded. The tensor without elements is unused, so its gradient is undefined.
torch::Tensor join_kinds(const Tensors& kinds) {
  torch::Tensor y = kinds[0] + kinds[1].t().sin() + kinds[2].sum(0) + kinds[4];
  y = y + torch::cat({kinds[3], kinds[3]}, 1) + torch::real(kinds[6]) * torch::imag(kinds[6]);
  for (std::size_t i = 7; i < kinds.size(); ++i) {
    if (kinds[i].is_floating_point()) {
      y = y + kinds[i].to(torch::kFloat32).cos();
    } else if (kinds[i].is_complex()) {
      y = y + torch::real(kinds[i]).to(torch::kFloat32).square();
    }
  }
  return y;
}

// The first stage returns all kinds, and the second stage checks the tensors.
std::vector<Stage> make_stages(torch::nn::Sequential& layers) {
  torch::nn::Linear first(6, 6);
  torch::nn::Linear second(6, 3);
  layers = torch::nn::Sequential(first, second);
  fill(*layers);
  return {
      {.module = first.ptr(),
       .forward = [first](const Tensors& in) mutable { return all_kinds(first(in[0])); },
       .prefix = "0."},
      {.module = second.ptr(),
       .forward = [second](const Tensors& in) mutable -> Tensors {
         const Tensors expected = all_kinds(in[0].detach());
         for (std::size_t i = 0; i < expected.size(); ++i) {
           EXPECT_TRUE(is_bit_equal({in[i].detach().resolve_conj()}, {expected[i].resolve_conj()}))
               << "output " << i;
         }
         return {second(join_kinds(in))};
       },
       .prefix = "1."}};
}

TEST(PipelineMessages, HaveTensorsOfAllTypesAndLayouts) {
  torch::nn::Sequential whole;
  const std::vector<Stage> stages = make_stages(whole);
  at::set_num_threads(1);
  for (int chunk = 0; chunk < kPartsSent; ++chunk) {
    const auto part = [&](const torch::Tensor& batch) { return batch.chunk(kPartsSent)[chunk]; };
    const Tensors outputs = stages[1].forward(stages[0].forward({part(make_batch(kRowsSent))}));
    (loss_of_classes(outputs[0], part(make_targets(kRowsSent))) / kPartsSent).backward();
  }
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
      for (const auto* const schedule : {"interleaved_1f1b", "1f1b", "zb_h1"}) {
        for (const auto mode : {nn::CheckpointMode::kNever, nn::CheckpointMode::kAlways}) {
          const PipelineOptions options{.schedule = schedule,
                                        .chunks = kPartsSent,
                                        .stages_per_rank = 2 / world_size,
                                        .checkpoint = mode};
          if (world_size == 1 && options.schedule != "interleaved_1f1b") {
            continue;  // This schedule has only one stage.
          }
          torch::nn::Sequential layers;
          Pipeline model(group, make_stages(layers), options);
          (void)model.train_step(make_batch(kRowsSent), make_targets(kRowsSent), loss_of_classes);
          EXPECT_EQ(difference(gradients_of(model.named_parameters()), gradients_of(whole)), "")
              << schedule << " of " << world_size << ", mode " << static_cast<int>(mode);
          // Forward without gradients, with chunks of different sizes.
          EXPECT_NO_THROW((void)model.forward(make_batch(3)));
        }
      }
    });
  }
}

TEST(PipelineMessages, OfOthersAreRefused) {
  const std::vector<std::pair<std::vector<std::byte>, std::string>> messages{
      {std::vector<std::byte>(pipeline::kFirstPart),
       "gradients of chunk 0 from stage 1 to stage 0 from rank 1 is not a message of a pipeline"},
      {encode(pipeline::MessageInfo{.tensors = {{.is_defined = false}, {.is_defined = false}}}),
       "backward of chunk 0 in stage 0: stage 1 has sent 2 gradients for 1 outputs"}};
  for (const auto& [bytes, message] : messages) {
    std::latch is_over(1);
    run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      Pipeline model(group, make_chain(), PipelineOptions{});
      if (group->rank() == 1) {
        std::vector<std::byte> sent = bytes;
        group->send({.data = sent.data(),
                     .count = static_cast<std::int64_t>(sent.size()),
                     .dtype = DType::kUInt8},
                    0,
                    {.tag = (1 << 30) + 1});
        is_over.wait();  // Does not leave while rank 0 sends its outputs.
        return;
      }
      EXPECT_THAT(
          [&] {
            model.train_step(make_batch(kRowsSent), make_targets(kRowsSent), loss_of_classes);
          },
          ::testing::ThrowsMessage<Error>(::testing::HasSubstr(message)));
      is_over.count_down();
    });
  }
}

}  // namespace
}  // namespace unisono::testing
