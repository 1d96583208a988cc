#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "arguments.h"
#include "backend.h"
#include "backend_run.h"
#include "several.h"
#include "staging.h"

namespace unisono::python {

using c10d::OpType;

namespace {

// Converts rows per rank to elements per rank. Empty `splits` means equal shares.
std::vector<std::int64_t> counts_of(const std::vector<std::int64_t>& splits,
                                    const at::Tensor& tensor,
                                    const Arguments& arguments,
                                    int world_size) {
  arguments.checked_by_torch([&] { c10d::checkSplitSizes(splits, tensor, world_size); });
  const std::int64_t n_rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::int64_t row = n_rows == 0 ? 0 : tensor.numel() / n_rows;
  std::vector<std::int64_t> counts;
  for (int r = 0; r < world_size; ++r) {
    const std::int64_t rows =
        splits.empty() ? n_rows / world_size : splits[static_cast<std::size_t>(r)];
    counts.push_back(rows * row);
  }
  return counts;
}

}  // namespace

Backend::WorkHandle Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const Arguments arguments(*group_, "broadcast");
  arguments.require_root(options.rootRank);
  arguments.require_root_tensor(options.rootTensor, tensors);
  arguments.require_dense(tensors);
  arguments.require_alike(tensors.front(), tensors);
  const unisono::BroadcastOptions core{.root = static_cast<int>(options.rootRank),
                                       .timeout = timeout(options.timeout)};
  Staging staging(arguments, Elements::kMoved);
  const bool is_root = options.rootRank == getRank();
  // With several tensors, the root sends the chosen tensor, and every rank copies the result to the
  // remaining tensors.
  const auto chosen = static_cast<std::size_t>(is_root ? options.rootTensor : 0);
  const at::Tensor& tensor = tensors[chosen];
  const Buffer buffer = is_root ? staging.input(tensor) : staging.output(tensor);
  if (tensors.size() > 1) {
    staging.at_end(copy_to_others(tensors, chosen));
  }
  return run(
      arguments,
      options.asyncOp,
      describe(OpType::BROADCAST, "unisono:broadcast", tensors, {tensors}),
      std::move(staging),
      [&] { group_->broadcast(buffer, core); },
      [&] { return group_->broadcast_async(buffer, core); });
}

Backend::WorkHandle Backend::allgather(std::vector<Tensors>& outputs,
                                       Tensors& inputs,
                                       const c10d::AllgatherOptions& options) {
  const Arguments arguments(*group_, "all_gather");
  arguments.require_some(inputs, "input tensor list");
  arguments.require_lists_for_all(outputs, inputs);
  if (inputs.size() > 1) {
    return all_gather_several(outputs, inputs, options);
  }
  const Tensors& blocks = outputs.front();
  arguments.require_dense(inputs);
  arguments.require_dense(blocks);
  arguments.require_same_type(inputs.front(), blocks);
  arguments.require_own_block(inputs.front(), blocks);
  const AllGatherOptions core{.timeout = timeout(options.timeout)};
  Staging staging(arguments, Elements::kMoved);
  const Buffer in = staging.input(inputs.front());
  const std::vector<Buffer> outs = staging.outputs(blocks);
  return run(
      arguments,
      options.asyncOp,
      describe(OpType::ALLGATHER, "unisono:all_gather", inputs, {blocks}),
      std::move(staging),
      [&] { group_->all_gather(in, outs, core); },
      [&] { return group_->all_gather_async(in, outs, core); });
}

// Each list of outputs receives the inputs of all ranks in the order of ranks. There is one
// all_gather per input, into the first list, which is then copied to the other lists.
Backend::WorkHandle Backend::all_gather_several(std::vector<Tensors>& outputs,
                                                Tensors& inputs,
                                                const c10d::AllgatherOptions& options) {
  const Arguments arguments(*group_, "all_gather");
  arguments.require_dense(inputs);
  arguments.require_alike(inputs.front(), inputs);
  for (const Tensors& list : outputs) {
    arguments.require_dense(list);
    arguments.require_alike(inputs.front(), list);
  }
  const AllGatherOptions core{.timeout = timeout(options.timeout)};
  Staging staging(arguments, Elements::kMoved);
  const std::vector<Buffer> ins = staging.inputs(inputs);
  const std::vector<Buffer> first = staging.outputs(outputs.front());
  std::vector<std::vector<Buffer>> outs(ins.size());
  for (std::size_t k = 0; k < first.size(); ++k) {
    outs[k % ins.size()].push_back(first[k]);
    Tensors alike;
    for (const Tensors& list : outputs) {
      alike.push_back(list[k]);
    }
    staging.at_end(copy_to_others(alike));
  }
  return run_all(arguments,
                 options.asyncOp,
                 describe(OpType::ALLGATHER, "unisono:all_gather", inputs, outputs),
                 std::move(staging),
                 [&] { return all_gathers(ins, outs, core); });
}

