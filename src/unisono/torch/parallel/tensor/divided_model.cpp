#include "unisono/torch/parallel/tensor/divided_model.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/module.h>

#include "unisono/base/error.h"
#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
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

namespace {

using checkpoint::Box;

constexpr const char* kStatePrefix = "state.";

std::vector<std::int64_t> whole_shape_of(const PlacedTensor& placed) {
  return placed.placement.split
             ? whole_shape(
                   placed.tensor.sizes(), *placed.placement.split, placed.group->world_size())
             : placed.tensor.sizes().vec();
}

at::Tensor gather_whole(const PlacedTensor& placed) {
  if (!placed.placement.split || placed.group->world_size() == 1) {
    return placed.tensor.detach();
  }
  const at::Tensor mine = placed.tensor.detach().contiguous();
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < placed.group->world_size(); ++rank) {
    parts.push_back(at::empty_like(mine));
  }
  all_gather(*placed.group, mine, parts, {.label = placed.name});
  return join_parts(parts, *placed.placement.split);
}

void check_shape(const std::string& name,
                 const std::vector<std::int64_t>& actual,
                 const std::vector<std::int64_t>& expected) {
  if (actual != expected) {
    throw Error(ErrorCode::kInvalidArgument,
                "load a divided model's state: \"" + name + "\" has the shape " +
                    c10::str(at::IntArrayRef(actual)) + ", but the whole of the model's has " +
                    c10::str(at::IntArrayRef(expected)));
  }
}

at::Tensor read_tensor(checkpoint::Reader& reader,
                       const std::string& name,
                       const std::vector<std::int64_t>& whole,
                       const PlacedTensor& like) {
  if (!like.placement.split) {
    return read_part(reader, name, checkpoint::whole_box(whole));
  }
  const Split& split = *like.placement.split;
  std::vector<at::Tensor> chunks;
  for (const Box& box : boxes_of_part(whole, split, like.group->rank(), like.group->world_size())) {
    chunks.push_back(read_part(reader, name, box));
  }
  return at::cat(chunks, split.dim);
}

// Returns true if the reader has the tensor under another of its names.
bool has_other_name(const checkpoint::Reader& reader,
                    const std::vector<PlacedTensor>& tensors,
                    const PlacedTensor& placed,
                    const std::string& prefix) {
  return std::ranges::any_of(tensors, [&](const PlacedTensor& other) {
    return other.tensor.is_same(placed.tensor) && reader.tensors().contains(prefix + other.name);
  });
}

// Returns the parameter that a tensor of an optimizer's state belongs to, or null.
const PlacedTensor* parameter_of(const std::string& state_name,
                                 const std::vector<PlacedTensor>& parameters) {
  const PlacedTensor* found = nullptr;
  for (const PlacedTensor& parameter : parameters) {
    if (state_name.starts_with(kStatePrefix + parameter.name + ".") &&
        (found == nullptr || parameter.name.size() > found->name.size())) {
      found = &parameter;
    }
  }
  return found;
}

}  // namespace

StateParts parts_to_save(ProcessGroup& group,
                         const std::vector<PlacedTensor>& tensors,
                         const TensorState& common) {
  TensorState alike = common;
  TensorState own;
  std::map<std::string, std::pair<std::vector<std::int64_t>, Box>> places;
  for (const PlacedTensor& placed : tensors) {
    if (!placed.placement.split) {
      add_state(alike, "", {{placed.name, placed.tensor}});
      continue;
    }
    if (placed.group.get() != &group) {
      throw Error(ErrorCode::kInvalidArgument,
                  "save a divided model's state: \"" + placed.name +
                      "\" is divided among the ranks of another group; pass that one");
    }
    const std::vector<std::int64_t> whole = whole_shape_of(placed);
    std::vector<Box> boxes =
        boxes_of_part(whole, *placed.placement.split, group.rank(), group.world_size());
    at::Tensor part = placed.tensor;
    if (boxes.size() > 1) {
      // A rank saves one box per tensor: rows of the whole.
      boxes = {checkpoint::rows_of_rank(whole, group.rank(), group.world_size())};
      part = gather_whole(placed).narrow(0, boxes[0].offsets[0], boxes[0].sizes[0]).clone();
    }
    if (part.numel() > 0) {
      own.emplace(placed.name, part);
      places.emplace(placed.name, std::pair(whole, boxes[0]));
    }
  }
  StateParts state = unisono::parts_to_save(group, alike, own);
  for (checkpoint::TensorPart& part : state.parts) {
    if (const auto place = places.find(part.tensor.name); place != places.end()) {
      part.tensor.shape = place->second.first;
      part.box = place->second.second;
    }
  }
  return state;
}

