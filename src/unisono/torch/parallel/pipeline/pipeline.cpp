#include "unisono/torch/parallel/pipeline/pipeline.h"

#include <cstddef>

#include "unisono/base/error.h"
#include "unisono/torch/parallel/pipeline/pipeline_impl.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"

namespace unisono::parallel {
namespace {

void check_number_of_stages(std::size_t n_stages, const pipeline::Schedule& schedule) {
  if (n_stages != pipeline::as_index(schedule.n_stages())) {
    throw Error(ErrorCode::kInvalidArgument,
                "Pipeline: there are " + std::to_string(n_stages) +
                    " stages, but the schedule has " + std::to_string(schedule.n_stages()));
  }
}

}  // namespace

Pipeline::Pipeline(std::shared_ptr<ProcessGroup> group,
                   const torch::nn::Sequential& model,
                   const PipelineOptions& options)
    : impl_(std::make_unique<Impl>(
          std::move(group), options, [&](const pipeline::Schedule& schedule, int rank) {
            return cut_model(model, schedule, rank, options);
          })) {}

Pipeline::Pipeline(std::shared_ptr<ProcessGroup> group,
                   const std::vector<Stage>& stages,
                   const PipelineOptions& options)
    : impl_(std::make_unique<Impl>(
          std::move(group), options, [&](const pipeline::Schedule& schedule, int rank) {
            check_number_of_stages(stages.size(), schedule);
            return make_parts([&](int stage) { return stages[pipeline::as_index(stage)]; },
                              schedule,
                              rank,
                              options);
          })) {}

Pipeline::Pipeline(std::shared_ptr<ProcessGroup> group,
                   const MakeStage& make_stage,
                   const PipelineOptions& options)
    : impl_(std::make_unique<Impl>(
          std::move(group), options, [&](const pipeline::Schedule& schedule, int rank) {
            return make_parts(make_stage, schedule, rank, options);
          })) {}

Pipeline::~Pipeline() = default;

at::Tensor Pipeline::train_step(const at::Tensor& input,
                                const at::Tensor& target,
                                const Loss& loss) {
  return train_step(
      Tensors{input}, Tensors{target}, [&](const Tensors& outputs, const Tensors& targets) {
        return loss(outputs.at(0), targets.at(0));
      });
}

at::Tensor Pipeline::train_step(const Tensors& inputs,
                                const Tensors& targets,
                                const LossOfMany& loss) {
  return impl_->train_step(inputs, targets, loss);
}

at::Tensor Pipeline::forward(const at::Tensor& input) {
  const Tensors outputs = forward(Tensors{input});
  return outputs.empty() ? at::Tensor() : outputs.front();
}

Tensors Pipeline::forward(const Tensors& inputs) {
  return impl_->forward(inputs);
}

const Tensors& Pipeline::outputs() const {
  return impl_->outputs();
}

std::vector<at::Tensor> Pipeline::parameters() const {
  return tensors_of(impl_->state().named_parameters());
}

std::vector<NamedTensor> Pipeline::named_parameters() const {
  return impl_->state().named_parameters();
}

std::vector<NamedTensor> Pipeline::named_buffers() const {
  return impl_->state().named_buffers();
}

TensorState Pipeline::state() const {
  return impl_->state().save();
}

void Pipeline::load_state(const TensorState& state) {
  impl_->state().load(state);
}

void Pipeline::train(bool on) {
  impl_->state().train(on);
}

void Pipeline::eval() {
  impl_->state().train(false);
}

void Pipeline::zero_grad(bool set_to_none) {
  impl_->state().zero_grad(set_to_none);
}

double Pipeline::clip_grad_norm(double max_norm, const ClipOptions& options) {
  return impl_->clip_grad_norm(max_norm, options);
}

const pipeline::Schedule& Pipeline::schedule() const {
  return impl_->plan().schedule;
}

const std::vector<int>& Pipeline::stages() const {
  return impl_->stages();
}

int Pipeline::last_rank() const {
  return impl_->last_rank();
}

std::int64_t Pipeline::step() const {
  return impl_->step();
}

void Pipeline::set_step(std::int64_t step) {
  impl_->set_step(step);
}

const PipelineStep& Pipeline::last_step() const {
  return impl_->last_step();
}

pipeline::Timeline Pipeline::timeline() {
  return impl_->timeline();
}

}  // namespace unisono::parallel
