#include "unisono/torch/parallel/tensor/placement.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/ops/cat.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/module.h>

#include "unisono/base/error.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

void collect(const ::torch::nn::Module& module,
             const std::string& prefix,
             bool with_buffers,
             std::vector<PlacedTensor>& into) {
  const auto* const layer = dynamic_cast<const ParallelLayer*>(&module);
  const auto add = [&](const auto& named) {
    for (const auto& item : named) {
      if (!item.value().defined()) {
        continue;
      }
      PlacedTensor placed{
          .name = prefix + item.key(), .tensor = item.value(), .placement = {}, .group = {}};
      if (layer != nullptr) {
        placed.group = layer->group();
        if (const auto found = layer->placements().find(item.key());
            found != layer->placements().end()) {
          placed.placement = found->second;
        }
      }
      into.push_back(std::move(placed));
    }
  };
  add(module.named_parameters(/*recurse=*/false));
  if (with_buffers) {
    add(module.named_buffers(/*recurse=*/false));
  }
  for (const auto& child : module.named_children()) {
    collect(*child.value(), prefix + child.key() + ".", with_buffers, into);
  }
}

// Gives the placement of a divided layer's weight to all names of the weight, which may belong to
// modules that are not a ParallelLayer.
void share_placements(std::vector<PlacedTensor>& tensors) {
  std::unordered_map<const void*, const PlacedTensor*> of_layers;
  for (const PlacedTensor& placed : tensors) {
    if (placed.group != nullptr) {
      of_layers.emplace(placed.tensor.unsafeGetTensorImpl(), &placed);
    }
  }
  for (PlacedTensor& placed : tensors) {
    const auto layer = of_layers.find(placed.tensor.unsafeGetTensorImpl());
    if (layer != of_layers.end() && placed.group == nullptr) {
      placed.placement = layer->second->placement;
      placed.group = layer->second->group;
    }
  }
}

std::vector<PlacedTensor> tensors_of_all_names(const ::torch::nn::Module& module,
                                               bool with_buffers) {
  std::vector<PlacedTensor> tensors;
  collect(module, "", with_buffers, tensors);
  share_placements(tensors);
  return tensors;
}

}  // namespace

std::vector<std::int64_t> whole_shape(at::IntArrayRef part, const Split& split, int world_size) {
  std::vector<std::int64_t> shape = part.vec();
  shape.at(static_cast<std::size_t>(split.dim)) *= world_size;
  return shape;
}

std::vector<checkpoint::Box> boxes_of_part(const std::vector<std::int64_t>& whole,
                                           const Split& split,
                                           int rank,
                                           int world_size) {
  const auto dim = static_cast<std::size_t>(split.dim);
  const std::int64_t n_chunks = std::int64_t{split.n_blocks} * world_size;
  if (dim >= whole.size() || whole[dim] % n_chunks != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "tensor parallel: a tensor of shape " + c10::str(at::IntArrayRef(whole)) +
                    " can't be cut along dimension " + std::to_string(dim) + " into " +
                    std::to_string(n_chunks) + " equal chunks, for " + std::to_string(world_size) +
                    " ranks");
  }
  const std::int64_t chunk = whole[dim] / n_chunks;
  std::vector<checkpoint::Box> boxes;
  for (int block = 0; block < split.n_blocks; ++block) {
    checkpoint::Box box = checkpoint::whole_box(whole);
    box.offsets[dim] = (std::int64_t{block} * world_size + rank) * chunk;
    box.sizes[dim] = chunk;
    boxes.push_back(std::move(box));
  }
  return boxes;
}

at::Tensor part_of(const at::Tensor& whole, const Split& split, int rank, int world_size) {
  std::vector<at::Tensor> chunks;
  for (const checkpoint::Box& box : boxes_of_part(whole.sizes().vec(), split, rank, world_size)) {
    const auto dim = static_cast<std::size_t>(split.dim);
    chunks.push_back(whole.narrow(split.dim, box.offsets[dim], box.sizes[dim]));
  }
  return at::cat(chunks, split.dim);
}

at::Tensor join_parts(const std::vector<at::Tensor>& parts, const Split& split) {
  std::vector<at::Tensor> chunks;
  for (int block = 0; block < split.n_blocks; ++block) {
    for (const at::Tensor& part : parts) {
      const std::int64_t chunk = part.size(split.dim) / split.n_blocks;
      chunks.push_back(part.narrow(split.dim, block * chunk, chunk));
    }
  }
  return at::cat(chunks, split.dim);
}

ParallelLayer::ParallelLayer(const std::string& layer, std::shared_ptr<ProcessGroup> group)
    : layer_(layer), group_(std::move(group)) {
  if (group_ == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, layer + ": the process group is null");
  }
}

std::int64_t ParallelLayer::share_of(const std::string& what, std::int64_t size) const {
  const int n_ranks = group_->world_size();
  if (size <= 0 || size % n_ranks != 0) {
    const std::int64_t next = std::max<std::int64_t>(1, size / n_ranks + (size > 0 ? 1 : 0));
    throw Error(ErrorCode::kInvalidArgument,
                layer_ + ": " + std::to_string(size) + " " + what +
                    " can't be divided equally among " + std::to_string(n_ranks) +
                    " ranks; take a multiple, " + std::to_string(next * n_ranks) +
                    " for example, or a smaller group");
  }
  return size / n_ranks;
}

void ParallelLayer::check_last_dimension(const at::Tensor& input, std::int64_t size) const {
  if (!input.defined() || input.dim() == 0 || input.size(-1) != size) {
    throw group_->refuse(
        layer_,
        "the input is " + (input.defined() ? describe(input) : std::string("undefined")) +
            "; its last dimension must have " + std::to_string(size) + " elements");
  }
}

std::vector<PlacedTensor> placed_parameters(const ::torch::nn::Module& module) {
  std::vector<PlacedTensor> tensors;
  std::unordered_set<const void*> known;
  for (PlacedTensor& placed : tensors_of_all_names(module, /*with_buffers=*/false)) {
    if (known.insert(placed.tensor.unsafeGetTensorImpl()).second) {
      tensors.push_back(std::move(placed));
    }
  }
  return tensors;
}

std::vector<PlacedTensor> placed_tensors(const ::torch::nn::Module& module) {
  return tensors_of_all_names(module, /*with_buffers=*/true);
}

}  // namespace unisono::parallel
