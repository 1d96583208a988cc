// Consecutive backward passes, in every way in which gradients are present or absent.

#include <array>
#include <cstddef>
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

#include "canonical.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(DdpBackward, GradientsAreAveragedHoweverTheyAreZeroed) {
  on_two_ranks([](Model& model, double rank) {
    for (int step = 0; step < 6; ++step) {
      model.zero_grad(/*set_to_none=*/step % 2 == 0);
      const void* const before =
          step % 2 == 0 ? nullptr : model.parameters()[0].grad().const_data_ptr();
      model(Factors{1 + rank, 2 + rank, 3 + step + rank}).backward();
      EXPECT_EQ(gradients_of(model), values({1.5F, 2.5F, 3.5F + static_cast<float>(step)}));
      if (before != nullptr && step > 1) {
        EXPECT_EQ(model.parameters()[0].grad().const_data_ptr(), before);
      }
    }
  });
}

TEST(DdpBackward, WithoutZeroingGradientsAddUp) {
  on_two_ranks([](Model& model, double rank) {
    for (int step = 1; step <= 4; ++step) {
      model(Factors{1 + rank, 2 + rank, 3 + rank}).backward();
      const auto n = static_cast<float>(step);
      EXPECT_EQ(gradients_of(model), values({1.5F * n, 2.5F * n, 3.5F * n}));
    }
  });
}

TEST(DdpBackward, AGradientOfTheCallersOwnIsAddedToAndAveraged) {
  on_two_ranks([](Model& model, double rank) {
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      model.parameters()[1].mutable_grad() = torch::full({1}, 10 * rank);
      model(Factors{1, 2, 3}).backward();
      EXPECT_EQ(gradients_of(model), values({1, 2 + 5, 3}));
    }
  });
}

struct MatrixImpl : torch::nn::Module {
  explicit MatrixImpl(torch::Dtype type) : w(register_parameter("w", torch::ones({2, 3}, type))) {}

  torch::Tensor forward(double factor) { return torch::real(w * factor).sum(); }

  torch::Tensor w;
};

TORCH_MODULE(Matrix);

TEST(DdpBackward, AGradientOfTheCallersOwnMayBeAViewOfAnyKind) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const auto numbers = [] { return torch::arange(1, 7).to(torch::kFloat); };
    for (const at::Tensor& own : {numbers().view({3, 2}).t(),
                                  torch::_neg_view(numbers().view({2, 3})),
                                  torch::complex(numbers(), numbers().neg()).view({2, 3}).conj()}) {
      const at::Tensor expected = own.clone() + 1.5;
      DistributedDataParallel model(Matrix(own.scalar_type()), group);
      model.parameters()[0].mutable_grad() = own;
      model(1.0 + group->rank()).backward();
      EXPECT_TRUE(model.parameters()[0].grad().equal(expected)) << model.parameters()[0].grad();
    }
  });
}

TEST(DdpBackward, NoSyncAddsUpLocallyUntilTheNextSynchronizedPass) {
  on_two_ranks([](Model& model, double rank) {
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      {
        const NoSync guard = model.no_sync();
        model(Factors{1 + rank, 2, 3}).backward();
        model(Factors{1 + rank, 2, 3}).backward();
      }
      const auto local = static_cast<float>(2 + 2 * rank);
      EXPECT_EQ(gradients_of(model), values({local, 4, 6}));
      model(Factors{5 + rank, 1, 1}).backward();
      EXPECT_EQ(gradients_of(model), values({3 + 5.5F, 5, 7}));
    }
  });
}

TEST(DdpBackward, TheForwardPassDecidesWhetherItsBackwardIsSynchronized) {
  on_two_ranks([](Model& model, double rank) {
    torch::Tensor unsynchronized;
    torch::Tensor synchronized = model(Factors{1 + rank, 1, 1});
    {
      const NoSync guard = model.no_sync();
      unsynchronized = model(Factors{1 + rank, 1, 1});
      synchronized.backward();
      EXPECT_EQ(gradients_of(model), values({1.5F, 1, 1}));
    }
    model.zero_grad();
    unsynchronized.backward();
    EXPECT_EQ(gradients_of(model), values({static_cast<float>(1 + rank), 1, 1}));

    // One pass through both outputs is synchronized, in either order of the outputs.
    for (const bool synchronized_first : {false, true}) {
      model.zero_grad();
      const auto run = [&](bool is_synchronized) {
        if (is_synchronized) {
          return model(Factors{1 + rank, 1, 1});
        }
        const NoSync guard = model.no_sync();
        return model(Factors{1 + rank, 1, 1});
      };
      const torch::Tensor first = run(synchronized_first);
      const torch::Tensor sum = first + run(!synchronized_first);
      sum.backward();
      EXPECT_EQ(gradients_of(model), values({3, 2, 2}));
    }
  });
}