Backend::WorkHandle Backend::_allgather_base(at::Tensor& output,
                                             at::Tensor& input,
                                             const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

Backend::WorkHandle Backend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const Arguments arguments(*group_, "all_gather_into_tensor");
  arguments.require_pairs(outputs, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (outputs[i].numel() != inputs[i].numel() * getSize()) {
      arguments.reject("output tensor size must be equal to world_size times input tensor size");
    }
  }
  const AllGatherOptions core{.timeout = timeout(options.timeout)};
  Staging staging(arguments, Elements::kMoved);
  const std::vector<Buffer> ins = staging.inputs(inputs);
  const std::vector<Buffer> outs = staging.outputs(outputs);
  const bool is_one = ins.size() == 1;
  return run(
      arguments,
      options.asyncOp,
      describe(is_one ? OpType::_ALLGATHER_BASE : OpType::ALLGATHER_COALESCED,
               "unisono:all_gather",
               inputs,
               {outputs}),
      std::move(staging),
      [&] {
        if (is_one) {
          group_->all_gather(ins.front(), outs.front(), core);
        } else {
          group_->all_gather_coalesced(ins, outs, core);
        }
      },
      [&] {
        return is_one ? group_->all_gather_async(ins.front(), outs.front(), core)
                      : group_->all_gather_coalesced_async(ins, outs, core);
      });
}

// Starts one all_gather into a list for each input, all in flight at once.
std::vector<unisono::Work> Backend::all_gathers(const std::vector<Buffer>& ins,
                                                const std::vector<std::vector<Buffer>>& outs,
                                                const AllGatherOptions& options) {
  std::vector<unisono::Work> parts;
  for (std::size_t i = 0; i < ins.size(); ++i) {
    parts.push_back(group_->all_gather_async(ins[i], outs[i], options));
  }
  return parts;
}

Backend::WorkHandle Backend::allgather_coalesced(std::vector<Tensors>& outputs,
                                                 Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  const Arguments arguments(*group_, "all_gather_coalesced");
  arguments.require_some(inputs, "input tensor list");
  arguments.require_dense(inputs);
  if (outputs.size() != static_cast<std::size_t>(getSize())) {
    arguments.reject("output lists should be equal to world size");
  }
  for (const Tensors& of_rank : outputs) {
    if (of_rank.size() != inputs.size()) {
      arguments.reject("invalid output size: (expected length " + std::to_string(inputs.size()) +
                       ", got " + std::to_string(of_rank.size()) + ")");
    }
    arguments.require_dense(of_rank);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      arguments.require_alike(inputs[i], at::TensorList(of_rank[i]));
    }
  }
  const AllGatherOptions core{.timeout = timeout(options.timeout)};
  Staging staging(arguments, Elements::kMoved);
  const std::vector<Buffer> ins = staging.inputs(inputs);
  std::vector<std::vector<Buffer>> outs(inputs.size());
  for (const Tensors& of_rank : outputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      outs[i].push_back(staging.output(of_rank[i]));
    }
  }
  return run_all(arguments,
                 options.asyncOp,
                 describe(OpType::ALLGATHER_COALESCED, "unisono:all_gather", inputs, outputs),
                 std::move(staging),
                 [&] { return all_gathers(ins, outs, core); });
}

