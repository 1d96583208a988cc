#include "unisono/data/readers/shard_reader.h"

#include <fmt/format.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/left_behind.h"
#include "unisono/base/log.h"
#include "unisono/base/text_lines.h"
#include "unisono/data/readers/tar_reader.h"

namespace unisono {

ShardReader::ShardReader(std::vector<std::string> paths)
    : paths_(std::move(paths)), left_out_(std::make_unique<LeftOut>()) {}

ShardReader::~ShardReader() = default;
ShardReader::ShardReader(ShardReader&&) noexcept = default;
ShardReader& ShardReader::operator=(ShardReader&&) noexcept = default;

void ShardReader::report_left_out() {
  const LeftOut left_out = std::exchange(*left_out_, LeftOut());
  if (!paths_.empty()) {
    const std::size_t n_others = paths_.size() - 1;
    left_out.report(Logger("data"),
                    paths_.front() + (n_others == 0 ? "" : fmt::format(" and {} more", n_others)));
  }
}

// The next file of the open archive; an empty optional at its end.
std::optional<ShardReader::PendingFile> ShardReader::next_file() {
  UNISONO_CHECK(archive_.has_value(), "a file is asked for before its archive is open");
  while (std::optional<TarEntry> entry = archive_->next()) {
    const std::string& name = entry->name;
    const std::size_t slash = name.rfind('/');
    const std::size_t last_part = slash == std::string::npos ? 0 : slash + 1;
    const std::size_t dot = name.find('.', last_part);
    if (dot == std::string::npos || is_left_behind(name)) {
      left_out_->add(name);
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
                            escape_text(sample.key),
                            escape_text(file.part),
                            file.entry.offset));
  }
}

std::optional<ShardSample> ShardReader::next() {
  while (!pending_) {
    if (!archive_) {
      if (n_opened_ == paths_.size()) {
        report_left_out();
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
