#include "unisono/checkpoint/file_sums.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "unisono/kernels/crc32.h"

namespace unisono::checkpoint {

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t seed) {
  return kernels::crc32(bytes, seed);
}

void FileSummer::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t n_now =
        std::min<std::size_t>(bytes.size(), static_cast<std::size_t>(kBlockBytes - n_block_));
    block_ = crc32_of(bytes.first(n_now), block_);
    n_block_ += n_now;
    bytes = bytes.subspan(n_now);
    if (n_block_ == kBlockBytes) {
      sums_ = sums();
      block_ = 0;
      n_block_ = 0;
    }
  }
}

FileSums FileSummer::sums() const {
  FileSums all = sums_;
  if (n_block_ > 0) {
    all.n_bytes += n_block_;
    all.crc32 = static_cast<std::uint32_t>(
        crc32_combine(all.crc32, block_, static_cast<z_off_t>(n_block_)));
    all.block_crc32s.push_back(block_);
  }
  return all;
}

}  // namespace unisono::checkpoint
