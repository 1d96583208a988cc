// Changes of a wrapped module: loaded values, converted or replaced tensors.

#include <functional>
#include <memory>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Loads the output of torch::save() for `from` into `to`.
template <class Module>
void load_from(const Module& from, Module& to) {
  std::stringstream file;
  torch::save(from, file);
  torch::load(to, file);
}

Scalars scalars_of(double value) {
  Scalars scalars;
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : scalars->parameters()) {
    parameter.fill_(value);
  }
  return scalars;
}

void expect_refusal(const std::function<void()>& body, const std::string& change, double rank = 0) {
  expect_error(ErrorCode::kInvalidArgument,
               AllOf(HasSubstr("[rank " + std::to_string(static_cast<int>(rank))),
                     HasSubstr("DistributedDataParallel: " + change + "; change a module before")),
               body);
}

class DdpLoad : public ::testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] static DistributedDataParallelOptions options() {
    return {.find_unused_parameters = GetParam()};
  }
};

INSTANTIATE_TEST_SUITE_P(FindUnused, DdpLoad, ::testing::Bool());

TEST_P(DdpLoad, TrainingGoesOnWithLoadedValues) {
  on_two_ranks(options(), [](Model& model, double rank) {
    for (int load = 0; load < 3; ++load) {
      load_from(scalars_of(10 * load), model.module());
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        const torch::Tensor sum = model(Factors{1 + rank, 2, 3 + 2 * rank});
        EXPECT_EQ(sum.item<double>(), 10 * load * (6 + 3 * rank));
        sum.backward();
        EXPECT_EQ(gradients_of(model), values({1.5F, 2, 4})) << load << ", step " << step;
      }
    }
  });
}

TEST_P(DdpLoad, GradientsAddUpAcrossALoad) {
  on_two_ranks(options(), [](Model& model, double rank) {
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      {
        const NoSync guard = model.no_sync();
        model(Factors{1 + rank, 1, 1}).backward();
      }
      load_from(scalars_of(5), model.module());
      {
        const NoSync guard = model.no_sync();
        model(Factors{1, 1 + rank, 1}).backward();
      }
      model(Factors{1, 1, 1 + rank}).backward();
      EXPECT_EQ(gradients_of(model), values({3.5F, 3.5F, 3.5F})) << "step " << step;
    }
  });
}

TEST_P(DdpLoad, MemoryMayBeSetAnew) {
  on_two_ranks(options(), [](Model& model, double rank) {
    model.module()->w[0].set_data(torch::full({1}, 7.0));
    const torch::NoGradGuard no_grad;
    model.module()->w[1].set_(torch::full({1}, 8.0));
    const torch::AutoGradMode with_grad(true);
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      const torch::Tensor sum = model(Factors{1, 1 + rank, 1});
      EXPECT_EQ(sum.item<double>(), 7 + 8 * (1 + rank) + 1);
      sum.backward();
      EXPECT_EQ(gradients_of(model), values({1, 1.5F, 1}));
    }
  });
}

TEST(DdpLoaded, BuffersAreBroadcast) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    torch::nn::BatchNorm1d loaded(torch::nn::BatchNorm1dOptions(1));
    loaded->running_mean.fill_(10.0 + group->rank());
    DistributedDataParallel model(
        torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(1).momentum(0.0)), group);
    model(torch::zeros({2, 1})).sum().backward();
    load_from(loaded, model.module());
    model(torch::zeros({2, 1})).sum().backward();
    EXPECT_EQ(model.module()->running_mean.item<double>(), 10) << "rank 0's";
  });
}

TEST(DdpLoaded, ValuesLoadedOnOneRankOnlyAreFound) {
  on_two_ranks([](Model& model, double rank) {
    model.check_consistent();
    if (rank == 1) {
      load_from(scalars_of(2), model.module());
    }
    expect_error(ErrorCode::kMismatch,
                 AllOf(HasSubstr("DistributedDataParallel: the ranks differ: tensor 'w0'"),
                       HasSubstr("on rank 0"),
                       HasSubstr("on rank 1")),
                 [&] { model.check_consistent(); });
  });
}

