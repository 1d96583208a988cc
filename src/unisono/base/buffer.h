#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "unisono/base/deadline.h"

namespace unisono {

/// Element type of a buffer. The values travel in descriptors: append only.
enum class DType : std::uint8_t {
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
  kBool
};

/// Number of values of DType.
inline constexpr int kDTypeCount = 15;

/// Element sizes in bytes, indexed by DType.
inline constexpr std::array<std::uint8_t, kDTypeCount> kDTypeSizes{
    1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 8, 16, 1};

/// Returns the number of bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  return kDTypeSizes[static_cast<std::size_t>(dtype)];
}

/// Returns the short name that messages print: "f32", "bf16", "c64", "bool", ...
[[nodiscard]] const char* to_string(DType dtype) noexcept;

/// Returns the type in which partial sums are kept and sent: f32 for the 16-bit floats, otherwise
/// the type itself.
[[nodiscard]] DType accumulate_dtype(DType dtype) noexcept;

/// Type of the device that holds a buffer.
enum class DeviceType : std::uint8_t { kCpu, kCuda };

/// A device: `index` selects among several devices of the same type.
struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

/// The memory of a device for which a buffer in host memory stands. An operation works on the host
/// memory; the mirror copies the elements from the device before, and to the device afterwards.
/// Implemented by the library that knows the device. One thread at a time uses a mirror, except for
/// follow() and synchronize(), which are thread-safe.
class DeviceMirror {
 public:
  DeviceMirror() = default;
  virtual ~DeviceMirror() = default;
  DeviceMirror(const DeviceMirror&) = delete;
  DeviceMirror& operator=(const DeviceMirror&) = delete;
  DeviceMirror(DeviceMirror&&) = delete;
  DeviceMirror& operator=(DeviceMirror&&) = delete;

  /// Waits until the host memory has the device's elements; returns at once for memory that the
  /// operation only writes. Called by the thread that executes the operation.
  ///
  /// Throws Error(kTimeout) if the device has not finished by the deadline, and Error(kSystem) if
  /// the device has failed.
  virtual void fetch(Deadline deadline) = 0;

  /// Starts the copy of the results to the device; no effect for memory that the operation only
  /// reads. Called once, after the operation has succeeded. Throws Error(kSystem).
  virtual void write_back() = 0;

  /// Makes the work that this thread passes to the device from now on wait for write_back().
  virtual void follow() = 0;

  /// Waits until the results are on the device. Throws like fetch().
  virtual void synchronize(Deadline deadline) = 0;
};

/// Elements in memory that an operation reads or writes: `count` contiguous elements of `dtype`.
///
/// The caller keeps the memory alive until the operation has ended, or shares the ownership through
/// `owner`, which the operation then holds.
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kFloat32;
  Device device = {};
  std::shared_ptr<void> owner = nullptr;
  std::shared_ptr<DeviceMirror> mirror = nullptr;  ///< Set if `data` stands for device memory.

  [[nodiscard]] std::int64_t n_bytes() const {
    return count * static_cast<std::int64_t>(size_of(dtype));
  }
};

/// Returns the DType of a C++ arithmetic type.
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

/// Returns a buffer over the elements of `values`. The elements must outlive the operation.
template <class T>
[[nodiscard]] Buffer as_buffer(std::span<T> values) {
  return {.data = values.data(),
          .count = static_cast<std::int64_t>(values.size()),
          .dtype = dtype_of<T>()};
}

}  // namespace unisono