TEST(DdpBackward, AGradientThatWasThereBeforeThePassIsSynchronizedIsAveragedToo) {
  on_two_ranks([](Model& model, double rank) {
    const torch::Tensor synchronized = model(Factors{0, 1, 1});
    torch::Tensor local;
    {
      const NoSync guard = model.no_sync();
      local = model(Factors{1 + rank, 0, 0});
    }
    // Backward starts with the latest computation.
    (synchronized + local).backward();
    EXPECT_EQ(gradients_of(model), values({1.5F, 1, 1}));
  });
}

TEST(DdpBackward, AnUnusedParameterIsNamedAtTheNextForward) {
  on_two_ranks([](Model& model, double rank) {
    model(Factors{1 + rank, 0, 3}).backward();
    EXPECT_EQ(gradients_of(model)[0], 1.5F) << "the first step is synchronized all the same";
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("no gradient for 'w1' on all ranks in the first pass;"),
                       HasSubstr("find_unused_parameters"),
                       HasSubstr("[rank " + std::to_string(static_cast<int>(rank)))),
                 [&] { model(Factors{1, 2, 3}); });
  });
}

TEST(DdpBackward, AParameterThatIsUsedNoMoreIsNamedWithItsPass) {
  on_two_ranks([](Model& model, double /*rank*/) {
    for (int pass = 0; pass < 3; ++pass) {
      model(Factors{1, 2, 3}).backward();
    }
    model(Factors{0, 2, 0}).backward();
    expect_error(ErrorCode::kInvalidArgument,
                 HasSubstr("no gradient for 'w0', 'w2' on all ranks in pass 4, but in every pass "
                           "before;"),
                 [&] { model(Factors{1, 2, 3}); });
  });
}

TEST(DdpBackward, ParametersThatSomeRanksDoNotUseAreNamedOnAll) {
  struct Case {
    std::array<Factors, 3> factors;
    std::string message;
  };

  const std::vector<Case> cases{
      {{Factors{1, 2, 3}, {1, 0, 3}, {1, 2, 3}}, "for 'w1' on rank 1 in pass 2"},
      {{Factors{1, 0, 3}, {1, 2, 3}, {1, 0, 3}}, "for 'w1' on ranks 0, 2 in pass 2"},
      {{Factors{1, 0, 3}, {1, 2, 3}, {0, 2, 0}},
       "for 'w1' on rank 0, 'w0', 'w2' on rank 2 in pass 2"}};
  for (const auto& [factors, message] : cases) {
    run_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
      Model model(Scalars(), group);
      model(Factors{1, 2, 3}).backward();
      model(factors[static_cast<std::size_t>(group->rank())]).backward();
      // Each call fails at once: no rank waits for a rank that can't continue.
      for (int i = 0; i < 2; ++i) {
        expect_error(
            ErrorCode::kInvalidArgument, HasSubstr(message), [&] { model(Factors{1, 2, 3}); });
      }
    });
  }
}

TEST(DdpBackward, GradientsThatAGivenUpPassLacksAreForgotten) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    Model model(Scalars(), group);
    if (group->rank() == 0) {
      const at::Tensor w2 = model.module()->w[2];
      const unsigned trap = w2.register_hook(
          [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no luck"); });
      EXPECT_THROW(model(Factors{1, 2, 3}).backward(), std::runtime_error);
      w2.remove_hook(trap);
    } else {
      expect_error(ErrorCode::kMismatch, HasSubstr("another rank's backward"), [&] {
        model(Factors{1, 0, 3}).backward();
      });
    }
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      model(Factors{1, 2, 3}).backward();
      EXPECT_EQ(gradients_of(model), values({1, 2, 3}));
    }
  });
}

