#include "unisono/checkpoint/checked_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "unisono/base/error.h"

namespace unisono::checkpoint {

CheckedFile::CheckedFile(const std::string& path, std::optional<FileSums> sums)
    : file_(path), sums_(std::move(sums)) {
  if (sums_ && sums_->n_bytes != file_.n_bytes()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: has {} bytes, but was written with {}: it is truncated or "
                            "replaced",
                            path,
                            file_.n_bytes(),
                            sums_->n_bytes));
  }
}

void CheckedFile::read_raw(std::uint64_t offset, std::span<std::byte> into) {
  const std::size_t n_now = file_.read_at(offset, into);
  n_read_ += n_now;
  if (n_now < into.size()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: ends at offset {}, but {} more bytes are expected",
                            path(),
                            offset + n_now,
                            into.size() - n_now));
  }
}

std::uint64_t CheckedFile::bytes_of_block(std::uint64_t block) const {
  return std::min(kBlockBytes, file_.n_bytes() - block * kBlockBytes);
}

void CheckedFile::read_block(std::uint64_t block,
                             std::uint32_t expected,
                             std::span<std::byte> into) {
  std::uint32_t crc = 0;
  for (std::size_t at = 0; at < into.size(); at += kPieceBytes) {
    const std::span piece = into.subspan(at, std::min(kPieceBytes, into.size() - at));
    read_raw(block * kBlockBytes + at, piece);
    crc = crc32_of(piece, crc);
  }
  if (crc != expected) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: the check sum of its bytes {} to {} is {:08x}, but they were "
                            "written with {:08x}: the file is damaged",
                            path(),
                            block * kBlockBytes,
                            block * kBlockBytes + into.size(),
                            crc,
                            expected));
  }
}

void CheckedFile::read_at(std::uint64_t offset, std::span<std::byte> into) {
  if (!sums_) {
    read_raw(offset, into);
    return;
  }
  const std::vector<std::uint32_t>& crcs = sums_->block_crc32s;
  while (!into.empty()) {
    const std::uint64_t block = offset / kBlockBytes;
    const std::uint64_t begin = block * kBlockBytes;
    if (offset >= file_.n_bytes()) {
      read_raw(offset, into);  // throws kCorruptData
    }
    const std::uint64_t n_block = bytes_of_block(block);
    const auto n_now =
        static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), n_block - (offset - begin)));
    if (n_now == n_block) {
      read_block(block, crcs[block], into.first(n_now));
    } else {
      if (cached_block_ != block) {
        cached_block_.reset();
        cached_.resize(static_cast<std::size_t>(n_block));
        read_block(block, crcs[block], cached_);
        cached_block_ = block;
      }
      std::memcpy(into.data(), cached_.data() + (offset - begin), n_now);
    }
    offset += n_now;
    into = into.subspan(n_now);
  }
}

void CheckedFile::verify() {
  std::vector<std::byte> bytes(static_cast<std::size_t>(kBlockBytes));
  for (std::uint64_t block = 0; block * kBlockBytes < file_.n_bytes(); ++block) {
    read_at(block * kBlockBytes,
            std::span(bytes).first(static_cast<std::size_t>(bytes_of_block(block))));
  }
}

}  // namespace unisono::checkpoint
