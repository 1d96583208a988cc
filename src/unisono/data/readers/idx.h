#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/dtype.h"

namespace unisono {

/// What an IDX file holds: elements in row-major order, in this machine's byte order.
struct IdxArray {
  DType dtype = DType::kUInt8;
  std::vector<std::int64_t> dims;
  std::vector<std::byte> bytes;
};

inline constexpr std::uint64_t kIdxMaxBytes = std::uint64_t{16} << 30;

/// Reads an IDX file, the format of MNIST's files; plain or gzip, as its content says.
///
/// All six element types are read (u8, i8, i16, i32, f32, f64). Memory grows with what the file
/// really has, so a damaged header can't make it large.
///
/// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder or device, or when the elements
/// take more than `max_bytes`; kCorruptData when the file is no IDX file, is truncated, or has
/// bytes left over.
///
/// Source: the format's description at the end of http://yann.lecun.com/exdb/mnist/.
[[nodiscard]] IdxArray read_idx(const std::string& path, std::uint64_t max_bytes = kIdxMaxBytes);

}  // namespace unisono
