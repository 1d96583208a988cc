#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/atomic_file.h"
#include "unisono/base/error.h"
#include "unisono/data/readers/record_file.h"
#include "unisono/data/readers/record_format.h"

namespace unisono {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

class RecordWriter::Impl {
 public:
  explicit Impl(const std::string& path) : path_(path), file_(path) { put(data::kRecordMagic); }

  void add(std::span<const std::byte> record) {
    check_is_open();
    if (record.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: record {} has {} bytes; less than 4 GiB are possible",
                              path_,
                              entries_.size(),
                              record.size()));
    }
    data::RecordEntry entry{.offset = n_bytes_,
                            .n_bytes = static_cast<std::uint32_t>(record.size())};
    entry.crc = data::record_crc(entries_.size(), entry, record);
    put(record);
    entries_.push_back(entry);
  }

  void finish() {
    check_is_open();
    is_finished_ = true;
    const data::RecordFooter footer{.index_offset = n_bytes_, .n_records = entries_.size()};
    for (const data::RecordEntry& entry : entries_) {
      put(data::encode(entry));
    }
    put(data::encode(footer));
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
  std::vector<data::RecordEntry> entries_;
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

}  // namespace unisono
