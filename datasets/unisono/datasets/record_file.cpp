#include "unisono/datasets/record_file.h"

#include <fmt/format.h>
#include <zconf.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/datasets/record_format.h"

namespace unisono::datasets {
namespace {

template <std::unsigned_integral T>
void put(std::span<std::byte> bytes, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
  }
}

template <std::unsigned_integral T>
T get(std::span<const std::byte> bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(std::to_integer<T>(bytes[at + i]) << (8 * i));
  }
  return value;
}

std::uint32_t go_on(std::uint32_t crc, std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

std::uint32_t record_crc(std::uint64_t number,
                         const RecordEntry& entry,
                         std::span<const std::byte> bytes) {
  std::array<std::byte, 20> head{};
  put(head, 0, number);
  put(head, 8, entry.offset);
  put(head, 16, entry.n_bytes);
  const std::uint32_t crc = go_on(0, head);
  // zlib returns its initial value for a null pointer.
  return bytes.empty() ? crc : go_on(crc, bytes);
}

std::array<std::byte, kRecordEntryBytes> encode(const RecordEntry& entry) {
  std::array<std::byte, kRecordEntryBytes> bytes{};
  put(bytes, 0, entry.offset);
  put(bytes, 8, entry.n_bytes);
  put(bytes, 12, entry.crc);
  return bytes;
}

RecordEntry decode_record_entry(std::span<const std::byte, kRecordEntryBytes> bytes) {
  return {.offset = get<std::uint64_t>(bytes, 0),
          .n_bytes = get<std::uint32_t>(bytes, 8),
          .crc = get<std::uint32_t>(bytes, 12)};
}

std::array<std::byte, kRecordFooterBytes> encode(const RecordFooter& footer) {
  std::array<std::byte, kRecordFooterBytes> bytes{};
  put(bytes, 0, footer.index_offset);
  put(bytes, 8, footer.n_records);
  put(bytes, 16, go_on(0, std::span(bytes).first(16)));
  std::ranges::copy(kRecordMagic, bytes.begin() + 24);
  return bytes;
}

std::optional<RecordFooter> decode_record_footer(
    std::span<const std::byte, kRecordFooterBytes> bytes) {
  const RecordFooter footer{.index_offset = get<std::uint64_t>(bytes, 0),
                            .n_records = get<std::uint64_t>(bytes, 8)};
  const bool is_footer = std::ranges::equal(bytes, encode(footer));
  return is_footer ? std::optional(footer) : std::nullopt;
}

class RecordFile::Impl {
 public:
  explicit Impl(const std::string& path) : file_(path), footer_(read_footer()) {}

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(footer_.n_records); }

  [[nodiscard]] std::vector<std::byte> sample(std::int64_t index) const {
    if (index < 0 || index >= size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: record {} was requested, but there are {}, counted from 0",
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
    if (record_crc(number, entry, bytes) != entry.crc) {
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
      throw_corrupt("is not a record file: it does not begin with UNIREC01");
    }
    constexpr std::uint64_t kLeast = kRecordMagic.size() + kRecordFooterBytes;
    std::array<std::byte, kRecordFooterBytes> bytes{};
    const std::uint64_t n_bytes = file_.n_bytes();
    if (n_bytes < kLeast || file_.read_at(n_bytes - bytes.size(), bytes) < bytes.size()) {
      throw_corrupt(fmt::format("truncated: {} bytes can't be a whole record file", n_bytes));
    }
    const std::optional<RecordFooter> footer = decode_record_footer(bytes);
    if (!footer) {
      throw_corrupt(
          fmt::format("truncated: the last {} of its {} bytes, at offset {}, are not the end of a "
                      "record file; fetch the file again",
                      bytes.size(),
                      n_bytes,
                      n_bytes - bytes.size()));
    }
    // The size of the file bounds the number of records before the multiplication.
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

  // Reads an entry and checks that the record lies in the file.
  [[nodiscard]] RecordEntry read_entry(std::uint64_t number) const {
    const std::uint64_t at = footer_.index_offset + number * kRecordEntryBytes;
    std::array<std::byte, kRecordEntryBytes> bytes{};
    if (file_.read_at(at, bytes) < bytes.size()) {
      throw_bad_record(number, at, "the file has become shorter since it was opened");
    }
    const RecordEntry entry = decode_record_entry(bytes);
    if (entry.offset < kRecordMagic.size() || entry.offset > footer_.index_offset ||
        entry.n_bytes > footer_.index_offset - entry.offset) {
      throw_bad_record(
          number,
          at,
          fmt::format("its entry in the index gives {} bytes at offset {}, outside the "
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

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

class RecordWriter::Impl {
 public:
  explicit Impl(const std::string& path) : path_(path), file_(path) { put(kRecordMagic); }

  void add(std::span<const std::byte> record) {
    check_is_open();
    if (record.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: record {} has {} bytes; less than 4 GiB are possible",
                              path_,
                              entries_.size(),
                              record.size()));
    }
    RecordEntry entry{.offset = n_bytes_, .n_bytes = static_cast<std::uint32_t>(record.size())};
    entry.crc = record_crc(entries_.size(), entry, record);
    put(record);
    entries_.push_back(entry);
  }

  void finish() {
    check_is_open();
    is_finished_ = true;
    const RecordFooter footer{.index_offset = n_bytes_, .n_records = entries_.size()};
    for (const RecordEntry& entry : entries_) {
      put(encode(entry));
    }
    put(encode(footer));
    flush();
    file_.commit();
  }

 private:
  void check_is_open() const {
    if (is_finished_) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: the file is finished", path_));
    }
  }

  void put(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > kBufferBytes) {
      flush();
    }
    if (bytes.size() > kBufferBytes) {
      file_.write(bytes);
    } else {
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    }
    n_bytes_ += bytes.size();
  }

  void flush() {
    file_.write(buffer_);
    buffer_.clear();
  }

  std::string path_;
  AtomicFile file_;
  std::vector<std::byte> buffer_;
  std::vector<RecordEntry> entries_;
  std::uint64_t n_bytes_ = 0;
  bool is_finished_ = false;
};

RecordWriter::RecordWriter(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}

RecordWriter::~RecordWriter() = default;

void RecordWriter::add(std::span<const std::byte> record) {
  impl_->add(record);
}

void RecordWriter::finish() {
  impl_->finish();
}

}  // namespace unisono::datasets
