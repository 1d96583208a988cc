// Replicas of a module in the threads of one process.

#include "unisono/torch/nn/data_parallel.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "canonical.h"
#include "models.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using nn::DataParallel;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void expect_close(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(ours.size(), expected.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LE((ours[i] - expected[i]).abs().max().item<double>(),
              1e-9 * expected[i].abs().max().item<double>());
  }
}

ConvNet double_net() {
  ConvNet net = make_seeded_net();
  net->to(torch::kDouble);
  return net;
}

class DataParallelTraining : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Replicas, DataParallelTraining, ::testing::Values(1, 2, 3, 8));

TEST_P(DataParallelTraining, EqualsTheModuleAlone) {
  const ConvNet net = double_net();
  ConvNet alone = clone_of(net);
  DataParallel<ConvNet> model(net, double_net, {.n_replicas = GetParam()});
  const torch::optim::SGDOptions options = torch::optim::SGDOptions(0.05).momentum(0.9);
  torch::optim::SGD optimizer(model.parameters(), options);
  torch::optim::SGD of_alone(alone->parameters(), options);
  for (int step = 0; step < 8; ++step) {
    // Seven samples can't be divided equally or into eight parts.
    const Sample sample = make_sample(step, 0, 7, torch::kDouble);
    optimizer.zero_grad();
    of_alone.zero_grad();
    const torch::Tensor loss = loss_of(model, sample);
    const torch::Tensor of_single = loss_of(alone, sample);
    EXPECT_NEAR(loss.item<double>(), of_single.item<double>(), 1e-12);
    loss.backward();
    of_single.backward();
    expect_close(clone_gradients(net->parameters()), clone_gradients(alone->parameters()));
    optimizer.step();
    of_alone.step();
  }
  expect_close(model.parameters(), alone->parameters());
  EXPECT_FALSE(net->parameters()[0].allclose(double_net()->parameters()[0]));
}

TEST(DataParallel, ClonesAModuleThatCanBe) {
  torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::Tanh());
  net->to(torch::kDouble);
  DataParallel model(net, {.n_replicas = 3});
  EXPECT_EQ(model.n_replicas(), 3U);
  const torch::Tensor x = torch::randn({5, 4}, torch::kDouble);
  EXPECT_TRUE(model(x).allclose(net->forward(x)));
  EXPECT_EQ(DataParallel(net).n_replicas(), static_cast<std::size_t>(torch::get_num_threads()));
}

struct NamedLayersImpl : torch::nn::Cloneable<NamedLayersImpl> {
  NamedLayersImpl() { reset(); }

  void reset() override {
    layers = register_module("layers",
                             torch::nn::Sequential({{"wide", torch::nn::Linear(3, 5)},
                                                    {"act", torch::nn::Tanh()},
                                                    {"narrow", torch::nn::Linear(5, 3)}}));
  }

  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }

  torch::nn::Sequential layers{nullptr};
};

TORCH_MODULE(NamedLayers);

TEST(DataParallel, ClonesASequentialWhoseModulesHaveNames) {
  torch::nn::Sequential net({{"first", torch::nn::Linear(4, 3)}, {"within", NamedLayers()}});
  net->to(torch::kDouble);
  DataParallel model(net, {.n_replicas = 2});
  const torch::Tensor x = torch::randn({4, 4}, torch::kDouble);
  EXPECT_TRUE(model(x).allclose(net->forward(x)));
  model(x).sum().backward();
  const std::vector<at::Tensor> gradients = clone_gradients(net->parameters());
  net->zero_grad();
  net->forward(x).sum().backward();
  expect_close(gradients, clone_gradients(net->parameters()));
}

TEST(DataParallel, RefusesReplicasThatAreNoCopies) {
  const torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::Tanh());
  expect_error(ErrorCode::kInvalidArgument,
               AllOf(HasSubstr("DataParallel: the module can't be copied"),
                     HasSubstr("torch::nn::Cloneable")),
               [] { const DataParallel model(ConvNet(), {.n_replicas = 2}); });
  expect_error(ErrorCode::kInvalidArgument, HasSubstr("n_replicas is -1"), [&] {
    const DataParallel model(net, {.n_replicas = -1});
  });
  expect_error(
      ErrorCode::kInvalidArgument,
      HasSubstr("a replica has no parameter '0.weight' like the module's"),
      [&] {
        const DataParallel<torch::nn::Sequential> model(
            net,
            [] { return torch::nn::Sequential(torch::nn::Linear(4, 2), torch::nn::Tanh()); },
            {.n_replicas = 2});
      });
  expect_error(ErrorCode::kInvalidArgument,
               HasSubstr("the module's own parameter '0.weight'"),
               [&] { const DataParallel<torch::nn::Sequential> model(net, [&] { return net; }); });
}

