#include "partitions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/tensor/divided_model.h"
#include "unisono/torch/parallel/tensor/layers.h"
#include "unisono/torch/tensor/tensor.h"

namespace bench {
namespace {

namespace parallel = unisono::parallel;
using Group = std::shared_ptr<unisono::ProcessGroup>;

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kWidening = 4;

template <class Widen, class Narrow>
struct Block : torch::nn::Module {
  Block(Widen widen_layer, Narrow narrow_layer)
      : widen(register_module("widen", std::move(widen_layer))),
        narrow(register_module("narrow", std::move(narrow_layer))) {}

  at::Tensor forward(const at::Tensor& x) { return narrow(at::relu(widen(x))); }

  Widen widen;
  Narrow narrow;
};

using WholeBlock = Block<torch::nn::Linear, torch::nn::Linear>;
using DividedBlock = Block<parallel::ColumnParallelLinear, parallel::RowParallelLinear>;

template <class AnyBlock>
using Blocks = std::vector<std::shared_ptr<AnyBlock>>;

Blocks<WholeBlock> make_whole_blocks(const ModelSize& size) {
  torch::manual_seed(kSeed);
  const std::int64_t wide = kWidening * size.width;
  Blocks<WholeBlock> blocks;
  for (int i = 0; i < size.blocks; ++i) {
    torch::nn::Linear widen(size.width, wide);
    torch::nn::Linear narrow(wide, size.width);
    blocks.push_back(std::make_shared<WholeBlock>(std::move(widen), std::move(narrow)));
  }
  return blocks;
}

// Uses the same values as the whole model.
Blocks<DividedBlock> make_divided_blocks(const Group& group, const ModelSize& size) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  const std::int64_t wide = kWidening * size.width;
  Blocks<DividedBlock> blocks;
  for (int i = 0; i < size.blocks; ++i) {
    parallel::ColumnParallelLinear widen(
        parallel::ColumnParallelLinearOptions{
            .in_features = size.width, .out_features = wide, .gather_output = false},
        group,
        generator);
    parallel::RowParallelLinear narrow(
        parallel::RowParallelLinearOptions{.in_features = wide, .out_features = size.width},
        group,
        generator);
    blocks.push_back(std::make_shared<DividedBlock>(std::move(widen), std::move(narrow)));
  }
  return blocks;
}

at::Tensor make_batch(const ModelSize& size) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed + 1);
  return at::randn({size.batch, size.width}, generator);
}

template <class AnyBlock>
at::Tensor forward(const Blocks<AnyBlock>& blocks, at::Tensor x) {
  for (const auto& block : blocks) {
    x = block->forward(x);
  }
  return x;
}

at::Tensor loss_of(const at::Tensor& output) {
  return output.square().mean();
}

template <class AnyBlock>
void zero_grad(const Blocks<AnyBlock>& blocks) {
  for (const auto& block : blocks) {
    block->zero_grad();
  }
}

// Output and gradients of the whole model, or of a rank's part.
struct Results {
  at::Tensor output;
  std::vector<at::Tensor> gradients;
};

template <class AnyBlock>
std::vector<at::Tensor> gradients_of(const Blocks<AnyBlock>& blocks) {
  std::vector<at::Tensor> gradients;
  for (const auto& block : blocks) {
    for (const at::Tensor& parameter : block->parameters()) {
      gradients.push_back(parameter.grad());
    }
  }
  return gradients;
}

double difference(const at::Tensor& actual, const at::Tensor& expected) {
  return ((actual - expected).abs().max() / expected.abs().max()).item<double>();
}

// `first` is the index of the first gradient among the gradients of the whole model.
double difference(const Results& actual, const Results& expected, std::size_t first = 0) {
  double largest = actual.output.defined() ? difference(actual.output, expected.output) : 0;
  for (std::size_t i = 0; i < actual.gradients.size(); ++i) {
    largest = std::max(largest, difference(actual.gradients[i], expected.gradients[first + i]));
  }
  return largest;
}

