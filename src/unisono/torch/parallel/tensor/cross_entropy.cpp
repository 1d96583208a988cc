#include "unisono/torch/parallel/tensor/cross_entropy.h"

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

namespace autograd = ::torch::autograd;

constexpr const char* kName = "vocab_parallel_cross_entropy";

struct CrossEntropy : autograd::Function<CrossEntropy> {
  // `logits` [n_targets, classes of this rank]; `local` is the target's number among them, 0 where
  // `is_mine` is false. Returns the loss of each target.
  static at::Tensor forward(autograd::AutogradContext* context,
                            const at::Tensor& logits,
                            const at::Tensor& local,
                            const at::Tensor& is_mine,
                            const at::Tensor& largest,
                            const at::Tensor& sums) {
    const at::Tensor exponentials = logits.sub(largest.unsqueeze(1)).exp_();
    context->save_for_backward({exponentials.div_(sums.select(0, 0).unsqueeze(1)), local, is_mine});
    return sums.select(0, 0).log().sub_(sums.select(0, 1));
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    if (c10::GradMode::is_enabled()) {
      throw Error(ErrorCode::kInvalidArgument,
                  std::string(kName) + ": its backward can't be differentiated (create_graph)");
    }
    const autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor gradient = gradients[0].unsqueeze(1);
    const at::Tensor of_target = gradient.neg().masked_fill(saved[2].logical_not().unsqueeze(1), 0);
    return {
        saved[0].mul(gradient).scatter_add(1, saved[1].unsqueeze(1), of_target), {}, {}, {}, {}};
  }
};

void check(const at::Tensor& logits,
           const at::Tensor& targets,
           ProcessGroup& group,
           const CrossEntropyOptions& options) {
  if (!logits.defined() || !targets.defined() || logits.dim() != targets.dim() + 1 ||
      logits.sizes().slice(0, static_cast<std::size_t>(targets.dim())) != targets.sizes() ||
      targets.scalar_type() != at::kLong || !at::isFloatingType(logits.scalar_type()) ||
      logits.size(-1) == 0) {
    throw group.refuse(
        kName,
        "the logits are " + (logits.defined() ? describe(logits) : std::string("undefined")) +
            ", the targets " + (targets.defined() ? describe(targets) : std::string("undefined")) +
            "; logits must have the targets' dimensions and one of classes more, targets be i64");
  }
  const std::int64_t n_classes = logits.size(-1) * group.world_size();
  const at::Tensor is_wrong = targets.lt(0)
                                  .logical_or_(targets.ge(n_classes))
                                  .logical_and_(targets.ne(options.ignore_index));
  if (is_wrong.any().item<bool>()) {
    throw group.refuse(
        kName,
        "target " +
            std::to_string(targets.masked_select(is_wrong).select(0, 0).item<std::int64_t>()) +
            " is none of the " + std::to_string(n_classes) + " classes, nor the one to ignore");
  }
}

}  // namespace

at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits,
                                        const at::Tensor& targets,
                                        const std::shared_ptr<ProcessGroup>& group,
                                        const CrossEntropyOptions& options) {
  if (group == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, std::string(kName) + ": the process group is null");
  }
  check(logits, targets, *group, options);
  const std::int64_t n_mine = logits.size(-1);
  const at::Tensor wide = logits.element_size() < 4 ? logits.to(at::kFloat) : logits;
  const at::Tensor rows = wide.reshape({-1, n_mine});
  const at::Tensor flat = targets.reshape({-1});
  const at::Tensor shifted = flat - group->rank() * n_mine;
  const at::Tensor is_mine = shifted.ge(0).logical_and_(shifted.lt(n_mine));
  const at::Tensor local = shifted.masked_fill(is_mine.logical_not(), 0);

  const at::Tensor values = rows.detach();
  const at::Tensor largest = values.amax(1);
  all_reduce(*group, largest, {.op = kMax, .label = "largest logits"});
  const at::Tensor sums = at::stack({values.sub(largest.unsqueeze(1)).exp_().sum(1),
                                     values.gather(1, local.unsqueeze(1))
                                         .squeeze(1)
                                         .sub(largest)
                                         .masked_fill_(is_mine.logical_not(), 0)});
  all_reduce(*group, sums, {.label = "sums of exponentials, logits of targets"});

  const at::Tensor is_ignored = flat.eq(options.ignore_index);
  const at::Tensor losses =
      CrossEntropy::apply(rows, local, is_mine, largest, sums).masked_fill(is_ignored, 0);
  switch (options.reduction) {
    case LossReduction::kSum:
      return losses.sum();
    case LossReduction::kNone:
      return losses.reshape(targets.sizes());
    case LossReduction::kMean:
      break;
  }
  return losses.sum() / is_ignored.logical_not().sum();
}

}  // namespace unisono::parallel
