#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sim_device/quiet_end.h"
#include "sim_device/test_tensors.h"

namespace sim {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;
using Values = std::vector<Tensor>;

/// A function of tensors that is compared with the CPU, in both directions.
struct OperatorCase {
  std::string name;
  std::vector<std::vector<std::int64_t>> shapes;
  std::function<Tensor(const Values&)> function;
  bool has_gradient = true;
};

void PrintTo(const OperatorCase& operator_case, std::ostream* out) {
  *out << operator_case.name;
}

Tensor indices(const Tensor& like, std::initializer_list<std::int64_t> values) {
  return torch::tensor(at::IntArrayRef(values)).to(like.device());
}

std::vector<OperatorCase> pointwise_cases() {
  std::vector<OperatorCase> cases;
  const auto add = [&](const char* name, Tensor (*function)(const Tensor&)) {
    // Positive arguments, for logarithms and roots.
    cases.push_back(
        {name, {{6, 6}}, [function](const Values& v) { return function(v[0].abs() + 0.1); }});
  };
  add("exp", at::exp);
  add("log", at::log);
  add("sqrt", at::sqrt);
  add("rsqrt", at::rsqrt);
  add("reciprocal", at::reciprocal);
  add("tanh", at::tanh);
  add("sigmoid", at::sigmoid);
  add("relu", at::relu);
  add("silu", at::silu);
  add("mish", at::mish);
  add("hardswish", at::hardswish);
  add("erf", at::erf);
  add("lgamma", at::lgamma);
  add("floor", at::floor);
  add("sin", at::sin);
  add("neg", at::neg);
  add("inverse", at::inverse);
  add("logdet", at::logdet);
  add("trace", at::trace);
  return cases;
}

std::vector<OperatorCase> reduction_cases() {
  return {
      {"gelu", {{4, 5}}, [](const Values& v) { return at::gelu(v[0]); }},
      {"softmax", {{4, 5}}, [](const Values& v) { return at::softmax(v[0], 1); }},
      {"log_softmax", {{4, 5}}, [](const Values& v) { return at::log_softmax(v[0], 1); }},
      {"logsumexp", {{4, 5}}, [](const Values& v) { return at::logsumexp(v[0], 1); }},
      {"mean_var_std",
       {{4, 5}},
       [](const Values& v) { return v[0].mean(0) + v[0].var(0) + v[0].std(0); }},
      {"norm", {{4, 5}}, [](const Values& v) { return v[0].norm(2, {1}); }},
      {"cumsum_cumprod",
       {{4, 5}},
       [](const Values& v) { return v[0].cumsum(1) + v[0].cumprod(0); }},
      {"max_min",
       {{4, 5}},
       [](const Values& v) {
         return std::get<0>(v[0].max(1)) + std::get<0>(v[0].min(1)) + v[0].amax({1});
       }},
      {"sort_topk",
       {{4, 5}},
       [](const Values& v) {
         return std::get<0>(v[0].sort(1)).sum(1) + std::get<0>(v[0].topk(2, 1)).sum(1);
       }},
      {"prod", {{4, 5}}, [](const Values& v) { return at::prod(v[0]); }},
  };
}

std::vector<OperatorCase> matrix_cases() {
  return {
      {"matmul_bmm_einsum",
       {{3, 4, 5}, {3, 5, 2}},
       [](const Values& v) {
         return at::matmul(v[0], v[1]) + at::bmm(v[0], v[1]) +
                at::einsum("bij,bjk->bik", {v[0], v[1]});
       }},
      {"addmm",
       {{4, 2}, {4, 5}, {5, 2}},
       [](const Values& v) { return at::addmm(v[0], v[1], v[2], 0.5, 2); }},
      {"cholesky_solve_svd",
       {{5, 5}},
       [](const Values& v) {
         const auto a = v[0].mm(v[0].t()) + 5 * at::eye(5, v[0].detach().options());
         return at::linalg_cholesky(a) + at::linalg_solve(a, v[0]) + std::get<1>(at::linalg_svd(a));
       }},
      {"fft", {{4, 8}}, [](const Values& v) { return at::fft_irfft(at::fft_rfft(v[0])); }},
      {"complex",
       {{4, 2}},
       [](const Values& v) {
         const auto c = at::view_as_complex(v[0].contiguous());
         return at::view_as_real(c * c.conj());
       }},
      {"cdist", {{4, 5}, {3, 5}}, [](const Values& v) { return at::cdist(v[0], v[1]); }},
      {"triangles",
       {{5, 5}},
       [](const Values& v) { return v[0].tril() + v[0].triu(1) + v[0].diag().diag_embed(); }},
  };
}

std::vector<OperatorCase> shape_cases() {
  return {
      {"where_clamp",
       {{4, 5}, {4, 5}},
       [](const Values& v) {
         return at::where(v[0] > 0, v[0], v[1]).clamp(-1, 1) + at::maximum(v[0], v[1]);
       }},
      {"gather_scatter",
       {{4, 5}},
       [](const Values& v) {
         const auto i = at::zeros({4, 2}, at::TensorOptions(at::kLong).device(v[0].device()));
         return v[0].gather(1, i) + v[0].scatter_add(1, i, v[0].slice(1, 0, 2)).slice(1, 0, 2);
       }},
      {"index_put",
       {{4, 5}},
       [](const Values& v) {
         const auto i = indices(v[0], {1, 3, 1});
         auto y = v[0].clone();
         y.index_put_({i}, v[0].index({i}) * 2, true);
         return y;
       }},
      {"index_from_the_cpu",
       {{4, 5}},
       [](const Values& v) { return v[0].index({torch::tensor({1, 3, 1})}); }},
      {"index_by_mask", {{4, 5}}, [](const Values& v) { return v[0].index({v[0] > 0}); }},
      {"masked",
       {{4, 5}},
       [](const Values& v) {
         return v[0].masked_fill(v[0] > 0, 1.5).sum() + v[0].masked_select(v[0] > 0).sum();
       }},
      {"unfold_pad_roll_flip",
       {{4, 6}},
       [](const Values& v) {
         return v[0].unfold(1, 2, 2).sum(2) +
                F::pad(v[0], F::PadFuncOptions({1, 1})).slice(1, 0, 3) +
                v[0].roll(1, 1).slice(1, 0, 3) + v[0].flip(1).slice(1, 0, 3);
       }},
      {"chunk_cat_stack",
       {{4, 6}},
       [](const Values& v) {
         const auto s = v[0].chunk(3, 1);
         return torch::cat({s[0], s[2]}, 0) + torch::stack({s[0], s[1]}).view({8, 2});
       }},
      {"expand_repeat",
       {{1, 6}},
       [](const Values& v) { return v[0].expand({3, 6}) + v[0].repeat({3, 1}); }},
      {"repeat_interleave_unique_bincount",
       {{6}},
       [](const Values& v) {
         const auto i = indices(v[0], {0, 2, 1, 2, 0, 1});
         return v[0].repeat_interleave(i).sum() + std::get<0>(at::_unique2(i)).sum() +
                at::bincount(i).sum();
       },
       false},
      {"histc_bucketize",
       {{20}},
       [](const Values& v) {
         return at::histc(v[0], 5) + at::bucketize(v[0].slice(0, 0, 5), std::get<0>(v[0].sort()));
       },
       false},
      {"nan_to_num", {{4, 5}}, [](const Values& v) { return at::nan_to_num(v[0] / 0); }, false},
  };
}

std::vector<OperatorCase> layer_cases() {
  return {
      {"conv1d",
       {{2, 3, 8}, {4, 3, 3}, {4}},
       [](const Values& v) { return at::conv1d(v[0], v[1], v[2]); }},
      {"conv2d",
       {{2, 4, 8, 8}, {4, 2, 3, 3}, {4}},
       [](const Values& v) { return at::conv2d(v[0], v[1], v[2], 2, 1, 2, 2); }},
      {"conv2d_channels_last",
       {{2, 4, 8, 8}, {4, 4, 3, 3}},
       [](const Values& v) {
         return at::conv2d(v[0].contiguous(at::MemoryFormat::ChannelsLast), v[1]);
       }},
      {"conv3d",
       {{1, 2, 4, 4, 4}, {2, 2, 3, 3, 3}},
       [](const Values& v) { return at::conv3d(v[0], v[1]); }},
      {"conv_transpose2d",
       {{2, 4, 5, 5}, {4, 3, 3, 3}},
       [](const Values& v) { return at::conv_transpose2d(v[0], v[1]); }},
      {"pooling",
       {{2, 3, 8, 8}},
       [](const Values& v) {
         return at::max_pool2d(v[0], 2) + at::avg_pool2d(v[0], 2) +
                at::adaptive_avg_pool2d(v[0], {4, 4});
       }},
      {"batch_norm",
       {{6, 4}, {4}, {4}},
       [](const Values& v) {
         const auto mean = at::zeros({4}, v[0].detach().options());
         const auto var = at::ones_like(mean);
         const auto y = at::batch_norm(v[0], v[1], v[2], mean, var, true, 0.1, 1e-5, false);
         return y + mean + var;
       }},
      {"layer_norm",
       {{6, 4}, {4}, {4}},
       [](const Values& v) { return at::layer_norm(v[0], {4}, v[1], v[2]); }},
      {"group_norm",
       {{2, 4, 3, 3}, {4}, {4}},
       [](const Values& v) { return at::group_norm(v[0], 2, v[1], v[2]); }},
      {"instance_norm",
       {{2, 4, 3, 3}},
       [](const Values& v) {
         return at::instance_norm(v[0], {}, {}, {}, {}, true, 0.1, 1e-5, false);
       }},
      {"rms_norm", {{6, 4}, {4}}, [](const Values& v) { return at::rms_norm(v[0], {4}, v[1]); }},
      {"embedding",
       {{10, 4}},
       [](const Values& v) { return at::embedding(v[0], indices(v[0], {1, 3, 3, 0})); }},
      {"embedding_bag",
       {{10, 4}},
       [](const Values& v) {
         return std::get<0>(
             at::embedding_bag(v[0], indices(v[0], {1, 3, 3, 0}), indices(v[0], {0, 2})));
       }},
      {"upsample",
       {{2, 3, 4, 4}},
       [](const Values& v) {
         return at::upsample_nearest2d(v[0], {8, 8}) + at::upsample_bilinear2d(v[0], {8, 8}, false);
       }},
      {"grid_sampler",
       {{1, 2, 4, 4}, {1, 3, 3, 2}},
       [](const Values& v) { return at::grid_sampler(v[0], v[1].tanh(), 0, 0, false); }},
      {"multi_head_attention",
       {{5, 2, 8}},
       [](const Values& v) {
         torch::manual_seed(5);
         torch::nn::MultiheadAttention attention(8, 2);
         attention->to(v[0].device());
         return std::get<0>(attention(v[0], v[0], v[0]));
       }},
      {"scaled_dot_product_attention",
       {{2, 2, 6, 8}, {2, 2, 6, 8}, {2, 2, 6, 8}},
       [](const Values& v) {
         return at::scaled_dot_product_attention(v[0], v[1], v[2]) +
                at::scaled_dot_product_attention(v[0], v[1], v[2], {}, 0, true);
       }},
      {"masked_attention",
       {{2, 2, 6, 8}, {2, 2, 6, 8}, {2, 2, 6, 8}, {6, 6}},
       [](const Values& v) {
         return at::scaled_dot_product_attention(v[0], v[1], v[2], v[3].detach()) +
                at::scaled_dot_product_attention(v[0], v[1], v[2], v[3]);
       }},
      {"recurrent",
       {{5, 2, 3}},
       [](const Values& v) {
         torch::manual_seed(5);
         torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true));
         torch::nn::GRU gru(3, 8);
         torch::nn::RNN rnn(3, 8);
         lstm->to(v[0].device());
         gru->to(v[0].device());
         rnn->to(v[0].device());
         return std::get<0>(lstm(v[0])) + std::get<0>(gru(v[0])) + std::get<0>(rnn(v[0]));
       }},
  };
}

