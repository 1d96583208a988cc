#include "unisono/data/readers/tar_reader.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/readers/file_source.h"
#include "unisono/data/readers/tar_header.h"

namespace unisono {

using data::kTarBlockBytes;

namespace {

// Of a long name, or of what pax says of one entry.
constexpr std::uint64_t kMaxExtensionBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxEntryBytes = std::uint64_t{1} << 62;

constexpr char kPaxOfOne = 'x';
constexpr char kPaxOfAll = 'g';
constexpr char kGnuLongName = 'L';
constexpr char kGnuLongLink = 'K';
constexpr char kGnuSparse = 'S';

bool is_extension(char type) {
  return type == kPaxOfOne || type == kPaxOfAll || type == kGnuLongName || type == kGnuLongLink;
}

// Types 1 to 6 are links, devices, folders and pipes, which have no content whatever their size
// says.
bool has_content(char type) {
  return type < '1' || type > '6';
}

bool is_regular(char type) {
  return type == '0' || type == '\0' || type == '7';
}

std::uint64_t padding_of(std::uint64_t n_bytes) {
  return (kTarBlockBytes - n_bytes % kTarBlockBytes) % kTarBlockBytes;
}

}  // namespace

class TarReader::Impl {
 public:
  explicit Impl(const std::string& path) : path_(path), source_(path) {}

  std::optional<TarEntry> next() {
    skip_content();
    Extensions extensions;
    while (const std::optional<data::TarHeader> header = next_header()) {
      if (is_extension(header->type)) {
        take_extension(*header, extensions);
        continue;
      }
      if (header->type == kGnuSparse || extensions.pax.is_sparse) {
        throw_bad("is of a sparse file, which can't be read; write the archive without --sparse");
      }
      TarEntry entry = described(*header, extensions);
      extensions = {};
      if (!is_regular(header->type)) {
        skip_exactly(has_content(header->type) ? entry.n_bytes + padding_of(entry.n_bytes) : 0);
        continue;
      }
      n_content_ = entry.n_bytes;
      return entry;
    }
    return std::nullopt;
  }

  std::vector<std::byte> content() {
    if (!n_content_) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: content() without an entry that next() has returned, or twice", path_));
    }
    const std::uint64_t n_bytes = *n_content_;
    n_content_.reset();
    std::vector<std::byte> bytes = read_exactly(n_bytes);
    skip_exactly(padding_of(n_bytes));
    return bytes;
  }

 private:
  struct Extensions {
    data::PaxRecords pax;
    std::optional<std::string> gnu_name;
  };

  [[noreturn]] void throw_bad(const std::string& problem) const {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{}: header {}, at offset {}: {}", path_, n_headers_, header_offset_, problem));
  }

  [[noreturn]] void throw_ends_early(std::uint64_t n_expected, std::uint64_t n_there) const {
    throw_bad(fmt::format(
        "the archive ends early: {} of {} bytes are there; fetch it again", n_there, n_expected));
  }

  std::vector<std::byte> read_exactly(std::uint64_t n_bytes) {
    std::vector<std::byte> bytes;
    const std::uint64_t n_read = source_.append(n_bytes, bytes);
    position_ += n_read;
    if (n_read < n_bytes) {
      throw_ends_early(n_bytes, n_read);
    }
    return bytes;
  }

  void skip_exactly(std::uint64_t n_bytes) {
    const std::uint64_t n_skipped = source_.skip(n_bytes);
    position_ += n_skipped;
    if (n_skipped < n_bytes) {
      throw_ends_early(n_bytes, n_skipped);
    }
  }

  void skip_content() {
    if (n_content_) {
      const std::uint64_t n_bytes = *n_content_;
      n_content_.reset();
      skip_exactly(n_bytes + padding_of(n_bytes));
    }
  }

  // Nothing at the mark of the archive's end.
  std::optional<data::TarHeader> next_header() {
    if (has_ended_) {
      return std::nullopt;
    }
    header_offset_ = position_;
    std::array<std::byte, kTarBlockBytes> block{};
    const std::size_t n_read = source_.read(block);
    position_ += n_read;
    if (n_read < block.size()) {
      throw_bad(
          fmt::format("the archive ends early: {} of {} bytes are there, but no blocks of "
                      "zeros to mark its end; fetch it again",
                      n_read,
                      block.size()));
    }
    if (data::is_end_mark(block)) {
      has_ended_ = true;
      return std::nullopt;
    }
    std::optional<data::TarHeader> header = data::decode_tar_header(block);
    if (!header || header->n_bytes > kMaxEntryBytes) {
      throw_bad(n_headers_ == 0 ? "is no header of a tar archive; is it one?"
                                : "is damaged; fetch the archive again");
    }
    ++n_headers_;
    return header;
  }

  void take_extension(const data::TarHeader& header, Extensions& extensions) {
    if (header.n_bytes > kMaxExtensionBytes) {
      throw_bad(fmt::format("a name or pax header of {} bytes; up to {} are possible",
                            header.n_bytes,
                            kMaxExtensionBytes));
    }
    const std::vector<std::byte> bytes = read_exactly(header.n_bytes);
    skip_exactly(padding_of(header.n_bytes));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (header.type == kGnuLongName) {
      extensions.gnu_name = std::string(text.substr(0, text.find('\0')));
    } else if (header.type == kPaxOfOne) {
      const std::optional<data::PaxRecords> records = data::decode_pax(text);
      if (!records || records->size.value_or(0) > kMaxEntryBytes) {
        throw_bad("its pax records are damaged; fetch the archive again");
      }
      extensions.pax = *records;
    }
  }

  [[nodiscard]] TarEntry described(const data::TarHeader& header,
                                   const Extensions& extensions) const {
    return {.name = extensions.pax.path.value_or(extensions.gnu_name.value_or(header.name)),
            .n_bytes = extensions.pax.size.value_or(header.n_bytes),
            .offset = header_offset_};
  }

  std::string path_;
  data::FileSource source_;
  std::uint64_t position_ = 0;
  std::uint64_t header_offset_ = 0;
  std::int64_t n_headers_ = 0;
  bool has_ended_ = false;
  std::optional<std::uint64_t> n_content_;  // of the last entry, while it is not read
};

TarReader::TarReader(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}

TarReader::~TarReader() = default;
TarReader::TarReader(TarReader&&) noexcept = default;
TarReader& TarReader::operator=(TarReader&&) noexcept = default;

std::optional<TarEntry> TarReader::next() {
  return impl_->next();
}

std::vector<std::byte> TarReader::content() {
  return impl_->content();
}

}  // namespace unisono
