// Modules of many forms: checkpointed, with many inputs and outputs, with buffers.

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/tensor.h"

#include "canonical.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Recomputes `segment` in backward and runs backward through the result, as activation checkpoints
// do.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  using Segment = std::function<torch::Tensor(const torch::Tensor&)>;

  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& x,
                               std::int64_t segment) {
    context->saved_data["segment"] = segment;
    context->save_for_backward({x});
    return call(segment, x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::AutoGradMode with_grad(true);
    const torch::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    call(context->saved_data["segment"].toInt(), x).backward(gradients[0]);
    return {x.grad(), torch::Tensor()};
  }

  static torch::Tensor call(std::int64_t segment, const torch::Tensor& x) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): saved data holds numbers only
    return (*reinterpret_cast<const Segment*>(segment))(x);
  }
};

struct CheckpointedImpl : torch::nn::Module {
  explicit CheckpointedImpl(bool has_checkpoints) : with_checkpoints(has_checkpoints) {
    for (int i = 0; i < 3; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(4, 4)));
    }
    for (const torch::nn::Linear& layer : layers) {
      segments.emplace_back([linear = layer.ptr()](const torch::Tensor& x) {
        return torch::tanh(linear->forward(x));
      });
    }
  }

  torch::Tensor forward(torch::Tensor x) {
    for (const Checkpoint::Segment& segment : segments) {
      x = with_checkpoints ? Checkpoint::apply(x, reinterpret_cast<std::int64_t>(&segment))
                           : segment(x);
    }
    return x.sum();
  }

  bool with_checkpoints;
  std::vector<torch::nn::Linear> layers;
  std::vector<Checkpoint::Segment> segments;
};

TORCH_MODULE(Checkpointed);

TEST(DdpModules, ActivationCheckpointsGiveTheSameGradients) {
  run_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    const DistributedDataParallelOptions many_buckets{.bucket_cap_mb = 1e-5,
                                                      .first_bucket_cap_mb = 1e-5};
    DistributedDataParallel plain(Checkpointed(false), group, many_buckets);
    DistributedDataParallel nested(Checkpointed(true), group, many_buckets);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < plain.parameters().size(); ++i) {
      nested.parameters()[i].copy_(plain.parameters()[i]);
    }
    const torch::AutoGradMode with_grad(true);
    for (int step = 0; step < 3; ++step) {
      const torch::Tensor x =
          torch::full({2, 4}, 0.1 * (group->rank() + step)).requires_grad_(true);
      plain.zero_grad();
      nested.zero_grad();
      plain(x).backward();
      nested(x).backward();
      EXPECT_TRUE(
          is_bit_equal(clone_gradients(nested.parameters()), clone_gradients(plain.parameters())));
    }
  });
}

TEST(DdpModules, AParameterInTwoCheckpointsIsNamed) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    Checkpointed net(true);
    net->segments.push_back(net->segments.front());
    DistributedDataParallel model(net, group);
    const torch::Tensor x = torch::ones({2, 4}).requires_grad_(true);
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("parameter 'layer0."), HasSubstr("twice in one backward pass")),
                 [&] { model(x).backward(); });
  });
}

// Gradients come in the order of registration, so buckets are rebuilt after the first pass.
struct InOrderImpl : torch::nn::Module {
  InOrderImpl()
      : w0(register_parameter("w0", torch::ones({1}))),
        w1(register_parameter("w1", torch::ones({1}))) {}

  torch::Tensor forward(const torch::Tensor& x, bool uses_w0) {
    const torch::Tensor y = x * w1;
    return uses_w0 ? y + x * w0 : y;
  }

  torch::Tensor w0;
  torch::Tensor w1;
};

TORCH_MODULE(InOrder);

TEST(DdpModules, AWrappedModuleMayItselfRunInACheckpoint) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    DistributedDataParallel model(
        InOrder(), group, {.bucket_cap_mb = 1e-5, .first_bucket_cap_mb = 1e-5});
    const double rank = group->rank();
    const torch::Tensor x = torch::full({1}, 1 + rank).requires_grad_(true);
    model(x, true).backward();
    model.zero_grad();
    const Checkpoint::Segment segment = [&](const torch::Tensor& input) {
      return model(input, false);
    };
    const torch::Tensor inside = Checkpoint::apply(x, reinterpret_cast<std::int64_t>(&segment));
    // The gradient of `inside` comes first, so the forward pass runs again in the middle of a
    // round.
    (inside + model.module()->w0 * (10 + 10 * rank)).backward();
    EXPECT_EQ(model.module()->w0.grad().item<float>(), 15.0F);
    EXPECT_EQ(model.module()->w1.grad().item<float>(), 1.5F);
  });
}

struct Pieces {
  torch::Tensor first;
  std::map<std::string, torch::Tensor> named;
};

[[maybe_unused]] void collect_tensors(Pieces& pieces, std::vector<at::Tensor*>& tensors) {
  tensors.push_back(&pieces.first);
  for (auto& [name, tensor] : pieces.named) {
    tensors.push_back(&tensor);
  }
}

struct ManyImpl : torch::nn::Module {
  ManyImpl()
      : a(register_parameter("a", torch::ones({2}))),
        b(register_parameter("b", torch::ones({2}))) {}