// A meeting of replicas, which must all be running at the same time.
class Meeting {
 public:
  explicit Meeting(int n) : n_missing_(n) {}

  // Returns true if all have arrived.
  bool attend() {
    --n_missing_;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (n_missing_ > 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    return n_missing_ <= 0;
  }

 private:
  std::atomic<int> n_missing_;
};

Meeting* the_meeting = nullptr;

struct MeetInBackward : torch::autograd::Function<MeetInBackward> {
  static torch::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                               const torch::Tensor& x) {
    return x.clone();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    EXPECT_TRUE(the_meeting->attend());
    return gradients;
  }
};

struct MeeterImpl : torch::nn::Cloneable<MeeterImpl> {
  MeeterImpl() { reset(); }

  void reset() override { weight = register_parameter("weight", torch::ones({1})); }

  torch::Tensor forward(const torch::Tensor& x) const {
    EXPECT_TRUE(the_meeting->attend());
    return MeetInBackward::apply(x * weight);
  }

  torch::Tensor weight;
};

TORCH_MODULE(Meeter);

TEST(DataParallel, RunsReplicasAtTheSameTime) {
  constexpr int kReplicas = 3;
  DataParallel model(Meeter(), {.n_replicas = kReplicas});
  Meeting in_forward(kReplicas);
  the_meeting = &in_forward;
  const torch::Tensor result = model(torch::ones({kReplicas}));
  Meeting in_backward(kReplicas);
  the_meeting = &in_backward;
  result.sum().backward();
  EXPECT_EQ(model.parameters()[0].grad().item<float>(), 3);
}

struct PickyImpl : torch::nn::Cloneable<PickyImpl> {
  PickyImpl() { reset(); }

  void reset() override { weight = register_parameter("weight", torch::ones({1})); }

  torch::Tensor forward(const torch::Tensor& x, const std::string& complaint) const {
    if (x.lt(0).any().item<bool>()) {
      throw std::runtime_error(complaint);
    }
    return torch::matmul(x, weight.expand({x.size(1), 1}));
  }

  torch::Tensor weight;
};

TORCH_MODULE(Picky);

TEST(DataParallel, NamesTheReplicaThatFails) {
  DataParallel model(Picky(), {.n_replicas = 2});
  torch::Tensor x = torch::ones({4, 2});
  x[2][0] = -1;
  expect_error(ErrorCode::kInvalidArgument,
               HasSubstr("DataParallel: replica 1 of 2: negative"),
               [&] { (void)model(x, "negative"); });
  EXPECT_TRUE(model(x.abs(), "").eq(2).all().item<bool>()) << "the next pass is a good one";
}

TEST(DataParallel, TheMessageOfLibTorchComesWithoutItsStack) {
  DataParallel model(torch::nn::Linear(2, 1), {.n_replicas = 2});
  expect_error(ErrorCode::kInvalidArgument,
               AllOf(HasSubstr("DataParallel: replica 0 of 2: mat1 and mat2 shapes"),
                     Not(HasSubstr("Exception raised from")),
                     Not(HasSubstr("frame #"))),
               [&] { (void)model(torch::ones({4, 3})); });
}

TEST(DataParallel, CutsTensorsAlikeOrSaysWhatCannotBeCut) {
  DataParallel model(torch::nn::Bilinear(2, 2, 1), {.n_replicas = 2});
  EXPECT_EQ(model(torch::ones({3, 2}), torch::ones({3, 2})).size(0), 3);
  EXPECT_EQ(model(torch::ones({0, 2}), torch::ones({0, 2})).size(0), 0);
  expect_error(ErrorCode::kInvalidArgument,
               HasSubstr("tensor 1 of forward()'s arguments has 4 elements along dimension 0, and "
                         "tensor 0 has 3"),
               [&] { (void)model(torch::ones({3, 2}), torch::ones({4, 2})); });
  expect_error(ErrorCode::kInvalidArgument,
               HasSubstr("tensor 0 of forward()'s arguments has 0 dimensions"),
               [&] { (void)model(torch::tensor(1.0), torch::ones({4, 2})); });
}

struct ManyImpl : torch::nn::Cloneable<ManyImpl> {
  ManyImpl() { reset(); }

  void reset() override {
    weight = register_parameter("weight", torch::full({1}, 2.0));
    unused = register_parameter("unused", torch::ones({1}));
  }

