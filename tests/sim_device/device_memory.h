#pragma once

#include <cstddef>

namespace sim {

inline constexpr std::size_t kBytesPerDevice = std::size_t{8} << 30;

/// Reserves the address space of all devices.
///
/// There are two ranges at a fixed distance. The device range has no access rights, so that host
/// code that dereferences a device pointer ends with SIGSEGV. The second range, the alias, holds
/// the bytes; only tasks of streams use it. The device of an address follows from its position.
/// Thread-safe after construction.
class DeviceMemory {
 public:
  /// Throws Error if the system has no address space.
  DeviceMemory();
  ~DeviceMemory();

  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  DeviceMemory(DeviceMemory&&) = delete;
  DeviceMemory& operator=(DeviceMemory&&) = delete;

  [[nodiscard]] bool contains(const void* pointer) const;

  /// Returns the device of a pointer that contains() accepts.
  [[nodiscard]] int device_of(const void* pointer) const;

  /// Returns the accessible address of the same byte. Throws Error for other pointers.
  [[nodiscard]] void* alias(const void* pointer) const;

  /// Returns the first address of a device.
  [[nodiscard]] std::byte* begin(int device) const;

 private:
  std::byte* device_range_ = nullptr;
  std::byte* alias_range_ = nullptr;
};

/// Installs a SIGSEGV handler: it writes a line to stderr if the address belongs to `memory`, then
/// restores the earlier handler, which gets the same fault. `memory` must live until the process
/// ends. The first call counts.
void report_host_accesses(const DeviceMemory& memory);

}  // namespace sim