TEST(DdpBackward, AParameterThatOneRankDoesNotUseGetsTheOthersGradient) {
  on_two_ranks([](Model& model, double rank) {
    model(Factors{1, rank == 0 ? 4.0 : 0.0, 3}).backward();
    EXPECT_EQ(gradients_of(model), values({1, 2, 3}));
  });
}

TEST(DdpBackward, UnusedParametersAreAllowedOnRequest) {
  on_two_ranks({.find_unused_parameters = true}, [](Model& model, double rank) {
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      // w0 is used by all ranks, w1 only by rank 1, and w2 by no rank.
      model(Factors{1 + rank, 4 * rank, 0}).backward();
      const std::vector<std::optional<float>> expected{1.5F, 2.0F, std::nullopt};
      EXPECT_EQ(gradients_of(model), expected) << "step " << step;
      model.zero_grad();
      model(Factors{1, 2, 3 + rank}).backward();
      EXPECT_EQ(gradients_of(model), values({1, 2, 3.5F})) << "step " << step;
    }
  });
}

TEST(DdpBackward, ParametersMayBeFrozenAndThawedBetweenSteps) {
  on_two_ranks({.find_unused_parameters = true}, [](Model& model, double rank) {
    at::Tensor frozen = model.module()->parameters()[1];
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      model(Factors{1 + rank, 2 + 2 * rank, 3}).backward();
      EXPECT_EQ(gradients_of(model), values({1.5F, 3, 3})) << "step " << step;
      model.zero_grad();
      frozen.set_requires_grad(false);
      model(Factors{1 + rank, 2 + 2 * rank, 3}).backward();
      const std::vector<std::optional<float>> expected{1.5F, std::nullopt, 3.0F};
      EXPECT_EQ(gradients_of(model), expected) << "step " << step;
      frozen.set_requires_grad(true);
    }
  });
}

TEST(DdpBackward, AFrozenParameterThatMayNotBeUnusedIsNamed) {
  on_two_ranks([](Model& model, double /*rank*/) {
    model.module()->parameters()[1].set_requires_grad(false);
    model(Factors{1, 2, 3}).backward();
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("no gradient for 'w1' on all ranks in the first pass;"),
                       HasSubstr("find_unused_parameters")),
                 [&] { model(Factors{1, 2, 3}); });
  });
}

TEST(DdpBackward, AccumulatedGradientsOfUnusedParametersCount) {
  on_two_ranks({.find_unused_parameters = true}, [](Model& model, double rank) {
    {
      const NoSync guard = model.no_sync();
      model(Factors{0, 2 + 2 * rank, 0}).backward();
    }
    model(Factors{1, 0, 1}).backward();
    EXPECT_EQ(gradients_of(model), values({1, 3, 1}));
  });
}

TEST(DdpBackward, BucketsAreRebuiltInTheOrderSeenAndGradientsStay) {
  // Initially each gradient has a bucket. When the order is known, two gradients share a bucket: w0
  // comes first in backward.
  struct ReversedImpl : torch::nn::Module {
    ReversedImpl()
        : early(register_parameter("early", torch::ones({300}))),
          late(register_parameter("late", torch::ones({300}))),
          big(register_parameter("big", torch::ones({600}))) {}

    torch::Tensor forward(const torch::Tensor& x) {
      return ((x * early).sum() * late).sum() * big.sum();
    }

    torch::Tensor early;
    torch::Tensor late;
    torch::Tensor big;
  };

  TORCH_MODULE(Reversed);

  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    // Reverse order of registration: big | late, early. Order of backward: late, ... differs.
    DistributedDataParallel model(
        Reversed(), group, {.bucket_cap_mb = 0.002, .first_bucket_cap_mb = 0.001});
    const torch::Tensor x = torch::full({300}, group->rank() + 1.0);
    std::vector<std::vector<at::Tensor>> of_steps;
    std::vector<const void*> places;
    for (int step = 0; step < 3; ++step) {
      // Without zero_grad(), step k must have k times the gradients of the first step.
      model(x).backward();
      of_steps.push_back(clone_gradients(model.parameters()));
      places.push_back(model.parameters()[0].grad().const_data_ptr());
    }
    EXPECT_NE(places[0], places[1]) << "buckets are rebuilt at the second forward";
    EXPECT_EQ(places[1], places[2]) << "and only there";
    for (std::size_t i = 0; i < of_steps[0].size(); ++i) {
      EXPECT_TRUE(of_steps[1][i].equal(of_steps[0][i] * 2));
      EXPECT_TRUE(of_steps[2][i].equal(of_steps[0][i] * 3));
    }
  });
}