  using Result = std::
      tuple<Pieces, std::vector<torch::Tensor>, std::optional<torch::Tensor>, int, torch::Tensor>;

  Result forward(const torch::Tensor& x, double factor, const std::string& name) {
    return {Pieces{x * a, {{name, x * b}}}, {a * factor, b}, std::nullopt, 7, {}};
  }

  torch::Tensor a;
  torch::Tensor b;
};

TORCH_MODULE(Many);

TEST(DdpModules, ForwardTakesAndReturnsAnything) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const Many many;
    DistributedDataParallel model(many, group);
    const torch::Tensor x = torch::full({2}, group->rank() + 1.0);
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      auto [pieces, list, nothing, number, undefined] = model(x, 3.0, "other");
      EXPECT_EQ(number, 7);
      EXPECT_FALSE(nothing.has_value());
      EXPECT_FALSE(undefined.defined());
      // Outputs 0, 1 and 2 are computed from parameters. Output 3 is a parameter.
      (pieces.first + pieces.named.at("other") + list[0] + list[1]).sum().backward();
      EXPECT_TRUE(many->a.grad().eq(1.5 + 3).all().item<bool>());
      EXPECT_TRUE(many->b.grad().eq(1.5 + 1).all().item<bool>());
    }
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(std::get<1>(model(x, 3.0, "other"))[1].is_same(many->b))
        << "without gradients, outputs are the module's own";
  });
}

// An adversarial pair: the judge learns to distinguish made data from given data, and the maker
// learns to make data that the judge can't distinguish.
class Rivals {
 public:
  template <class Maker, class Judge>
  static torch::Tensor loss_of_judge(Maker& maker, Judge& judge, int shard) {
    const torch::Tensor given = torch::full({4, 3}, 0.3 + shard);
    const torch::Tensor made = maker(noise(shard)).detach();
    return (judge(given).tanh() - 1).square().sum() + judge(made).tanh().square().sum();
  }

  template <class Maker, class Judge>
  static torch::Tensor loss_of_maker(Maker& maker, Judge& judge, int shard) {
    return (judge(maker(noise(shard))).tanh() - 1).square().sum();
  }

 private:
  static torch::Tensor noise(int shard) {
    return torch::arange(1.0 + shard, 9.0 + shard).sin().view({4, 2});
  }
};

TEST(DdpModules, TwoModelsTrainInTurns) {
  run_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    using torch::nn::Linear;
    const DistributedDataParallelOptions many_buckets{.bucket_cap_mb = 1e-5,
                                                      .first_bucket_cap_mb = 1e-5};
    DistributedDataParallel maker(Linear(2, 3), group, many_buckets);
    DistributedDataParallel judge(Linear(3, 1), group, many_buckets);
    Linear maker_alone(std::dynamic_pointer_cast<torch::nn::LinearImpl>(maker.module()->clone()));
    Linear judge_alone(std::dynamic_pointer_cast<torch::nn::LinearImpl>(judge.module()->clone()));
    torch::optim::SGD of_maker(maker.parameters(), 0.1);
    torch::optim::SGD of_judge(judge.parameters(), 0.1);
    torch::optim::SGD of_maker_alone(maker_alone->parameters(), 0.1);
    torch::optim::SGD of_judge_alone(judge_alone->parameters(), 0.1);
    for (int step = 0; step < 5; ++step) {
      judge.zero_grad();
      Rivals::loss_of_judge(maker, judge, group->rank()).backward();
      of_judge.step();
      maker.zero_grad();
      Rivals::loss_of_maker(maker, judge, group->rank()).backward();
      of_maker.step();

      accumulate_shards(judge_alone->parameters(), group->world_size(), [&](int shard) {
        Rivals::loss_of_judge(maker_alone, judge_alone, shard).backward();
      });
      of_judge_alone.step();
      accumulate_shards(maker_alone->parameters(), group->world_size(), [&](int shard) {
        Rivals::loss_of_maker(maker_alone, judge_alone, shard).backward();
      });
      of_maker_alone.step();
    }
    EXPECT_TRUE(is_bit_equal(maker.parameters(), maker_alone->parameters()));
    EXPECT_TRUE(is_bit_equal(judge.parameters(), judge_alone->parameters()));
  });
}

TEST(DdpBuffers, FollowRankZeroUnlessSwitchedOff) {
  for (const bool is_on : {true, false}) {
    run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      const torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(1).momentum(1.0));
      DistributedDataParallel model(norm, group, {.broadcast_buffers = is_on});
      const double mine = 10.0 * group->rank();
      model(torch::tensor({{mine}, {mine + 2}})).sum().backward();
      EXPECT_EQ(norm->running_mean.item<double>(), mine + 1) << "each rank saw its own batch";
      model.eval();
      const torch::NoGradGuard no_grad;
      model(torch::zeros({2, 1}));
      EXPECT_EQ(norm->running_mean.item<double>(), is_on ? 1 : mine + 1);
      EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
      // The buffers can't have changed since, so no other rank has to take part.
      if (group->rank() == 0) {
        model(torch::zeros({2, 1}));
      }
    });
  }
}

}  // namespace
}  // namespace unisono::testing