TensorState read_parts(checkpoint::Reader& reader,
                       const std::vector<PlacedTensor>& tensors,
                       const std::string& prefix) {
  TensorState state;
  for (const PlacedTensor& placed : tensors) {
    const std::string name = prefix + placed.name;
    const std::vector<std::int64_t> whole = whole_shape_of(placed);
    // The reader reports missing tensors.
    if (const auto found = reader.tensors().find(name); found != reader.tensors().end()) {
      check_shape(name, found->second.info.shape, whole);
    } else if (has_other_name(reader, tensors, placed, prefix)) {
      continue;
    }
    state.emplace(placed.name, read_tensor(reader, name, whole, placed));
  }
  return state;
}

TensorState gather_state(const std::vector<PlacedTensor>& tensors) {
  TensorState state;
  for (const PlacedTensor& placed : tensors) {
    state.emplace(placed.name, gather_whole(placed));
  }
  return state;
}

TensorState parts_of_state(const TensorState& whole, const std::vector<PlacedTensor>& tensors) {
  TensorState state = whole;
  for (const PlacedTensor& placed : tensors) {
    const auto found = state.find(placed.name);
    if (found == state.end() || !placed.placement.split) {
      continue;
    }
    check_shape(placed.name, found->second.sizes().vec(), whole_shape_of(placed));
    found->second = part_of(
        found->second, *placed.placement.split, placed.group->rank(), placed.group->world_size());
  }
  return state;
}

std::vector<PlacedTensor> placed_optimizer_state(const ::torch::optim::Optimizer& optimizer,
                                                 const ::torch::nn::Module& module) {
  const std::vector<PlacedTensor> parameters = placed_parameters(module);
  std::vector<PlacedTensor> state;
  for (const auto& [name, tensor] : optimizer_state(optimizer, module)) {
    PlacedTensor placed{.name = name, .tensor = tensor, .placement = {}, .group = {}};
    const PlacedTensor* const parameter = parameter_of(name, parameters);
    if (parameter != nullptr && parameter->tensor.sizes() == tensor.sizes()) {
      placed.placement.split = parameter->placement.split;
      placed.group = parameter->group;
    }
    state.push_back(std::move(placed));
  }
  return state;
}

TensorState read_optimizer_parts(checkpoint::Reader& reader,
                                 const ::torch::nn::Module& module,
                                 const std::string& prefix) {
  const std::vector<PlacedTensor> parameters = placed_tensors(module);  // Tensors under all names.
  TensorState state;
  for (const auto& [name, tensor] : reader.tensors()) {
    if (!name.starts_with(prefix)) {
      continue;
    }
    const std::string own_name = name.substr(prefix.size());
    const PlacedTensor* const parameter = parameter_of(own_name, parameters);
    const bool is_divided = parameter != nullptr && tensor.info.shape == whole_shape_of(*parameter);
    state.emplace(
        own_name,
        read_tensor(reader, name, tensor.info.shape, is_divided ? *parameter : PlacedTensor{}));
  }
  return state;
}

std::vector<PlacedTensor> with_prefix(const std::string& prefix,
                                      std::vector<PlacedTensor> tensors) {
  for (PlacedTensor& placed : tensors) {
    placed.name.insert(0, prefix);
  }
  return tensors;
}

}  // namespace unisono::parallel
