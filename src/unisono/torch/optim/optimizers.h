#pragma once

#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/arg.h>
#include <torch/optim/optimizer.h>

namespace unisono::optim {

/// Returns the groups with each parameter once: LibTorch's modules list a tensor once for each of
/// its names, and an optimizer would step the tensor several times. Throws Error(kInvalidArgument)
/// for a parameter in two groups.
[[nodiscard]] std::vector<::torch::optim::OptimizerParamGroup> distinct_groups(
    const std::vector<::torch::optim::OptimizerParamGroup>& groups);

/// Common base of optimizers with steps that treat each parameter separately. `Options` belong to a
/// group, `State` to a parameter. Not thread-safe, like LibTorch's optimizers.
///
/// Parameters in CPU memory are stepped one by one; parameters on a device together, without a wait
/// of the host. step() throws c10::Error for a gradient that is sparse.
template <class Options, class State>
class ParameterwiseOptimizer : public ::torch::optim::Optimizer {
 public:
  /// Throws the errors of distinct_groups().
  ParameterwiseOptimizer(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                         std::unique_ptr<::torch::optim::OptimizerOptions> defaults)
      : Optimizer(distinct_groups(groups), std::move(defaults)) {}

  at::Tensor step(LossClosure closure = nullptr) override;
  void save(::torch::serialize::OutputArchive& archive) const override;
  void load(::torch::serialize::InputArchive& archive) override;

 protected:
  /// Makes a step of a parameter that has a gradient. `state` is default-constructed before the
  /// first step.
  virtual void step_parameter(const at::Tensor& parameter,
                              const Options& options,
                              State& state) = 0;

  /// Makes a step of parameters on one device and of one type. `states` belong to the parameters.
  virtual void step_on_device(const std::vector<at::Tensor>& parameters,
                              const Options& options,
                              const std::vector<State*>& states) = 0;

 private:
  void step_all_on_devices(const std::vector<at::Tensor>& parameters, const Options& options);
  State& state_of(const at::Tensor& parameter);
};

/// Decay rates of the mean of gradients and of the mean of squared gradients.
using Betas = std::tuple<double, double>;

/// Running means of a parameter's gradients and of the squared gradients, for AdamW and Lamb.
struct Moments : public ::torch::optim::OptimizerCloneableParamState<Moments> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(at::Tensor, exp_avg);
  TORCH_ARG(at::Tensor, exp_avg_sq);

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;

  /// Counts a step of `parameter`. The first step starts with zeros.
  void begin_step(const at::Tensor& parameter);
};

/// Throws c10::Error, as LibTorch's optimizers do, for options out of range.
void check_adam_options(double lr, const Betas& betas, double eps, double weight_decay);

/// Returns 1 - beta ^ step, the divisor that corrects a running mean that started from 0.
[[nodiscard]] double bias_correction(double beta, std::int64_t step);

/// Options of an optimizer. Names and defaults follow PyTorch: `lr` is the learning rate, `betas`
/// or `rho` are decay rates of running averages, `eps` is added to the denominator, and
/// `weight_decay` is the factor of the decay.
struct AdadeltaOptions : public ::torch::optim::OptimizerCloneableOptions<AdadeltaOptions> {
  /// Sets the learning rate; the other options keep the defaults.
  explicit AdadeltaOptions(double lr = 1.0) : lr_(lr) {}

  TORCH_ARG(double, lr) = 1.0;
  TORCH_ARG(double, rho) = 0.9;
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 0;

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;

  [[nodiscard]] double get_lr() const override { return lr(); }

  void set_lr(double lr) override { this->lr(lr); }
};

/// State of one parameter: number of steps and the two running averages.
struct AdadeltaParamState
    : public ::torch::optim::OptimizerCloneableParamState<AdadeltaParamState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(at::Tensor, square_avg);
  TORCH_ARG(at::Tensor, acc_delta);

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;
};

extern template class ParameterwiseOptimizer<AdadeltaOptions, AdadeltaParamState>;

/// Adadelta, which LibTorch lacks. Equal to Python's torch.optim.Adadelta up to rounding. For float
/// and double, a step is one pass over memory. Not thread-safe, like LibTorch's optimizers.
///
/// Source: Zeiler, "ADADELTA: an adaptive learning rate method", arXiv:1212.5701.
class Adadelta : public ParameterwiseOptimizer<AdadeltaOptions, AdadeltaParamState> {
 public:
  /// Throws c10::Error, as LibTorch's optimizers do, for options out of range.
  explicit Adadelta(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                    const AdadeltaOptions& defaults = AdadeltaOptions());
  explicit Adadelta(std::vector<at::Tensor> parameters,
                    const AdadeltaOptions& defaults = AdadeltaOptions());

 protected:
  void step_parameter(const at::Tensor& parameter,
                      const AdadeltaOptions& options,
                      AdadeltaParamState& state) override;
  void step_on_device(const std::vector<at::Tensor>& parameters,
                      const AdadeltaOptions& options,
                      const std::vector<AdadeltaParamState*>& states) override;
};