TEST(DdpBackward, TwoPassesThroughOneForwardAreBothSynchronized) {
  on_two_ranks([](Model& model, double rank) {
    const torch::Tensor output = model(Factors{1 + rank, 2, 3});
    output.backward({}, /*retain_graph=*/true);
    output.backward();
    EXPECT_EQ(gradients_of(model), values({3, 4, 6}));
  });
}

TEST(DdpBackward, APenaltyOnTheParametersCounts) {
  on_two_ranks([](Model& model, double rank) {
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      const torch::Tensor penalty = model.module()->w[0] * 10;
      (model(Factors{1 + rank, 2, 3}) + penalty).backward();
      EXPECT_EQ(gradients_of(model), values({11.5F, 2, 3}));
    }
  });
}

TEST(DdpBackward, APenaltyAloneIsAveraged) {
  on_two_ranks([](Model& model, double rank) {
    const auto& w = model.module()->w;
    (w[0] * (1 + rank) + w[1] * 2 + w[2] * 3).backward();
    EXPECT_EQ(gradients_of(model), values({1.5F, 2, 3}));
  });
}

TEST(DdpBackward, APenaltyAloneUnderNoSyncStaysOnItsRank) {
  on_two_ranks([](Model& model, double rank) {
    if (rank == 0) {
      const NoSync guard = model.no_sync();
      (model.module()->w[0] * 10).backward();
      EXPECT_EQ(gradients_of(model)[0], 10.0F);
    }
    model(Factors{1 + rank, 2, 3}).backward();
    EXPECT_EQ(gradients_of(model), values({5 + 1.5F, 2, 3}));
  });
}

TEST(DdpBackward, InPlaceOperationsOnTheOutputAreAllowed) {
  on_two_ranks([](Model& model, double rank) {
    torch::Tensor output = model(Factors{1 + rank, 2, 3});
    output.mul_(2);
    const NoSync guard = model.no_sync();  // Has no effect: the mode of the forward pass counts.
    output.backward();
    EXPECT_EQ(gradients_of(model), values({3, 4, 6}));
  });
}

TEST(DdpBackward, AutogradGradLeavesGradientsAlone) {
  on_two_ranks([](Model& model, double rank) {
    const torch::Tensor output = model(Factors{1 + rank, 2, 3});
    const auto gradients =
        torch::autograd::grad({output}, {model.module()->w[0]}, {}, /*retain_graph=*/true);
    EXPECT_EQ(gradients[0].item<float>(), static_cast<float>(1 + rank));
    EXPECT_EQ(gradients_of(model)[0], std::nullopt);
    output.backward();
    EXPECT_EQ(gradients_of(model), values({1.5F, 2, 3}));
  });
}

TEST(DdpBackward, ForwardsWithoutGradientNeedNoOtherRank) {
  on_two_ranks([](Model& model, double rank) {
    model(Factors{1, 2, 3}).backward();
    if (rank == 0) {
      const torch::NoGradGuard no_grad;
      model.eval();
      EXPECT_EQ(model(Factors{1, 2, 3}).item<float>(), 6.0F);
      model.train();
    }
    model.zero_grad();
    model(Factors{1 + rank, 2, 3}).backward();
    EXPECT_EQ(gradients_of(model), values({1.5F, 2, 3}));
  });
}

TEST(DdpBackward, TheDestructorRemovesTheHooks) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const Scalars module;
    torch::Tensor output;
    {
      Model model(module, group);
      output = model(Factors{1, 1, 1});
    }
    // Only one rank runs backward, through a graph that the wrapper made. This backward must not
    // communicate.
    if (group->rank() == 0) {
      output.backward();
      EXPECT_EQ(module->w[0].grad().item<float>(), 1.0F);
    }
  });
}

TEST(DdpBackward, ASharedPointerToAModuleCanBeWrapped) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    DistributedDataParallel model(std::make_shared<ScalarsImpl>(), group);
    model.forward(std::vector<double>{1.0 + group->rank(), 2, 3}).backward();
    EXPECT_EQ(model.module()->w[0].grad().item<float>(), 1.5F);
  });
}

}  // namespace
}  // namespace unisono::testing
