#pragma once

#include <c10/core/DeviceType.h>

// Parts of the device that install() registers with LibTorch, each in its own file.

namespace c10 {
struct DeviceAllocator;
}  // namespace c10

namespace at {
struct HostAllocator;
class Generator;
}  // namespace at

namespace torch {
class Library;
}  // namespace torch

namespace sim {

inline constexpr auto kDeviceType = c10::DeviceType::PrivateUse1;

/// guard.cpp: devices, streams and events.
void register_guard();

/// allocators.cpp: device memory and pinned host memory.
void register_allocators();
c10::DeviceAllocator& device_allocator();
at::HostAllocator& pinned_allocator();

/// install.cpp: a generator per device. The numbers equal the CPU's for equal seeds.
const at::Generator& default_generator(int device);

// Kernels for the library "aten" and the dispatch key PrivateUse1.

/// storage_operators.cpp: creation, views, sizes and storages.
void add_storage_operators(torch::Library& aten);

/// copy_operators.cpp: copies and reads of values. `conjugate` and `negative` are "aten" for these
/// dispatch keys.
void add_copy_operators(torch::Library& aten, torch::Library& conjugate, torch::Library& negative);

/// layer_operators.cpp: layers for which LibTorch has another way for devices. `autograd` is "aten"
/// for the dispatch key AutogradPrivateUse1.
void add_layer_operators(torch::Library& aten, torch::Library& autograd);

/// fallback.cpp: all other operators.
void add_fallback(torch::Library& all, torch::Library& aten);

/// autocast.cpp: `all` and `aten` for the dispatch key AutocastPrivateUse1.
void add_autocast(torch::Library& all, torch::Library& aten);

}  // namespace sim
