#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

namespace unisono {

/// A parameter or buffer, with its name in the module: "conv1.weight".
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  /// Other names of the tensor in the module.
  std::vector<std::string> aliases = {};
};

/// Returns the tensors without their names.
[[nodiscard]] inline std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(named.size());
  for (const NamedTensor& one : named) {
    tensors.push_back(one.tensor);
  }
  return tensors;
}

/// Returns all names of the tensor; `name` comes first.
[[nodiscard]] inline std::vector<std::string> names_of(const NamedTensor& named) {
  std::vector<std::string> names{named.name};
  names.insert(names.end(), named.aliases.begin(), named.aliases.end());
  return names;
}

/// Appends the items of a LibTorch dictionary (named_parameters(), named_buffers()). Such a
/// dictionary lists a tensor once for each of its names; `into` receives the tensor once, with the
/// other names as aliases. `prefix` is put before the names. Undefined tensors are skipped.
template <class Items>
void append_distinct(const Items& items,
                     const std::string& prefix,
                     std::vector<NamedTensor>& into) {
  std::unordered_map<const void*, std::size_t> places;
  for (std::size_t i = 0; i < into.size(); ++i) {
    places.emplace(into[i].tensor.unsafeGetTensorImpl(), i);
  }
  for (const auto& item : items) {
    if (!item.value().defined()) {
      continue;
    }
    const auto [place, is_new] = places.emplace(item.value().unsafeGetTensorImpl(), into.size());
    if (is_new) {
      into.push_back({.name = prefix + item.key(), .tensor = item.value()});
    } else {
      into[place->second].aliases.push_back(prefix + item.key());
    }
  }
}

/// Returns the items of a LibTorch dictionary as append_distinct() appends them.
template <class Items>
[[nodiscard]] std::vector<NamedTensor> distinct_tensors(const Items& items) {
  std::vector<NamedTensor> named;
  append_distinct(items, "", named);
  return named;
}

/// Returns the tensors in order, each once. A module's parameters() lists a tensor once for each of
/// its names, but an optimizer needs the tensor once. All undefined tensors are kept.
[[nodiscard]] inline std::vector<at::Tensor> distinct_tensors(
    const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> distinct;
  std::unordered_set<const void*> known;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || known.insert(tensor.unsafeGetTensorImpl()).second) {
      distinct.push_back(tensor);
    }
  }
  return distinct;
}

/// Returns the tensors by device and type, in an order that does not depend on addresses. The order
/// of tensors that are alike stays.
[[nodiscard]] inline std::map<std::tuple<at::DeviceType, at::DeviceIndex, at::ScalarType>,
                              std::vector<at::Tensor>>
by_device_and_type(const std::vector<at::Tensor>& tensors) {
  std::map<std::tuple<at::DeviceType, at::DeviceIndex, at::ScalarType>, std::vector<at::Tensor>>
      groups;
  for (const at::Tensor& tensor : tensors) {
    groups[{tensor.device().type(), tensor.device().index(), tensor.scalar_type()}].push_back(
        tensor);
  }
  return groups;
}

/// Returns the devices of the tensors, each once, without the CPU.
[[nodiscard]] inline std::vector<at::Device> accelerators_of(
    const std::vector<at::Tensor>& tensors) {
  std::vector<at::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && !tensor.is_cpu() &&
        std::find(devices.begin(), devices.end(), tensor.device()) == devices.end()) {
      devices.push_back(tensor.device());
    }
  }
  return devices;
}

}  // namespace unisono
