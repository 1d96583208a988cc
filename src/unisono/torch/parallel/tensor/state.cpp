#include "unisono/torch/parallel/tensor/state.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/StringUtil.h>

#include "unisono/base/error.h"
#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint.h"
#include "unisono/torch/tensor/collectives.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
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
