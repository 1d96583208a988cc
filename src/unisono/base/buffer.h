#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "unisono/base/dtype.h"

namespace unisono {

enum class DeviceType : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

/// Elements in memory that an operation reads or writes: `count` elements of `dtype`, contiguous.
///
/// Who passes a buffer keeps its memory alive until the operation has ended, or hands a share of it
/// over in `owner`, which the operation's Work then holds.
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kFloat32;
  Device device = {};
  std::shared_ptr<void> owner = nullptr;

  [[nodiscard]] std::int64_t n_bytes() const {
    return count * static_cast<std::int64_t>(size_of(dtype));
  }
};

/// The DType of a C++ arithmetic type.
template <class T>
[[nodiscard]] constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return DType::kBool;
  } else if constexpr (std::is_same_v<T, float>) {
    return DType::kFloat32;
  } else if constexpr (std::is_same_v<T, double>) {
    return DType::kFloat64;
  } else {
    static_assert(std::is_integral_v<T>, "no DType for this C++ type");
    constexpr bool kSigned = std::is_signed_v<T>;
    switch (sizeof(T)) {
      case 1:
        return kSigned ? DType::kInt8 : DType::kUInt8;
      case 2:
        return kSigned ? DType::kInt16 : DType::kUInt16;
      case 4:
        return kSigned ? DType::kInt32 : DType::kUInt32;
      default:
        return kSigned ? DType::kInt64 : DType::kUInt64;
    }
  }
}

/// A buffer over the elements of `values`, which must outlive the operation.
template <class T>
[[nodiscard]] Buffer as_buffer(std::span<T> values) {
  return {.data = values.data(),
          .count = static_cast<std::int64_t>(values.size()),
          .dtype = dtype_of<T>()};
}

}  // namespace unisono
