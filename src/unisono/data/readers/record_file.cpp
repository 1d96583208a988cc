#include "unisono/data/readers/record_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/placeholder.h"
#include "unisono/base/regular_file.h"
#include "unisono/data/readers/record_format.h"

namespace unisono {

using data::kRecordEntryBytes;
using data::kRecordFooterBytes;
using data::kRecordMagic;
using data::RecordEntry;
using data::RecordFooter;

class RecordFile::Impl {
 public:
  explicit Impl(const std::string& path) : file_(path), footer_(read_footer()) {}

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(footer_.n_records); }

  [[nodiscard]] std::vector<std::byte> sample(std::int64_t index) const {
    if (index < 0 || index >= size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: record {} was asked for, but there are {}, from 0 on",
                              file_.path(),
                              index,
                              size()));
    }
    const auto number = static_cast<std::uint64_t>(index);
    const RecordEntry entry = read_entry(number);
    std::vector<std::byte> bytes(entry.n_bytes);
    if (file_.read_at(entry.offset, bytes) < bytes.size()) {
      throw_bad_record(number, entry.offset, "the file has become shorter since it was opened");
    }
    if (data::record_crc(number, entry, bytes) != entry.crc) {
      throw_bad_record(number,
                       entry.offset,
                       fmt::format("the check sum of its {} bytes is wrong; fetch the file again",
                                   entry.n_bytes));
    }
    return bytes;
  }

 private:
  [[noreturn]] void throw_corrupt(const std::string& problem) const {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: {}", file_.path(), problem));
  }

  [[noreturn]] void throw_bad_record(std::uint64_t number,
                                     std::uint64_t offset,
                                     const std::string& problem) const {
    throw_corrupt(fmt::format("record {}, at offset {}: {}", number, offset, problem));
  }

  [[nodiscard]] RecordFooter read_footer() const {
    std::array<std::byte, kPlaceholderBytes> buffer{};
    const auto beginning = std::span(buffer).first(file_.read_at(0, buffer));
    check_no_placeholder(file_.path(), beginning);
    if (beginning.size() < kRecordMagic.size() ||
        !std::ranges::equal(beginning.first(kRecordMagic.size()), kRecordMagic)) {
      throw_corrupt("is no record file: it does not begin with UNIREC01");
    }
    constexpr std::uint64_t kLeast = kRecordMagic.size() + kRecordFooterBytes;
    std::array<std::byte, kRecordFooterBytes> bytes{};
    const std::uint64_t n_bytes = file_.n_bytes();
    if (n_bytes < kLeast || file_.read_at(n_bytes - bytes.size(), bytes) < bytes.size()) {
      throw_corrupt(fmt::format("truncated: {} bytes can't be a whole record file", n_bytes));
    }
    const std::optional<RecordFooter> footer = data::decode_record_footer(bytes);
    if (!footer) {
      throw_corrupt(
          fmt::format("truncated: the last {} of its {} bytes, at offset {}, are not the end of a "
                      "record file; fetch the file again",
                      bytes.size(),
                      n_bytes,
                      n_bytes - bytes.size()));
    }
    // The number of records is bounded by the file's size before it is multiplied.
    const std::uint64_t index_end = n_bytes - bytes.size();
    if (footer->index_offset < kRecordMagic.size() || footer->index_offset > index_end ||
        footer->n_records != (index_end - footer->index_offset) / kRecordEntryBytes ||
        (index_end - footer->index_offset) % kRecordEntryBytes != 0) {
      throw_corrupt(
          fmt::format("an index of {} records at offset {} does not fit its {} bytes; "
                      "fetch the file again",
                      footer->n_records,
                      footer->index_offset,
                      n_bytes));
    }
    return *footer;
  }

  // An entry whose record lies within the file.
  [[nodiscard]] RecordEntry read_entry(std::uint64_t number) const {
    const std::uint64_t at = footer_.index_offset + number * kRecordEntryBytes;
    std::array<std::byte, kRecordEntryBytes> bytes{};
    if (file_.read_at(at, bytes) < bytes.size()) {
      throw_bad_record(number, at, "the file has become shorter since it was opened");
    }
    const RecordEntry entry = data::decode_record_entry(bytes);
    if (entry.offset < kRecordMagic.size() || entry.offset > footer_.index_offset ||
        entry.n_bytes > footer_.index_offset - entry.offset) {
      throw_bad_record(number,
                       at,
                       fmt::format("its entry in the index says {} bytes at offset {}, outside the "
                                   "records; fetch the file again",
                                   entry.n_bytes,
                                   entry.offset));
    }
    return entry;
  }

  RegularFile file_;
  RecordFooter footer_;
};

RecordFile::RecordFile(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}

RecordFile::~RecordFile() = default;
RecordFile::RecordFile(RecordFile&&) noexcept = default;
RecordFile& RecordFile::operator=(RecordFile&&) noexcept = default;

std::int64_t RecordFile::size() const {
  return impl_->size();
}

std::vector<std::byte> RecordFile::sample(std::int64_t index) const {
  return impl_->sample(index);
}

}  // namespace unisono
