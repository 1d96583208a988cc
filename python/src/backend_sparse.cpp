#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/tensor/tensor.h"

#include "arguments.h"
#include "backend.h"
#include "backend_run.h"
#include "errors.h"
#include "several.h"
#include "staging.h"
#include "work.h"

namespace unisono::python {
namespace {

// The data of all ranks, concatenated in a one-dimensional buffer.
struct Gathered {
  at::Tensor all;
  std::vector<std::int64_t> counts;

  // Returns the elements of rank r.
  [[nodiscard]] at::Tensor part(std::size_t r) const {
    std::int64_t start = 0;
    for (std::size_t before = 0; before < r; ++before) {
      start += counts[before];
    }
    return all.narrow(0, start, counts[r]);
  }
};

Gathered room_for(const at::Tensor& mine,
                  const std::vector<std::int64_t>& n_values,
                  std::int64_t per_value) {
  Gathered gathered;
  std::int64_t total = 0;
  for (const std::int64_t n : n_values) {
    gathered.counts.push_back(n * per_value);
    total += n * per_value;
  }
  gathered.all = at::empty({total}, mine.options());
  return gathered;
}

}  // namespace

// Every rank gathers the indices and values of all ranks and adds them in the order of ranks. The
// number of values of each rank must be known first, so even an asynchronous call waits for that
// exchange.
Backend::WorkHandle Backend::all_reduce_sparse(Tensors& tensors,
                                               const c10d::AllreduceOptions& options) {
  const Arguments arguments(*group_, "all_reduce");
  if (options.reduceOp != c10d::ReduceOp::SUM) {
    arguments.reject("unsupported reduction operation: sparse tensors can only be summed (SUM)");
  }
  const at::AutoDispatchBelowADInplaceOrView no_gradient;
  const at::Tensor mine = reduce_several(tensors, options.reduceOp, arguments).coalesce();
  const at::Tensor indices = mine._indices().contiguous();
  const at::Tensor values = mine._values().contiguous();
  const AllGatherOptions core{.timeout = timeout(options.timeout)};

  // The number of values, followed by the dimensions, which must be equal on all ranks.
  std::vector<std::int64_t> form{values.size(0), mine.sparse_dim(), mine.dense_dim()};
  form.insert(form.end(), mine.sizes().begin(), mine.sizes().end());
  std::vector<std::int64_t> forms(form.size() * static_cast<std::size_t>(getSize()));
  with_translated_errors(
      [&] { group_->all_gather(as_buffer(std::span(form)), as_buffer(std::span(forms)), core); });
  std::vector<std::int64_t> n_values;
  for (auto theirs = forms.begin(); theirs != forms.end();
       theirs += static_cast<std::ptrdiff_t>(form.size())) {
    n_values.push_back(*theirs);
    if (!std::equal(form.begin() + 1, form.end(), theirs + 1)) {
      arguments.reject("invalid tensor size: the ranks' sparse tensors have different sizes");
    }
  }

  const std::int64_t n_dims = mine.sparse_dim();
  std::int64_t per_value = 1;
  for (const std::int64_t size : values.sizes().slice(1)) {
    per_value *= size;
  }
  const Gathered all_indices = room_for(indices, n_values, n_dims);
  const Gathered all_values = room_for(values, n_values, per_value);
  auto add_up = [all_indices,
                 all_values,
                 n_values,
                 n_dims,
                 value_sizes = values.sizes().vec(),
                 tensors]() mutable {
    const at::AutoDispatchBelowADInplaceOrView no_gradient_here;
    std::vector<at::Tensor> index_parts;
    std::vector<at::Tensor> value_parts;
    for (std::size_t r = 0; r < n_values.size(); ++r) {
      value_sizes[0] = n_values[r];
      index_parts.push_back(all_indices.part(r).view({n_dims, n_values[r]}));
      value_parts.push_back(all_values.part(r).view(value_sizes));
    }
    const at::Tensor sum = at::sparse_coo_tensor(at::cat(index_parts, 1),
                                                 at::cat(value_parts, 0),
                                                 tensors.front().sizes(),
                                                 all_values.all.options().layout(at::kSparse));
    const at::Tensor coalesced = sum.coalesce();
    for (at::Tensor& tensor : tensors) {
      tensor.copy_(coalesced);
    }
  };

  Staging staging(arguments);
  staging.at_end(std::move(add_up));
  const auto gather = [&](const at::Tensor& in, const Gathered& out) {
    AllGatherOptions uneven = core;
    uneven.counts = out.counts;
    return group_->all_gather_async(as_buffer(in.view({-1})), as_buffer(out.all), uneven);
  };
  return run_all(
      arguments,
      options.asyncOp,
      describe(c10d::OpType::_ALLREDUCE_SPARSE, "unisono:all_reduce", tensors, {tensors}),
      std::move(staging),
      [&] {
        return std::vector<unisono::Work>{gather(indices, all_indices), gather(values, all_values)};
      });
}

}  // namespace unisono::python
