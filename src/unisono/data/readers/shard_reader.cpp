#include "unisono/data/readers/shard_reader.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string>

#include "unisono/base/error.h"
#include "unisono/data/readers/tar_reader.h"

namespace unisono {

// Of the archive that is open; nothing at its end.
std::optional<ShardReader::PendingFile> ShardReader::next_file() {
  UNISONO_CHECK(archive_.has_value(), "a file is asked for before its archive is open");
  while (std::optional<TarEntry> entry = archive_->next()) {
    const std::string& name = entry->name;
    const std::size_t slash = name.rfind('/');
    const std::size_t last_part = slash == std::string::npos ? 0 : slash + 1;
    const std::size_t dot = name.find('.', last_part);
    if (dot == std::string::npos || dot == last_part) {
      continue;
    }
    return PendingFile{.entry = *entry, .key = name.substr(0, dot), .part = name.substr(dot + 1)};
  }
  return std::nullopt;
}

void ShardReader::add(const PendingFile& file, ShardSample& sample) {
  UNISONO_CHECK(archive_.has_value(), "a file is added after its archive was closed");
  const auto [place, is_new] = sample.parts.try_emplace(file.part, archive_->content());
  if (!is_new) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: sample \"{}\" has \"{}\" twice, the second time at offset {}",
                            sample.shard,
                            sample.key,
                            file.part,
                            file.entry.offset));
  }
}

std::optional<ShardSample> ShardReader::next() {
  while (!pending_) {
    if (!archive_) {
      if (n_opened_ == paths_.size()) {
        return std::nullopt;
      }
      archive_.emplace(paths_[n_opened_]);
      ++n_opened_;
    }
    pending_ = next_file();
    if (!pending_) {
      archive_.reset();
    }
  }
  ShardSample sample{.key = pending_->key,
                     .parts = {},
                     .shard = paths_[n_opened_ - 1],
                     .offset = pending_->entry.offset};
  while (pending_ && pending_->key == sample.key) {
    add(*pending_, sample);
    pending_ = next_file();
  }
  if (!pending_) {
    archive_.reset();
  }
  return sample;
}

}  // namespace unisono