TEST(DdpChanged, AConvertedModuleIsRefused) {
  on_two_ranks([](Model& model, double rank) {
    model.module()->to(torch::kDouble);
    expect_refusal([&] { model(Factors{1, 2, 3}); },
                   "parameter 'w0' is f64[1], but was f32[1] when the module was wrapped",
                   rank);
    model.module()->to(torch::kFloat);
    model(Factors{1 + rank, 2, 3}).backward();
    EXPECT_EQ(gradients_of(model), values({1.5F, 2, 3})) << "converted back, training goes on";
  });
}

TEST(DdpChanged, OtherRanksSayWhichConversionTheyWaitedFor) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    Model model(Scalars(), group);
    if (group->rank() == 0) {
      model.module()->to(torch::kDouble);
      EXPECT_THROW(model(Factors{1, 2, 3}), RefusedCall);
      group->destroy();
    } else {
      expect_error(ErrorCode::kPeerLost,
                   AllOf(HasSubstr("rank 0"), HasSubstr("parameter 'w0' is f64[1], but was f32")),
                   [&] { model(Factors{1, 2, 3}).backward(); });
    }
  });
}

TEST(DdpChanged, AResizedParameterIsRefused) {
  on_two_ranks([](Model& model, double rank) {
    const torch::NoGradGuard no_grad;
    model.module()->w[1].set_(torch::ones({4}));
    const torch::AutoGradMode with_grad(true);
    expect_refusal([&] { model(Factors{1, 2, 3}); },
                   "parameter 'w1' is f32[4], but was f32[1] when the module was wrapped",
                   rank);
  });
}

TEST(DdpChanged, AConvertedBufferIsRefused) {
  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    DistributedDataParallel model(torch::nn::BatchNorm1d(3), group);
    model.module()->running_var.set_data(torch::ones({3}, torch::kDouble));
    expect_refusal([&] { model(torch::zeros({2, 3})); },
                   "buffer 'running_var' is f64[3], but was f32[3] when the module was wrapped");
  });
}

torch::nn::Sequential two_layers() {
  return torch::nn::Sequential(torch::nn::Linear(2, 2), torch::nn::Linear(2, 1));
}

TEST(DdpChanged, AReplacedParameterIsRefused) {
  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    DistributedDataParallel model(two_layers(), group);
    model.module()->replace_module("1", torch::nn::Linear(2, 1));
    expect_refusal([&] { model(torch::zeros({1, 2})); },
                   "parameter '1.weight' was replaced by another tensor after the module was "
                   "wrapped");
  });
}

TEST(DdpChanged, AnAddedParameterIsRefused) {
  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    DistributedDataParallel model(two_layers(), group);
    model.module()->push_back(torch::nn::Linear(1, 1));
    expect_refusal([&] { model(torch::zeros({1, 2})); },
                   "parameter '2.weight' was added after the module was wrapped");
  });
}

TEST(DdpChanged, ARemovedParameterIsRefused) {
  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    DistributedDataParallel model(two_layers(), group);
    model.module()->unregister_module("1");
    expect_refusal([&] { model(torch::zeros({1, 2})); },
                   "parameter '1.weight' was removed after the module was wrapped");
  });
}

// The tensors are unchanged under different names.
TEST(DdpChanged, ParametersMayBeTied) {
  struct TiedImpl : torch::nn::Module {
    TiedImpl() : first(register_parameter("first", torch::ones({2}))) {
      register_parameter("second", first);
      register_parameter("none", torch::Tensor(), /*requires_grad=*/false);
    }

    torch::Tensor forward(const torch::Tensor& x) { return (x * first).sum(); }

    torch::Tensor first;
  };

  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    DistributedDataParallel model(std::make_shared<TiedImpl>(), group);
    model.module()->register_parameter("third", model.module()->first);
    model(torch::ones({2})).backward();
    EXPECT_TRUE(model.module()->first.grad().eq(1).all().item<bool>());
  });
}

}  // namespace
}  // namespace unisono::testing
