// Common behavior of all our optimizers. tests/parity compares their steps with PyTorch.

#include "unisono/torch/optim/optimizers.h"

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>
#include <torch/types.h>

namespace unisono::optim {
namespace {

template <class Optimizer, class Options>
struct Case {
  using Type = Optimizer;

  static Options options(double lr = 0.1) { return Options(lr); }
};

torch::Tensor make_parameter_of(torch::Dtype dtype = torch::kFloat) {
  return torch::tensor({1.0, -2.0, 0.5, 3.0, -0.25, 0.125}, dtype).set_requires_grad(true);
}

void make_steps(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter, int n_steps) {
  for (int step = 0; step < n_steps; ++step) {
    parameter.mutable_grad() = parameter.detach() * 0.5 + 0.25;
    optimizer.step();
  }
}

template <class C>
class Optimizers : public ::testing::Test {};

using Cases = ::testing::Types<Case<Adadelta, AdadeltaOptions>,
                               Case<AdamW, AdamWOptions>,
                               Case<Lamb, LambOptions>,
                               Case<Lars, LarsOptions>>;
TYPED_TEST_SUITE(Optimizers, Cases);

TYPED_TEST(Optimizers, StateSurvivesSavingAndLoading) {
  using Optimizer = typename TypeParam::Type;
  const torch::Tensor whole = make_parameter_of();
  Optimizer reference({whole}, TypeParam::options());
  make_steps(reference, whole, 10);

  const torch::Tensor first = make_parameter_of();
  Optimizer before({first}, TypeParam::options());
  make_steps(before, first, 5);
  std::stringstream file;
  torch::save(before, file);
  const torch::Tensor second = first.detach().clone().set_requires_grad(true);
  Optimizer after({second}, TypeParam::options(0.5));
  torch::load(after, file);
  make_steps(after, second, 5);
  EXPECT_TRUE(second.equal(whole)) << second << whole;
}

TYPED_TEST(Optimizers, ParametersWithoutGradientStay) {
  const torch::Tensor parameter = make_parameter_of();
  typename TypeParam::Type optimizer({parameter}, TypeParam::options());
  optimizer.step();
  EXPECT_TRUE(parameter.equal(make_parameter_of()));
}

TYPED_TEST(Optimizers, AParameterThatIsZeroLearns) {
  const torch::Tensor parameter = torch::zeros({3}).set_requires_grad(true);
  typename TypeParam::Type optimizer({parameter}, TypeParam::options());
  make_steps(optimizer, parameter, 2);
  EXPECT_TRUE(parameter.lt(0).all().template item<bool>()) << parameter;
}

TYPED_TEST(Optimizers, AGradientOfZeroLeavesNumbersFinite) {
  const torch::Tensor parameter = make_parameter_of();
  typename TypeParam::Type optimizer({parameter}, TypeParam::options());
  parameter.mutable_grad() = torch::zeros({6});
  optimizer.step();
  EXPECT_TRUE(parameter.isfinite().all().template item<bool>()) << parameter;
}

TYPED_TEST(Optimizers, HalfPrecisionTakesStepsOfItsOwnAccuracy) {
  const torch::Tensor wide = make_parameter_of();
  typename TypeParam::Type of_wide({wide}, TypeParam::options());
  make_steps(of_wide, wide, 1);
  const torch::Tensor narrow = make_parameter_of(torch::kBFloat16);
  typename TypeParam::Type of_narrow({narrow}, TypeParam::options());
  make_steps(of_narrow, narrow, 1);
  EXPECT_TRUE(narrow.to(torch::kFloat).allclose(wide, 1e-2)) << narrow << wide;
}

TYPED_TEST(Optimizers, TheClosuresLossComesBack) {
  const torch::Tensor parameter = make_parameter_of();
  typename TypeParam::Type optimizer({parameter}, TypeParam::options());
  const torch::Tensor loss = optimizer.step([&] {
    torch::Tensor sum = parameter.square().sum();
    sum.backward();
    return sum;
  });
  EXPECT_EQ(loss.item<float>(), make_parameter_of().square().sum().template item<float>());
  EXPECT_FALSE(parameter.equal(make_parameter_of()));
}

TYPED_TEST(Optimizers, SparseGradientsAreRejected) {
  const torch::Tensor parameter = make_parameter_of();
  typename TypeParam::Type optimizer({parameter}, TypeParam::options());
  parameter.mutable_grad() = torch::ones({6}).to_sparse();
  EXPECT_THAT([&] { optimizer.step(); },
              ::testing::ThrowsMessage<c10::Error>(::testing::HasSubstr("dense gradients")));
}

// Returns the stderr of a new thread that calls `steps` twice.
std::string warnings_of(const std::function<void(const torch::Tensor& parameter)>& steps) {
  ::testing::internal::CaptureStderr();
  std::thread([&] {
    const torch::Tensor parameter = make_parameter_of();
    for (int i = 0; i < 2; ++i) {
      parameter.mutable_grad() = torch::ones_like(parameter);
      steps(parameter);
    }
  }).join();
  return ::testing::internal::GetCapturedStderr();
}

TYPED_TEST(Optimizers, OneForEachStepIsSaidOnce) {
  const std::string sentence = "first of a new optimizer";
  const std::string text = warnings_of([](const torch::Tensor& parameter) {
    for (int i = 0; i < 3; ++i) {
      typename TypeParam::Type optimizer({parameter}, TypeParam::options());
      optimizer.step();
    }
  });
  ASSERT_THAT(text, ::testing::HasSubstr(sentence));
  EXPECT_EQ(text.find(sentence, text.find(sentence) + 1), std::string::npos);
  // An optimizer that makes several steps, and optimizers of different parameters.
  EXPECT_EQ(warnings_of([](const torch::Tensor& parameter) {
              typename TypeParam::Type optimizer({parameter}, TypeParam::options());
              optimizer.step();
              optimizer.step();
              const torch::Tensor other = make_parameter_of();
              other.mutable_grad() = torch::ones_like(other);
              typename TypeParam::Type of_other({other}, TypeParam::options());
              of_other.step();
            }),
            "");
}

TYPED_TEST(Optimizers, ANegativeRateIsRejected) {
  EXPECT_THROW(typename TypeParam::Type({make_parameter_of()}, TypeParam::options(-1)), c10::Error);
}

TEST(AdamW, OptionsOutOfRangeAreRejected) {
  EXPECT_THROW(AdamW({make_parameter_of()}, AdamWOptions().betas(Betas(1, 0.9))), c10::Error);
  EXPECT_THROW(AdamW({make_parameter_of()}, AdamWOptions().betas(Betas(0.9, -1))), c10::Error);
  EXPECT_THROW(AdamW({make_parameter_of()}, AdamWOptions().eps(-1)), c10::Error);
  EXPECT_THROW(AdamW({make_parameter_of()}, AdamWOptions().weight_decay(-1)), c10::Error);
}

TEST(Lars, OptionsOutOfRangeAreRejected) {
  EXPECT_THROW(Lars({make_parameter_of()}, LarsOptions(1).momentum(-1)), c10::Error);
  EXPECT_THROW(Lars({make_parameter_of()}, LarsOptions(1).weight_decay(-1)), c10::Error);
  EXPECT_THROW(Lars({make_parameter_of()}, LarsOptions(1).trust_coefficient(-1)), c10::Error);
  EXPECT_THROW(Lars({make_parameter_of()}, LarsOptions(1).eps(-1)), c10::Error);
}

}  // namespace
}  // namespace unisono::optim
