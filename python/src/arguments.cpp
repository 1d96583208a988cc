#include "arguments.h"

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"

#include "errors.h"

namespace unisono::python {

Arguments::Arguments(ProcessGroup& group, const char* call)
    : group_(&group), call_(call), world_size_(group.world_size()) {}

void Arguments::reject(const std::string& problem) const {
  throw_translated(group_->refuse(call_, problem));
}

void Arguments::require_root(std::int64_t root) const {
  if (root < 0 || root >= world_size_) {
    reject("invalid root rank: " + std::to_string(root) + " of a group of " +
           std::to_string(world_size_));
  }
}

void Arguments::require_peer(int peer) const {
  if (peer < 0 || peer >= world_size_) {
    reject("invalid rank: " + std::to_string(peer) + " of a group of " +
           std::to_string(world_size_));
  }
}

void Arguments::require_single(at::TensorList tensors, const char* list) const {
  if (tensors.size() != 1) {
    reject(std::string("requires a single-element ") + list + ", got " +
           std::to_string(tensors.size()));
  }
}

void Arguments::require_some(at::TensorList tensors, const char* list) const {
  if (tensors.empty()) {
    reject(std::string("requires non-empty ") + list);
  }
}

void Arguments::require_root_tensor(std::int64_t index, at::TensorList tensors) const {
  if (index < 0 || index >= static_cast<std::int64_t>(tensors.size())) {
    reject("invalid root tensor: " + std::to_string(index) + " of a list of " +
           std::to_string(tensors.size()));
  }
}

void Arguments::require_dense(at::TensorList tensors) const {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.layout() != at::kStrided) {
      reject(
          "unsupported layout: requires dense tensors: only supports dense tensors, pass "
          "tensor.to_dense()");
    }
  }
}

void Arguments::require_same_layout(at::TensorList tensors) const {
  const at::Layout first = tensors.front().layout();
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].layout() != first) {
      std::ostringstream text;
      text << "invalid tensor layout at index " << i << " (expected " << first << ", got "
           << tensors[i].layout() << ")";
      reject(text.str());
    }
  }
}

void Arguments::require_same_type(const at::Tensor& first, at::TensorList tensors) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].scalar_type() != first.scalar_type()) {
      reject("tensors must all have the same type: invalid tensor type at index " +
             std::to_string(i) + " (expected " + c10::toString(first.scalar_type()) + ", got " +
             c10::toString(tensors[i].scalar_type()) + ")");
    }
  }
}

void Arguments::require_alike(const at::Tensor& first, at::TensorList tensors) const {
  require_same_type(first, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    require_size(first, tensors, i);
  }
}

void Arguments::require_own_block(const at::Tensor& tensor, at::TensorList blocks) const {
  require_size(tensor, blocks, static_cast<std::size_t>(group_->rank()));
}

void Arguments::require_size(const at::Tensor& expected,
                             at::TensorList tensors,
                             std::size_t index) const {
  if (tensors[index].sizes() != expected.sizes()) {
    std::ostringstream text;
    text << "invalid tensor size at index " << index << " (expected " << expected.sizes()
         << ", got " << tensors[index].sizes() << ")";
    reject(text.str());
  }
}

void Arguments::require_one_list_for_all(const std::vector<std::vector<at::Tensor>>& lists,
                                         const char* which) const {
  if (lists.size() != 1 || lists.front().size() != static_cast<std::size_t>(world_size_)) {
    std::string got = std::to_string(lists.size()) + " lists";
    if (lists.size() == 1) {
      got = "one with " + std::to_string(lists.front().size());
    }
    reject(std::string("requires a single-element ") + which + " list containing a list with " +
           std::to_string(world_size_) + " tensors, got " + got);
  }
}

void Arguments::require_lists_for_all(const std::vector<std::vector<at::Tensor>>& lists,
                                      at::TensorList inputs) const {
  if (lists.size() != inputs.size()) {
    reject("requires input/output tensor lists to have the same length, got " +
           std::to_string(inputs.size()) + " and " + std::to_string(lists.size()));
  }
  const std::size_t expected = inputs.size() * static_cast<std::size_t>(world_size_);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].size() != expected) {
      reject("invalid output tensor list at index " + std::to_string(i) + " (expected length " +
             std::to_string(expected) + ", got " + std::to_string(lists[i].size()) + ")");
    }
  }
}

void Arguments::require_empty(const std::vector<std::vector<at::Tensor>>& lists,
                              const char* which) const {
  if (!lists.empty()) {
    reject(std::string("requires empty ") + which + " on non-root");
  }
}

void Arguments::require_pairs(at::TensorList outputs, at::TensorList inputs) const {
  require_some(inputs, "input tensor list");
  if (outputs.size() != inputs.size()) {
    reject("requires input/output tensor lists to have the same length, got " +
           std::to_string(inputs.size()) + " and " + std::to_string(outputs.size()));
  }
  require_dense(inputs);
  require_dense(outputs);
  require_same_type(inputs.front(), inputs);
  require_same_type(inputs.front(), outputs);
}

}  // namespace unisono::python
