#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "arguments.h"
#include "backend.h"
#include "backend_run.h"
#include "reduce_op.h"
#include "several.h"
#include "staging.h"

namespace unisono::python {

using c10d::OpType;

AllReduceOptions Backend::all_reduce_options(const c10d::AllreduceOptions& options,
                                             const Arguments& arguments) const {
  const ReduceOp op = reduce_op_of(options.reduceOp, arguments);
  return {.op = op,
          .timeout = timeout(options.timeout),
          .label = {},
          .algorithm = options_->algorithm()};
}

Backend::WorkHandle Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const Arguments arguments(*group_, "all_reduce");
  arguments.require_some(tensors, "tensor list");
  arguments.require_same_layout(tensors);
  arguments.require_alike(tensors.front(), tensors);
  if (tensors.front().is_sparse()) {
    return all_reduce_sparse(tensors, options);
  }
  arguments.require_dense(tensors);
  Staging staging(arguments);
  const bool is_one = tensors.size() == 1;
  const at::Tensor own =
      is_one ? tensors.front() : reduce_several(tensors, options.reduceOp, arguments);
  const Buffer buffer = staging.in_out(own);
  if (!is_one) {
    staging.at_end(finish_several(own, tensors, options.reduceOp));
  }
  const AllReduceOptions core = all_reduce_options(options, arguments);
  return run(
      arguments,
      options.asyncOp,
      describe(OpType::ALLREDUCE, "unisono:all_reduce", tensors, {tensors}),
      std::move(staging),
      [&] {
        group_->all_reduce(buffer, core);
        bucket_gradients_->adopt(own);
      },
      [&] {
        unisono::Work work = group_->all_reduce_async(buffer, core);
        bucket_gradients_->adopt(own);
        return work;
      });
}

Backend::WorkHandle Backend::allreduce_sparse(Tensors& tensors,
                                              const c10d::AllreduceOptions& options) {
  return allreduce(tensors, options);
}

Backend::WorkHandle Backend::allreduce_coalesced(Tensors& tensors,
                                                 const c10d::AllreduceCoalescedOptions& options) {
  const Arguments arguments(*group_, "all_reduce_coalesced");
  arguments.require_some(tensors, "tensor list");
  arguments.require_same_layout(tensors);
  arguments.require_dense(tensors);
  arguments.require_same_type(tensors.front(), tensors);
  Staging staging(arguments);
  std::vector<Buffer> buffers;
  for (const at::Tensor& tensor : tensors) {
    buffers.push_back(staging.in_out(tensor));
  }
  const AllReduceOptions core = all_reduce_options(options, arguments);
  return run(
      arguments,
      options.asyncOp,
      describe(OpType::ALLREDUCE_COALESCED, "unisono:all_reduce", tensors, {tensors}),
      std::move(staging),
      [&] { group_->all_reduce_coalesced(buffers, core); },
      [&] { return group_->all_reduce_coalesced_async(buffers, core); });
}

Backend::WorkHandle Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const Arguments arguments(*group_, "reduce");
  arguments.require_root(options.rootRank);
  arguments.require_root_tensor(options.rootTensor, tensors);
  arguments.require_single(tensors, "tensor list");
  arguments.require_dense(tensors);
  const unisono::ReduceOptions core{.root = static_cast<int>(options.rootRank),
                                    .op = reduce_op_of(options.reduceOp, arguments),
                                    .timeout = timeout(options.timeout)};
  Staging staging(arguments);
  const bool is_root = options.rootRank == getRank();
  const Buffer in = is_root ? staging.in_out(tensors.front()) : staging.input(tensors.front());
  const Buffer out = is_root ? in : Buffer();
  return run(
      arguments,
      options.asyncOp,
      describe(OpType::REDUCE, "unisono:reduce", tensors, {tensors}),
      std::move(staging),
      [&] { group_->reduce(in, out, core); },
      [&] { return group_->reduce_async(in, out, core); });
}

Backend::WorkHandle Backend::reduce_scatter(Tensors& outputs,
                                            std::vector<Tensors>& inputs,
                                            const c10d::ReduceScatterOptions& options) {
  const Arguments arguments(*group_, "reduce_scatter");
  arguments.require_single(outputs, "output tensor list");
  arguments.require_one_list_for_all(inputs, "input");
  const Tensors& blocks = inputs.front();
  arguments.require_dense(outputs);
  arguments.require_dense(blocks);
  arguments.require_same_type(outputs.front(), blocks);
  const unisono::ReduceScatterOptions core{.op = reduce_op_of(options.reduceOp, arguments),
                                           .timeout = timeout(options.timeout)};
  Staging staging(arguments);
  const std::vector<Buffer> ins = staging.inputs(blocks);
  const Buffer out = staging.output(outputs.front());
  return run(
      arguments,
      options.asyncOp,
      describe(OpType::REDUCE_SCATTER, "unisono:reduce_scatter", blocks, {outputs}),
      std::move(staging),
      [&] { group_->reduce_scatter(ins, out, core); },
      [&] { return group_->reduce_scatter_async(ins, out, core); });
}

Backend::WorkHandle Backend::_reduce_scatter_base(at::Tensor& output,
                                                  at::Tensor& input,
                                                  const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

Backend::WorkHandle Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  const Arguments arguments(*group_, "reduce_scatter_tensor");
  arguments.require_pairs(outputs, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].numel() != outputs[i].numel() * getSize()) {
      arguments.reject("input tensor must be the same size as output size times world size");
    }
  }
  const unisono::ReduceScatterOptions core{.op = reduce_op_of(options.reduceOp, arguments),
                                           .timeout = timeout(options.timeout)};
  Staging staging(arguments);
  const std::vector<Buffer> ins = staging.inputs(inputs);
  const std::vector<Buffer> outs = staging.outputs(outputs);
  const bool is_one = ins.size() == 1;
  return run(
      arguments,
      options.asyncOp,
      describe(is_one ? OpType::_REDUCE_SCATTER_BASE : OpType::REDUCE_SCATTER_TENSOR_COALESCED,
               "unisono:reduce_scatter",
               inputs,
               {outputs}),
      std::move(staging),
      [&] {
        if (is_one) {
          group_->reduce_scatter(ins.front(), outs.front(), core);
        } else {
          group_->reduce_scatter_coalesced(ins, outs, core);
        }
      },
      [&] {
        return is_one ? group_->reduce_scatter_async(ins.front(), outs.front(), core)
                      : group_->reduce_scatter_coalesced_async(ins, outs, core);
      });
}

}  // namespace unisono::python
