#include "unisono/kernels/compress.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/kernels/float8.h"
#include "unisono/kernels/float_mode.h"
#include "unisono/kernels/reduce.h"

namespace unisono::kernels {
namespace {

constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
constexpr std::int64_t kBlockBytes = kFloat8Block * kFloatBytes;

// Both may be null where there are none.
void copy_floats(const void* from, std::int64_t count, void* to) {
  std::copy_n(
      static_cast<const std::byte*>(from), count * kFloatBytes, static_cast<std::byte*>(to));
}

// "Reducing" one input converts it.
void convert_bfloat16(const void* from, bool to_float, std::int64_t count, void* to) {
  const ReduceInput input{.data = from, .is_partial = !to_float};
  reduce({.dtype = DType::kBFloat16,
          .kind = ReduceKind::kSum,
          .inputs = std::span(&input, 1),
          .steps = {},
          .outputs = std::span(&to, 1),
          .output_is_partial = to_float},
         count);
}

// Calls `visit(first, n)` for each block's elements: whole ones, and a shorter last one.
template <class Visit>
void for_each_block(std::int64_t count, Visit visit) {
  for (std::int64_t first = 0; first < count; first += kFloat8Block) {
    visit(first, std::min(kFloat8Block, count - first));
  }
}

// The scales, then a byte for each element.
void encode_float8(const std::uint8_t* floats, std::int64_t count, std::uint8_t* bytes) {
  const FloatMode mode;
  const EncodeFloat8Block encode = float8_encoder();
  std::uint8_t* const codes = bytes + compressed_bytes(Compression::kFloat8, count) - count;
  for_each_block(count, [&](std::int64_t first, std::int64_t n) {
    float scale = 0;
    if (n == kFloat8Block) {
      scale = encode(floats + first * kFloatBytes, codes + first);
    } else {
      std::array<std::uint8_t, kBlockBytes> padded{};
      std::array<std::uint8_t, kFloat8Block> padded_codes;
      std::copy_n(floats + first * kFloatBytes, n * kFloatBytes, padded.data());
      scale = encode(padded.data(), padded_codes.data());
      std::copy_n(padded_codes.data(), n, codes + first);
    }
    std::memcpy(bytes + first / kFloat8Block * kFloatBytes, &scale, sizeof(scale));
  });
}

void decode_float8(const std::uint8_t* bytes, std::int64_t count, std::uint8_t* floats) {
  const FloatMode mode;
  const DecodeFloat8Block decode = float8_decoder();
  const std::uint8_t* const codes = bytes + compressed_bytes(Compression::kFloat8, count) - count;
  for_each_block(count, [&](std::int64_t first, std::int64_t n) {
    float scale = 0;
    std::memcpy(&scale, bytes + first / kFloat8Block * kFloatBytes, sizeof(scale));
    if (n == kFloat8Block) {
      decode(codes + first, scale, floats + first * kFloatBytes);
    } else {
      std::array<std::uint8_t, kFloat8Block> padded_codes{};
      std::array<std::uint8_t, kBlockBytes> padded;
      std::copy_n(codes + first, n, padded_codes.data());
      decode(padded_codes.data(), scale, padded.data());
      std::copy_n(padded.data(), n * kFloatBytes, floats + first * kFloatBytes);
    }
  });
}

}  // namespace

std::int64_t compressed_bytes(Compression compression, std::int64_t count) {
  switch (compression) {
    case Compression::kNone:
      break;
    case Compression::kBFloat16:
      return count * 2;
    case Compression::kFloat8:
      return count + (count + kFloat8Block - 1) / kFloat8Block * kFloatBytes;
  }
  return count * kFloatBytes;
}

void compress(Compression compression, const void* floats, std::int64_t count, void* bytes) {
  switch (compression) {
    case Compression::kNone:
      copy_floats(floats, count, bytes);
      return;
    case Compression::kBFloat16:
      return convert_bfloat16(floats, false, count, bytes);
    case Compression::kFloat8:
      return encode_float8(
          static_cast<const std::uint8_t*>(floats), count, static_cast<std::uint8_t*>(bytes));
  }
}

void decompress(Compression compression, const void* bytes, std::int64_t count, void* floats) {
  switch (compression) {
    case Compression::kNone:
      copy_floats(bytes, count, floats);
      return;
    case Compression::kBFloat16:
      return convert_bfloat16(bytes, true, count, floats);
    case Compression::kFloat8:
      return decode_float8(
          static_cast<const std::uint8_t*>(bytes), count, static_cast<std::uint8_t*>(floats));
  }
}

}  // namespace unisono::kernels