/// Options of an optimizer. Names and defaults follow PyTorch: `lr` is the learning rate, `betas`
/// or `rho` are decay rates of running averages, `eps` is added to the denominator, and
/// `weight_decay` is the factor of the decay.
struct AdamWOptions : public ::torch::optim::OptimizerCloneableOptions<AdamWOptions> {
  /// Sets the learning rate; the other options keep the defaults.
  explicit AdamWOptions(double lr = 1e-3) : lr_(lr) {}

  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(Betas, betas) = Betas(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 1e-2;

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;

  [[nodiscard]] double get_lr() const override { return lr(); }

  void set_lr(double lr) override { this->lr(lr); }
};

extern template class ParameterwiseOptimizer<AdamWOptions, Moments>;

/// AdamW in one pass over memory per step; torch::optim::AdamW makes several passes. Equal to
/// Python's torch.optim.AdamW up to rounding. No amsgrad. Not thread-safe, like LibTorch's
/// optimizers.
///
/// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", arXiv:1711.05101.
class AdamW : public ParameterwiseOptimizer<AdamWOptions, Moments> {
 public:
  /// Throws c10::Error, as LibTorch's optimizers do, for options out of range.
  explicit AdamW(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                 const AdamWOptions& defaults = AdamWOptions());
  explicit AdamW(std::vector<at::Tensor> parameters, const AdamWOptions& defaults = AdamWOptions());

 protected:
  void step_parameter(const at::Tensor& parameter,
                      const AdamWOptions& options,
                      Moments& state) override;
  void step_on_device(const std::vector<at::Tensor>& parameters,
                      const AdamWOptions& options,
                      const std::vector<Moments*>& states) override;
};

/// Options of Lamb. Names follow AdamWOptions; defaults follow the paper: `lr` is the learning
/// rate, `betas` are the decay rates of the two running averages, `eps` is added to the
/// denominator, and `weight_decay` is the factor of the decoupled decay.
struct LambOptions : public ::torch::optim::OptimizerCloneableOptions<LambOptions> {
  /// Sets the learning rate; the other options keep the defaults.
  explicit LambOptions(double lr = 1e-3) : lr_(lr) {}

  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(Betas, betas) = Betas(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 1e-2;

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;

  [[nodiscard]] double get_lr() const override { return lr(); }

  void set_lr(double lr) override { this->lr(lr); }
};

extern template class ParameterwiseOptimizer<LambOptions, Moments>;

/// LAMB, for large batches: AdamW's direction for each parameter tensor, scaled so that the norm of
/// a step is the learning rate times the norm of the tensor. Biases and norms, which are small,
/// often belong in a group without weight decay. Not thread-safe, like LibTorch's optimizers.
///
/// Source: You and others, "Large batch optimization for deep learning: training BERT in 76
/// minutes", arXiv:1904.00962.
class Lamb : public ParameterwiseOptimizer<LambOptions, Moments> {
 public:
  /// Throws c10::Error, as LibTorch's optimizers do, for options out of range.
  explicit Lamb(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                const LambOptions& defaults = LambOptions());
  explicit Lamb(std::vector<at::Tensor> parameters, const LambOptions& defaults = LambOptions());

 protected:
  void step_parameter(const at::Tensor& parameter,
                      const LambOptions& options,
                      Moments& state) override;
  void step_on_device(const std::vector<at::Tensor>& parameters,
                      const LambOptions& options,
                      const std::vector<Moments*>& states) override;
};

/// Options of Lars. Names follow torch::optim::SGDOptions: `lr` is the learning rate, and
/// `weight_decay` the factor of the L2 penalty. `momentum` and the trust coefficient follow the
/// paper.
struct LarsOptions : public ::torch::optim::OptimizerCloneableOptions<LarsOptions> {
  /// Sets the learning rate; the other options keep the defaults.
  explicit LarsOptions(double lr) : lr_(lr) {}

  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, trust_coefficient) = 1e-3;  ///< 0: plain SGD, as used for biases and norms.
  TORCH_ARG(double, eps) = 1e-8;

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;

  [[nodiscard]] double get_lr() const override { return lr(); }

  void set_lr(double lr) override { this->lr(lr); }
};

/// State of one parameter.
struct LarsParamState : public ::torch::optim::OptimizerCloneableParamState<LarsParamState> {
  TORCH_ARG(at::Tensor, momentum_buffer);

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;
};

extern template class ParameterwiseOptimizer<LarsOptions, LarsParamState>;

/// LARS, for large batches: SGD with momentum on gradients that are scaled, for each parameter
/// tensor, by `trust_coefficient * |w| / (|g| + weight_decay * |w| + eps)`. Not thread-safe, like
/// LibTorch's optimizers.
///
/// Source: You, Gitman and Ginsburg, "Large batch training of convolutional networks",
/// arXiv:1708.03888.
class Lars : public ParameterwiseOptimizer<LarsOptions, LarsParamState> {
 public:
  /// Throws c10::Error, as LibTorch's optimizers do, for options out of range.
  explicit Lars(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                const LarsOptions& defaults);
  explicit Lars(std::vector<at::Tensor> parameters, const LarsOptions& defaults);

 protected:
  void step_parameter(const at::Tensor& parameter,
                      const LarsOptions& options,
                      LarsParamState& state) override;
  void step_on_device(const std::vector<at::Tensor>& parameters,
                      const LarsOptions& options,
                      const std::vector<LarsParamState*>& states) override;
};

}  // namespace unisono::optim
