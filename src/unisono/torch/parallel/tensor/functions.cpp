#include "unisono/torch/parallel/tensor/functions.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/torch/tensor/saved_group.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

namespace autograd = ::torch::autograd;

enum class Border : std::uint8_t {
  kCopy,
  kReduce,
  kScatter,
  kGather,
  kGatherToRegion,
  kReduceScatter
};

// Returns the operation that backward applies to the gradient.
Border backward_of(Border border) {
  switch (border) {
    case Border::kCopy:
      return Border::kReduce;
    case Border::kReduce:
      return Border::kCopy;
    case Border::kScatter:
      return Border::kGather;
    case Border::kGather:
      return Border::kScatter;
    case Border::kGatherToRegion:
      return Border::kReduceScatter;
    case Border::kReduceScatter:
      break;
  }
  return Border::kGatherToRegion;
}

std::string name_of(Border border) {
  switch (border) {
    case Border::kCopy:
      return "copy_to_region";
    case Border::kReduce:
      return "reduce_from_region";
    case Border::kScatter:
      return "scatter_to_region";
    case Border::kGather:
      return "gather_from_region";
    case Border::kGatherToRegion:
      return "gather_to_region";
    case Border::kReduceScatter:
      break;
  }
  return "reduce_scatter_from_region";
}

at::Tensor sum(ProcessGroup& group, const at::Tensor& tensor, const std::string& label) {
  const at::Tensor in = tensor.contiguous();
  at::Tensor out = at::empty_like(in);
  all_reduce(group, in, out, {.label = label});
  return out;
}

at::Tensor gather_chunks(ProcessGroup& group,
                         const at::Tensor& tensor,
                         std::int64_t dim,
                         const std::string& label) {
  const at::Tensor in = tensor.contiguous();
  std::vector<std::int64_t> sizes = in.sizes().vec();
  sizes.insert(sizes.begin(), group.world_size());
  const at::Tensor chunks = at::empty(sizes, in.options());
  all_gather(group, in, chunks, {.label = label});
  return dim == 0 ? chunks.flatten(0, 1) : at::cat(chunks.unbind(0), dim);
}

at::Tensor sum_of_chunk(ProcessGroup& group,
                        const at::Tensor& tensor,
                        std::int64_t dim,
                        const std::string& label) {
  const std::int64_t n_ranks = group.world_size();
  const at::Tensor in =
      dim == 0 ? tensor.contiguous() : at::stack(tensor.chunk(n_ranks, dim)).contiguous();
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] /= n_ranks;
  at::Tensor out = at::empty(sizes, in.options());
  reduce_scatter(group, in, out, {.label = label});
  return out;
}

at::Tensor cross(Border border, const at::Tensor& tensor, std::int64_t dim, ProcessGroup& group) {
  const std::string label = name_of(border);
  switch (border) {
    case Border::kCopy:
      return tensor;
    case Border::kReduce:
      return sum(group, tensor, label);
    case Border::kScatter: {
      const std::int64_t size = tensor.size(dim) / group.world_size();
      return tensor.narrow(dim, group.rank() * size, size).clone();
    }
    case Border::kGather:
    case Border::kGatherToRegion:
      return gather_chunks(group, tensor, dim, label);
    case Border::kReduceScatter:
      break;
  }
  return sum_of_chunk(group, tensor, dim, label);
}

struct Crossing : autograd::Function<Crossing> {
  static at::Tensor forward(autograd::AutogradContext* context,
                            const at::Tensor& tensor,
                            std::int64_t border,
                            std::int64_t dim,
                            const c10::intrusive_ptr<SavedGroup>& group) {
    context->saved_data["border"] = border;
    context->saved_data["dim"] = dim;
    context->saved_data["group"] = c10::IValue::make_capsule(group);
    return cross(static_cast<Border>(border), tensor, dim, *group->group);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto group =
        c10::static_intrusive_pointer_cast<SavedGroup>(context->saved_data["group"].toCapsule());
    const auto border = static_cast<Border>(context->saved_data["border"].toInt());
    return {apply(gradients[0],
                  static_cast<std::int64_t>(backward_of(border)),
                  context->saved_data["dim"].toInt(),
                  group),
            {},
            {},
            {}};
  }
};

// Returns the dimension, counted from 0.
std::int64_t checked_dim(Border border,
                         const at::Tensor& tensor,
                         std::int64_t dim,
                         ProcessGroup& group) {
  const std::int64_t from_front = dim < 0 ? dim + tensor.dim() : dim;
  if (from_front < 0 || from_front >= tensor.dim()) {
    throw group.refuse(name_of(border),
                       describe(tensor) + " has no dimension " + std::to_string(dim));
  }
  const bool is_cut = border == Border::kScatter || border == Border::kReduceScatter;
  if (is_cut && tensor.size(from_front) % group.world_size() != 0) {
    throw group.refuse(name_of(border),
                       describe(tensor) + " can't be divided equally along dimension " +
                           std::to_string(dim) + " among " + std::to_string(group.world_size()) +
                           " ranks; pad it to a multiple");
  }
  return from_front;
}

at::Tensor apply(Border border,
                 const at::Tensor& tensor,
                 std::int64_t dim,
                 const GroupPointer& group) {
  if (group == nullptr || group->world_size() == 1) {
    return tensor;
  }
  if (!tensor.defined()) {
    throw group->refuse(name_of(border), "the tensor is undefined");
  }
  const bool has_dim = border != Border::kCopy && border != Border::kReduce;
  return Crossing::apply(tensor,
                         static_cast<std::int64_t>(border),
                         has_dim ? checked_dim(border, tensor, dim, *group) : 0,
                         c10::make_intrusive<SavedGroup>(group));
}

}  // namespace

at::Tensor copy_to_region(const at::Tensor& tensor, const GroupPointer& group) {
  return apply(Border::kCopy, tensor, 0, group);
}

at::Tensor reduce_from_region(const at::Tensor& tensor, const GroupPointer& group) {
  return apply(Border::kReduce, tensor, 0, group);
}

at::Tensor scatter_to_region(const at::Tensor& tensor,
                             std::int64_t dim,
                             const GroupPointer& group) {
  return apply(Border::kScatter, tensor, dim, group);
}

at::Tensor gather_from_region(const at::Tensor& tensor,
                              std::int64_t dim,
                              const GroupPointer& group) {
  return apply(Border::kGather, tensor, dim, group);
}

at::Tensor gather_to_region(const at::Tensor& tensor, std::int64_t dim, const GroupPointer& group) {
  return apply(Border::kGatherToRegion, tensor, dim, group);
}

at::Tensor reduce_scatter_from_region(const at::Tensor& tensor,
                                      std::int64_t dim,
                                      const GroupPointer& group) {
  return apply(Border::kReduceScatter, tensor, dim, group);
}

namespace {

namespace autograd = ::torch::autograd;

constexpr const char* kName = "vocab_parallel_cross_entropy";

struct CrossEntropy : autograd::Function<CrossEntropy> {
  // `logits` is [n_targets, classes of this rank]. `local` is the target's index among these
  // classes, 0 if `is_mine` is false. Returns the loss of each target.
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
            " is none of the " + std::to_string(n_classes) +
            " classes, and is not the ignored index");
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