Results step_of_whole(const Blocks<WholeBlock>& blocks, const at::Tensor& batch) {
  zero_grad(blocks);
  const at::Tensor output = forward(blocks, batch);
  loss_of(output).backward();
  return {.output = output.detach(), .gradients = gradients_of(blocks)};
}

// A rank's blocks of the whole model.
class SerialPart {
 public:
  SerialPart(Group group, const ModelSize& size)
      : group_(std::move(group)), input_(make_batch(size)) {
    const Blocks<WholeBlock> all = make_whole_blocks(size);
    const auto begin = [&](int rank) {
      return static_cast<std::ptrdiff_t>(all.size()) * rank / group_->world_size();
    };
    blocks_.assign(all.begin() + begin(group_->rank()), all.begin() + begin(group_->rank() + 1));
    first_gradient_ =
        static_cast<std::size_t>(begin(group_->rank())) * all.front()->parameters().size();
  }

  void step() {
    const int rank = group_->rank();
    const bool is_last = rank + 1 == group_->world_size();
    zero_grad(blocks_);
    at::Tensor input = input_;
    if (rank > 0) {
      input = at::empty(input_.sizes());
      recv(*group_, input, rank - 1);
      input.set_requires_grad(true);
    }
    const at::Tensor output = forward(blocks_, input);
    if (is_last) {
      loss_of(output).backward();
    } else {
      send(*group_, output.detach(), rank + 1);
      const at::Tensor gradient = at::empty(output.sizes());
      recv(*group_, gradient, rank + 1);
      output.backward(gradient);
    }
    if (rank > 0) {
      send(*group_, input.grad(), rank - 1);
    }
    results_ = {.output = is_last ? output.detach() : at::Tensor(),
                .gradients = gradients_of(blocks_)};
  }

  [[nodiscard]] double difference_from(const Results& whole) const {
    return difference(results_, whole, first_gradient_);
  }

 private:
  Group group_;
  at::Tensor input_;
  Blocks<WholeBlock> blocks_;
  std::size_t first_gradient_;
  Results results_;
};

// A rank's part of every layer.
class ParallelPart {
 public:
  ParallelPart(const Group& group, const ModelSize& size)
      : input_(make_batch(size)), blocks_(make_divided_blocks(group, size)) {}

  void step() {
    zero_grad(blocks_);
    output_ = forward(blocks_, input_);
    loss_of(output_).backward();
    output_ = output_.detach();
  }

  [[nodiscard]] double difference_from(const Results& whole) const {
    Results mine{.output = output_, .gradients = {}};
    for (const std::shared_ptr<DividedBlock>& block : blocks_) {
      for (parallel::PlacedTensor& placed : parallel::placed_parameters(*block)) {
        placed.tensor = placed.tensor.grad();
        mine.gradients.push_back(parallel::gather_state({placed}).at(placed.name));
      }
    }
    return difference(mine, whole);
  }

 private:
  at::Tensor input_;
  Blocks<DividedBlock> blocks_;
  at::Tensor output_;
};

}  // namespace

std::vector<Partition> make_partitions(const Group& group, const ModelSize& size) {
  const auto blocks = std::make_shared<Blocks<WholeBlock>>(make_whole_blocks(size));
  const at::Tensor batch = make_batch(size);
  // The reference for all partitions, computed on every rank.
  const auto whole = std::make_shared<Results>(step_of_whole(*blocks, batch));
  for (at::Tensor& gradient : whole->gradients) {
    gradient = gradient.clone();
  }
  const auto last = std::make_shared<Results>();
  const auto serial = std::make_shared<SerialPart>(group, size);
  const auto parallel_part = std::make_shared<ParallelPart>(group, size);
  return {{.name = "whole",
           .step =
               [=] {
                 if (group->rank() == 0) {
                   *last = step_of_whole(*blocks, batch);
                 }
               },
           .difference = [=] { return group->rank() == 0 ? difference(*last, *whole) : 0.0; }},
          {.name = "serial",
           .step = [=] { serial->step(); },
           .difference = [=] { return serial->difference_from(*whole); }},
          {.name = "parallel",
           .step = [=] { parallel_part->step(); },
           .difference = [=] { return parallel_part->difference_from(*whole); }}};
}

}  // namespace bench
