#include "unisono/torch/optim/adadelta.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include "unisono/torch/optim/adadelta_step.h"

namespace unisono::optim {
namespace {

// Whether the elements of all lie in memory in the same order, without gaps.
bool is_one_layout(const at::Tensor& parameter,
                   const at::Tensor& gradient,
                   const AdadeltaParamState& state) {
  return parameter.is_non_overlapping_and_dense() && gradient.strides() == parameter.strides() &&
         gradient.scalar_type() == parameter.scalar_type() && gradient.device().is_cpu() &&
         state.square_avg().strides() == parameter.strides() &&
         state.acc_delta().strides() == parameter.strides();
}

template <class T>
void step_in_one_pass(const at::Tensor& parameter,
                      const at::Tensor& gradient,
                      const AdadeltaParamState& state,
                      const AdadeltaConstants& constants) {
  adadelta_step(parameter.data_ptr<T>(),
                gradient.const_data_ptr<T>(),
                state.square_avg().data_ptr<T>(),
                state.acc_delta().data_ptr<T>(),
                static_cast<std::size_t>(parameter.numel()),
                constants);
}

void step_by_operators(const at::Tensor& parameter,
                       at::Tensor gradient,
                       const AdadeltaParamState& state,
                       const AdadeltaConstants& constants) {
  if (constants.weight_decay != 0) {
    gradient = gradient.add(parameter, constants.weight_decay);
  }
  state.square_avg().mul_(constants.rho).addcmul_(gradient, gradient, 1 - constants.rho);
  const at::Tensor delta = state.acc_delta()
                               .add(constants.eps)
                               .sqrt_()
                               .div_(state.square_avg().add(constants.eps).sqrt_())
                               .mul_(gradient);
  state.acc_delta().mul_(constants.rho).addcmul_(delta, delta, 1 - constants.rho);
  parameter.add_(delta, -constants.lr);
}

}  // namespace

void AdadeltaOptions::serialize(::torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(rho);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
}

void AdadeltaOptions::serialize(::torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, rho);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
}

void AdadeltaParamState::serialize(::torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(square_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(acc_delta);
}

void AdadeltaParamState::serialize(::torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::int64_t, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, square_avg);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, acc_delta);
}

Adadelta::Adadelta(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                   const AdadeltaOptions& defaults)
    : Optimizer(groups, std::make_unique<AdadeltaOptions>(defaults)) {
  TORCH_CHECK(defaults.lr() >= 0, "Invalid learning rate: ", defaults.lr());
  TORCH_CHECK(defaults.rho() >= 0 && defaults.rho() <= 1, "Invalid rho value: ", defaults.rho());
  TORCH_CHECK(defaults.eps() >= 0, "Invalid epsilon value: ", defaults.eps());
  TORCH_CHECK(
      defaults.weight_decay() >= 0, "Invalid weight_decay value: ", defaults.weight_decay());
}

Adadelta::Adadelta(std::vector<at::Tensor> parameters, const AdadeltaOptions& defaults)
    : Adadelta({::torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}

at::Tensor Adadelta::step(LossClosure closure) {
  const c10::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  for (::torch::optim::OptimizerParamGroup& group : param_groups_) {
    const auto& options = static_cast<const AdadeltaOptions&>(group.options());
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined()) {
        step_parameter(parameter, options);
      }
    }
  }
  return loss;
}

void Adadelta::step_parameter(const at::Tensor& parameter, const AdadeltaOptions& options) {
  const at::Tensor& gradient = parameter.grad();
  TORCH_CHECK(!gradient.is_sparse(), "Adadelta does not support sparse gradients");
  std::unique_ptr<::torch::optim::OptimizerParamState>& slot =
      state_[parameter.unsafeGetTensorImpl()];
  if (slot == nullptr) {
    auto fresh = std::make_unique<AdadeltaParamState>();
    fresh->square_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    fresh->acc_delta(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    slot = std::move(fresh);
  }
  auto& state = static_cast<AdadeltaParamState&>(*slot);
  state.step(state.step() + 1);
  const AdadeltaConstants constants{.lr = options.lr(),
                                    .rho = options.rho(),
                                    .eps = options.eps(),
                                    .weight_decay = options.weight_decay()};
  const at::ScalarType type = parameter.scalar_type();
  if (type == at::kFloat && is_one_layout(parameter, gradient, state)) {
    step_in_one_pass<float>(parameter, gradient, state, constants);
  } else if (type == at::kDouble && is_one_layout(parameter, gradient, state)) {
    step_in_one_pass<double>(parameter, gradient, state, constants);
  } else {
    step_by_operators(parameter, gradient, state, constants);
  }
}

void Adadelta::save(::torch::serialize::OutputArchive& archive) const {
  ::torch::optim::serialize<AdadeltaParamState, AdadeltaOptions>(archive, *this);
}

void Adadelta::load(::torch::serialize::InputArchive& archive) {
  ::torch::optim::serialize<AdadeltaParamState, AdadeltaOptions>(archive, *this);
}

}  // namespace unisono::optim