std::vector<OperatorCase> loss_cases() {
  return {
      {"cross_entropy",
       {{4, 5}},
       [](const Values& v) { return F::cross_entropy(v[0], indices(v[0], {1, 3, 3, 0})); }},
      {"losses",
       {{4, 5}, {4, 5}},
       [](const Values& v) {
         const auto target = v[1].detach();
         return at::mse_loss(v[0], target) + at::l1_loss(v[0], target) +
                at::smooth_l1_loss(v[0], target) + at::huber_loss(v[0], target) +
                at::binary_cross_entropy_with_logits(v[0], target.sigmoid());
       }},
      {"ctc_loss",
       {{12, 2, 5}},
       [](const Values& v) {
         const auto targets = torch::tensor({{1, 2}, {3, 4}}).to(v[0].device());
         return at::ctc_loss(v[0].log_softmax(2), targets, {12, 12}, {2, 2});
       }},
  };
}

std::vector<OperatorCase> random_cases() {
  return {
      {"dropout", {{40, 5}}, [](const Values& v) { return at::dropout(v[0], 0.3, true); }},
      {"feature_dropout",
       {{4, 5, 3, 3}},
       [](const Values& v) {
         return at::feature_dropout(v[0], 0.3, true) + at::alpha_dropout(v[0], 0.2, true);
       }},
      {"bernoulli_multinomial",
       {{4, 5}},
       [](const Values& v) {
         return at::bernoulli(v[0].sigmoid()).sum(1) + at::multinomial(v[0].softmax(1), 2).sum(1);
       },
       false},
      {"normal_uniform_exponential",
       {{4, 5}},
       [](const Values& v) {
         return at::empty_like(v[0]).normal_() + at::empty_like(v[0]).uniform_(-1, 1) +
                at::empty_like(v[0]).exponential_();
       },
       false},
      {"rrelu_randint",
       {{4, 5}},
       [](const Values& v) {
         return at::rrelu(v[0], 0.1, 0.3, true) + at::randint(5, {4, 5}, v[0].detach().options());
       }},
  };
}