  using Result = std::tuple<torch::Tensor, std::vector<torch::Tensor>, int>;

  Result forward(const torch::Tensor& x, int number) const {
    return {x * weight, {(x * weight).sum(), x.gt(1)}, number};
  }

  torch::Tensor weight;
  torch::Tensor unused;
};

TORCH_MODULE(Many);

TEST(DataParallel, PutsResultsOfAnyFormTogether) {
  DataParallel model(Many(), {.n_replicas = 2});
  const torch::Tensor x = torch::arange(5.0).requires_grad_();
  const auto [product, list, number] = model(x, 7);
  EXPECT_TRUE(product.equal(torch::arange(5.0) * 2));
  EXPECT_TRUE(list[0].equal(torch::tensor({6.0F, 14.0F}))) << "of each replica one";
  EXPECT_TRUE(list[1].equal(torch::arange(5).gt(1)));
  EXPECT_EQ(number, 7);
  // Runs backward twice through the same graph, the second time from only one result.
  (product.sum() + list[0][1]).backward({}, /*retain_graph=*/true);
  EXPECT_TRUE(x.grad().equal(torch::tensor({2.0F, 2.0F, 2.0F, 4.0F, 4.0F})));
  EXPECT_EQ(model.module()->weight.grad().item<float>(), 10 + 7);
  EXPECT_FALSE(model.module()->unused.grad().defined());
  list[0].sum().backward();
  EXPECT_EQ(model.module()->weight.grad().item<float>(), 17 + 10);
  expect_error(ErrorCode::kInvalidArgument, HasSubstr("backward() for the second time"), [&] {
    list[0].sum().backward();
  });
}

TEST(DataParallel, TwoPassesMayPrecedeABackwardPass) {
  DataParallel model(Many(), {.n_replicas = 2});
  const torch::Tensor first = std::get<0>(model(torch::ones({4}), 0)).sum();
  const torch::Tensor second = std::get<0>(model(torch::ones({2}), 0)).sum();
  (first * 10 + second).backward();
  EXPECT_EQ(model.module()->weight.grad().item<float>(), 42);
  // Only requested gradients are computed.
  const torch::Tensor x = torch::ones({4}).requires_grad_();
  const auto of_x = torch::autograd::grad({std::get<0>(model(x, 0)).sum()}, {x});
  EXPECT_TRUE(of_x[0].eq(2).all().item<bool>());
  EXPECT_EQ(model.module()->weight.grad().item<float>(), 42);
}

TEST(DataParallel, ReplicasFollowTheModule) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(1).momentum(1.0)),
                            torch::nn::Linear(1, 1));
  DataParallel model(net, {.n_replicas = 2});
  const torch::Tensor x = torch::tensor({{1.0F}, {3.0F}, {50.0F}, {70.0F}});
  model(x).sum().backward();
  const auto mean = [&] { return net->named_buffers()["0.running_mean"].item<float>(); };
  EXPECT_EQ(mean(), 2) << "of replica 0's half";
  EXPECT_EQ(net->named_buffers()["0.num_batches_tracked"].item<std::int64_t>(), 1);
  model.eval();
  {
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(model(x).allclose(net->forward(x)));
    EXPECT_EQ(mean(), 2);
    EXPECT_FALSE(model(x).requires_grad());
  }
  // Loads values into new memory and freezes a layer.
  torch::nn::Sequential other(torch::nn::BatchNorm1d(1), torch::nn::Linear(1, 1));
  std::stringstream file;
  torch::save(other, file);
  torch::load(net, file);
  net->parameters()[0].set_requires_grad(false);
  net->zero_grad();
  other->eval();
  const torch::Tensor result = model(x);
  EXPECT_TRUE(result.allclose(other->forward(x)));
  result.sum().backward();
  EXPECT_FALSE(net->parameters()[0].grad().defined());
  EXPECT_TRUE(net->parameters()[2].grad().defined());
}

TEST(DataParallel, LeavesTheNumberOfComputeThreadsAsItIs) {
  constexpr int kThreads = 6;
  const int before = torch::get_num_threads();
  torch::set_num_threads(kThreads);
  {
    DataParallel model(Many(), {.n_replicas = 4});
    EXPECT_EQ(torch::get_num_threads(), kThreads);
    (void)model(torch::ones({4}), 0);
  }
  int of_new_thread = 0;
  std::thread([&] { of_new_thread = torch::get_num_threads(); }).join();
  EXPECT_EQ(of_new_thread, kThreads);
  torch::set_num_threads(before);
}

}  // namespace
}  // namespace unisono::testing