Backend::WorkHandle Backend::gather(std::vector<Tensors>& outputs,
                                    Tensors& inputs,
                                    const c10d::GatherOptions& options) {
  const Arguments arguments(*group_, "gather");
  arguments.require_root(options.rootRank);
  arguments.require_single(inputs, "input tensor list");
  arguments.require_dense(inputs);
  const bool is_root = options.rootRank == getRank();
  Tensors blocks;
  if (is_root) {
    arguments.require_one_list_for_all(outputs, "output");
    blocks = outputs.front();
    arguments.require_dense(blocks);
    arguments.require_alike(inputs.front(), blocks);
  } else {
    arguments.require_empty(outputs, "output");
  }
  const unisono::GatherOptions core{.root = static_cast<int>(options.rootRank),
                                    .timeout = timeout(options.timeout)};
  Staging staging(arguments, Elements::kMoved);
  const Buffer in = staging.input(inputs.front());
  const std::vector<Buffer> outs = staging.outputs(blocks);
  return run(
      arguments,
      options.asyncOp,
      describe(OpType::GATHER, "unisono:gather", inputs, {blocks}),
      std::move(staging),
      [&] { group_->gather(in, outs, core); },
      [&] { return group_->gather_async(in, outs, core); });
}

Backend::WorkHandle Backend::scatter(Tensors& outputs,
                                     std::vector<Tensors>& inputs,
                                     const c10d::ScatterOptions& options) {
  const Arguments arguments(*group_, "scatter");
  arguments.require_root(options.rootRank);
  arguments.require_single(outputs, "output tensor list");
  arguments.require_dense(outputs);
  const bool is_root = options.rootRank == getRank();
  Tensors blocks;
  if (is_root) {
    arguments.require_one_list_for_all(inputs, "input");
    blocks = inputs.front();
    arguments.require_dense(blocks);
    arguments.require_alike(outputs.front(), blocks);
  } else {
    arguments.require_empty(inputs, "input");
  }
  const unisono::ScatterOptions core{.root = static_cast<int>(options.rootRank),
                                     .timeout = timeout(options.timeout)};
  Staging staging(arguments, Elements::kMoved);
  const std::vector<Buffer> ins = staging.inputs(blocks);
  const Buffer out = staging.output(outputs.front());
  return run(
      arguments,
      options.asyncOp,
      describe(OpType::SCATTER, "unisono:scatter", blocks, {outputs}),
      std::move(staging),
      [&] { group_->scatter(ins, out, core); },
      [&] { return group_->scatter_async(ins, out, core); });
}

Backend::WorkHandle Backend::alltoall_base(at::Tensor& output,
                                           at::Tensor& input,
                                           std::vector<std::int64_t>& output_splits,
                                           std::vector<std::int64_t>& input_splits,
                                           const c10d::AllToAllOptions& options) {
  const Arguments arguments(*group_, "all_to_all_single");
  const Tensors both{input, output};
  arguments.require_dense(both);
  arguments.require_same_type(input, both);
  unisono::AllToAllOptions core{.timeout = timeout(options.timeout)};
  core.in_counts = counts_of(input_splits, input, arguments, getSize());
  core.out_counts = counts_of(output_splits, output, arguments, getSize());
  Staging staging(arguments, Elements::kMoved);
  const Buffer in = staging.input(input);
  const Buffer out = staging.output(output);
  return run(
      arguments,
      options.asyncOp,
      describe(OpType::ALLTOALL_BASE, "unisono:all_to_all", {input}, {{output}}),
      std::move(staging),
      [&] { group_->all_to_all(in, out, core); },
      [&] { return group_->all_to_all_async(in, out, core); });
}

Backend::WorkHandle Backend::alltoall(Tensors& outputs,
                                      Tensors& inputs,
                                      const c10d::AllToAllOptions& options) {
  const Arguments arguments(*group_, "all_to_all");
  const auto world_size = static_cast<std::size_t>(getSize());
  if (inputs.size() != world_size || outputs.size() != world_size) {
    arguments.reject("requires input and output lists with a tensor for each of the " +
                     std::to_string(world_size) + " ranks, got " + std::to_string(inputs.size()) +
                     " and " + std::to_string(outputs.size()));
  }
  arguments.require_dense(inputs);
  arguments.require_dense(outputs);
  arguments.require_same_type(inputs.front(), inputs);
  arguments.require_same_type(inputs.front(), outputs);
  const unisono::AllToAllOptions core{.timeout = timeout(options.timeout)};
  Staging staging(arguments, Elements::kMoved);
  const std::vector<Buffer> ins = staging.inputs(inputs);
  const std::vector<Buffer> outs = staging.outputs(outputs);
  return run(
      arguments,
      options.asyncOp,
      describe(OpType::ALLTOALL, "unisono:all_to_all", inputs, {outputs}),
      std::move(staging),
      [&] { group_->all_to_all(ins, outs, core); },
      [&] { return group_->all_to_all_async(ins, outs, core); });
}

}  // namespace unisono::python