std::vector<OperatorCase> all_cases() {
  std::vector<OperatorCase> all;
  for (auto cases : {pointwise_cases(),
                     reduction_cases(),
                     matrix_cases(),
                     shape_cases(),
                     layer_cases(),
                     loss_cases(),
                     random_cases()}) {
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

class Operators : public QuietEnd, public ::testing::WithParamInterface<OperatorCase> {
 protected:
  Operators() { torch::set_num_threads(1); }

  // Returns the result and the gradients of the arguments.
  static Values run(c10::Device device) {
    const OperatorCase& tested = GetParam();
    torch::manual_seed(4);
    Values arguments;
    for (const auto& shape : tested.shapes) {
      const Tensor values = torch::randn(shape);
      arguments.push_back(values.to(device).detach().set_requires_grad(tested.has_gradient));
    }
    torch::manual_seed(9);
    const Tensor result = tested.function(arguments);
    Values results{result};
    if (tested.has_gradient) {
      const auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
      const Tensor gradient = torch::randn(result.sizes(), generator).to(result.scalar_type());
      result.backward(gradient.to(device));
      for (const Tensor& argument : arguments) {
        if (argument.grad().defined()) {
          results.push_back(argument.grad());
        }
      }
    }
    return results;
  }
};

TEST_P(Operators, HaveTheBitsOfTheCpu) {
  const Values cpu = run(c10::kCPU);
  const Values sim = run(sim_device(0));
  ASSERT_EQ(cpu.size(), sim.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_TRUE(same_bits(cpu[i], sim[i]))
        << (i == 0 ? "result" : "gradient") << " " << i << " on the CPU\n"
        << cpu[i] << "\non the device\n"
        << sim[i].cpu();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Operators, ::testing::ValuesIn(all_cases()), [](const auto& tested) {
  return tested.param.name;
});

}  // namespace
}  // namespace sim
