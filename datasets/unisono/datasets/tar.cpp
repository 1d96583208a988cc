#include "unisono/datasets/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/base/log.h"
#include "unisono/base/text.h"
#include "unisono/datasets/data_files.h"
#include "unisono/datasets/tar_header.h"

namespace unisono::datasets {
namespace {

// Limit of a long name, of the pax records of an entry, and of the pieces of a sparse file.
constexpr std::uint64_t kMaxExtensionBytes = std::uint64_t{1} << 20;
// Limit of holes: a few bytes can claim a huge file of zeros.
constexpr std::uint64_t kMaxHoleBytes = std::uint64_t{1} << 28;
constexpr std::uint64_t kMaxEntryBytes = std::uint64_t{1} << 62;

constexpr std::size_t kEndMarkBlocks = 2;

constexpr char kPaxOfOne = 'x';
constexpr char kPaxOfAll = 'g';
constexpr char kGnuLongName = 'L';
constexpr char kGnuLongLink = 'K';
constexpr char kGnuSparse = 'S';

bool is_extension(char type) {
  return type == kPaxOfOne || type == kPaxOfAll || type == kGnuLongName || type == kGnuLongLink;
}

// Types 1 to 6 are links, devices, folders and pipes. These entries have no content, whatever size
// the header states.
bool has_content(char type) {
  return type < '1' || type > '6';
}

bool is_regular(char type) {
  return type == '0' || type == '\0' || type == '7' || type == kGnuSparse;
}

std::uint64_t padding_of(std::uint64_t n_bytes) {
  return (kTarBlockBytes - n_bytes % kTarBlockBytes) % kTarBlockBytes;
}

// The number in the first line; an impossible number for another text.
std::size_t n_pieces_of(std::string_view text) {
  std::size_t n_pieces = kMaxExtensionBytes;
  const std::string_view line = text.substr(0, text.find('\n'));
  std::from_chars(line.data(), line.data() + line.size(), n_pieces);
  return std::min<std::size_t>(n_pieces, kMaxExtensionBytes);
}

}  // namespace

class TarReader::Impl {
 public:
  explicit Impl(const std::string& path) : path_(path), source_(path) {}

  std::optional<TarEntry> next() {
    skip_content();
    Extensions extensions;
    while (const std::optional<TarHeader> header = next_header()) {
      if (is_extension(header->type)) {
        take_extension(*header, extensions);
        continue;
      }
      TarEntry entry = described(*header, extensions);
      if (!is_regular(header->type)) {
        skip_exactly(has_content(header->type) ? entry.n_bytes + padding_of(entry.n_bytes) : 0);
        extensions = {};
        continue;
      }
      content_ = header->type == kGnuSparse || extensions.pax.real_size
                     ? sparse_content(*header, extensions.pax, entry.n_bytes)
                     : plain_content(entry.n_bytes);
      entry.n_bytes = content_->n_bytes;
      return entry;
    }
    if (extensions.are_of_one) {
      throw_bad("the entry is missing that the last header announces; fetch the archive again");
    }
    return std::nullopt;
  }

  std::vector<std::byte> content() {
    if (!content_) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: content() without an entry that next() has returned, or twice", path_));
    }
    const Content content = std::move(*content_);
    content_.reset();
    std::vector<std::byte> bytes;
    for (const SparsePiece& piece : content.pieces) {
      bytes.resize(piece.offset);
      append_exactly(piece.n_bytes, bytes);
    }
    bytes.resize(content.n_bytes);
    skip_exactly(padding_of(content.n_stored));
    return bytes;
  }

 private:
  struct Extensions {
    PaxRecords pax;
    std::optional<std::string> gnu_name;
    bool are_of_one = false;  // True for the next entry alone, false for all entries.
  };

  // Unread content of an entry.
  struct Content {
    std::uint64_t n_stored = 0;  // Bytes in the archive.
    std::uint64_t n_bytes = 0;   // Bytes of the expanded file.
    std::vector<SparsePiece> pieces;
  };

  static Content plain_content(std::uint64_t n_bytes) {
    return {.n_stored = n_bytes, .n_bytes = n_bytes, .pieces = {{.offset = 0, .n_bytes = n_bytes}}};
  }

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
    append_exactly(n_bytes, bytes);
    return bytes;
  }

  void append_exactly(std::uint64_t n_bytes, std::vector<std::byte>& bytes) {
    const std::uint64_t n_read = source_.append(n_bytes, bytes);
    position_ += n_read;
    if (n_read < n_bytes) {
      throw_ends_early(n_bytes, n_read);
    }
  }

  void skip_exactly(std::uint64_t n_bytes) {
    const std::uint64_t n_skipped = source_.skip(n_bytes);
    position_ += n_skipped;
    if (n_skipped < n_bytes) {
      throw_ends_early(n_bytes, n_skipped);
    }
  }

  void skip_content() {
    if (content_) {
      const std::uint64_t n_stored = content_->n_stored;
      content_.reset();
      skip_exactly(n_stored + padding_of(n_stored));
    }
  }

  // Fills `block_`. Returns the number of bytes.
  std::size_t read_block() {
    header_offset_ = position_;
    const std::size_t n_read = source_.read(block_);
    position_ += n_read;
    return n_read;
  }

  // Returns an empty optional at the end of the file. Blocks of zeros mark the end of an archive;
  // another archive may follow in a file of `cat a.tar b.tar`.
  std::optional<TarHeader> next_header() {
    std::size_t n_zero_blocks = has_ended_ ? kEndMarkBlocks : 0;
    std::size_t n_read = read_block();
    for (; n_read == block_.size() && is_zero_block(block_); n_read = read_block()) {
      ++n_zero_blocks;
    }
    has_ended_ = n_zero_blocks >= kEndMarkBlocks;
    const auto rest = std::span<const std::byte>(block_).first(n_read);
    if (has_ended_ && n_read < block_.size() && is_zero_block(rest)) {
      return std::nullopt;
    }
    if (n_read < block_.size() && !has_ended_) {
      throw_bad(
          fmt::format("the archive ends early: {} of {} bytes are there, but not the {} blocks of "
                      "zeros that mark its end; fetch it again",
                      n_read,
                      block_.size(),
                      kEndMarkBlocks));
    }
    if (n_zero_blocks == 1) {
      throw_bad(
          "a lone block of zeros is before it, in place of a header or of the two that mark "
          "an archive's end; fetch the archive again");
    }
    std::optional<TarHeader> header;
    if (n_read == block_.size()) {
      header = decode_tar_header(block_);
    }
    if (!header || header->n_bytes > kMaxEntryBytes) {
      throw_bad(bad_header());
    }
    has_ended_ = false;
    ++n_headers_;
    return header;
  }

  [[nodiscard]] const char* bad_header() const {
    if (has_ended_) {
      return "follows the mark of the archive's end and is not a header of a second archive; "
             "fetch the archive again";
    }
    return n_headers_ == 0 ? "is not a header of a tar archive; is it one?"
                           : "is damaged; fetch the archive again";
  }

  // Reads the pieces of a sparse file. The list of pieces may take further blocks.
  Content sparse_content(const TarHeader& header, const PaxRecords& pax, std::uint64_t n_stored) {
    Content content{
        .n_stored = n_stored, .n_bytes = pax.real_size.value_or(0), .pieces = pax.pieces};
    if (header.type == kGnuSparse) {
      read_gnu_pieces(content);
    } else if (pax.content_has_pieces) {
      read_pieces_as_text(content);
    }
    if (content.n_bytes > kMaxEntryBytes ||
        !are_pieces_of(content.pieces, content.n_bytes, content.n_stored)) {
      throw_bad_pieces();
    }
    if (content.n_bytes > content.n_stored + kMaxHoleBytes) {
      throw_bad(
          fmt::format("a sparse file of {} bytes, of which {} are stored; holes of up to {} "
                      "bytes can be read",
                      content.n_bytes,
                      content.n_stored,
                      kMaxHoleBytes));
    }
    return content;
  }

  [[noreturn]] void throw_bad_pieces() const {
    throw_bad("its list of the pieces of a sparse file is damaged; fetch the archive again");
  }

  void read_gnu_pieces(Content& content) {
    const std::optional<std::uint64_t> n_bytes = decode_gnu_real_size(block_);
    std::optional<bool> has_more = decode_gnu_pieces(block_, true, content.pieces);
    std::uint64_t n_read = 0;
    while (has_more == true) {
      const std::vector<std::byte> more = read_exactly(kTarBlockBytes);
      n_read += more.size();
      has_more = decode_gnu_pieces(TarBlock(more.data(), kTarBlockBytes), false, content.pieces);
      if (n_read > kMaxExtensionBytes) {
        throw_bad_pieces();
      }
    }
    if (!n_bytes || !has_more) {
      throw_bad_pieces();
    }
    content.n_bytes = *n_bytes;
  }

  // Pax format 1.0 has a line with the number of pieces, then two lines per piece for offset and
  // size, padded to whole blocks.
  void read_pieces_as_text(Content& content) {
    std::string text;
    std::size_t n_lines = 0;
    std::size_t n_expected = 1;
    while (n_lines < n_expected) {
      if (content.n_stored < kTarBlockBytes || text.size() >= kMaxExtensionBytes) {
        throw_bad_pieces();
      }
      const std::vector<std::byte> block = read_exactly(kTarBlockBytes);
      content.n_stored -= block.size();
      text.append(reinterpret_cast<const char*>(block.data()), block.size());
      n_lines += static_cast<std::size_t>(std::ranges::count(block, std::byte{'\n'}));
      if (n_expected == 1 && n_lines > 0) {
        n_expected += 2 * n_pieces_of(text);
      }
    }
    text.resize(text.rfind('\n'));
    const std::size_t first_end = std::min(text.find('\n'), text.size() - 1);
    std::optional<std::vector<SparsePiece>> pieces =
        decode_pieces(std::string_view(text).substr(first_end + 1), '\n');
    if (!pieces || n_lines != n_expected) {
      throw_bad_pieces();
    }
    content.pieces = std::move(*pieces);
  }

  void take_extension(const TarHeader& header, Extensions& extensions) {
    if (header.n_bytes > kMaxExtensionBytes) {
      throw_bad(fmt::format("a name or pax header of {} bytes; up to {} are possible",
                            header.n_bytes,
                            kMaxExtensionBytes));
    }
    const std::vector<std::byte> bytes = read_exactly(header.n_bytes);
    skip_exactly(padding_of(header.n_bytes));
    extensions.are_of_one = extensions.are_of_one || header.type != kPaxOfAll;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (header.type == kGnuLongName) {
      extensions.gnu_name = std::string(text.substr(0, text.find('\0')));
    } else if (header.type == kPaxOfOne) {
      const std::optional<PaxRecords> records = decode_pax(text);
      if (!records || records->size.value_or(0) > kMaxEntryBytes) {
        throw_bad("its pax records are damaged; fetch the archive again");
      }
      extensions.pax = *records;
    }
  }

  [[nodiscard]] TarEntry described(const TarHeader& header, const Extensions& extensions) const {
    return {.name = extensions.pax.path.value_or(extensions.gnu_name.value_or(header.name)),
            .n_bytes = extensions.pax.size.value_or(header.n_bytes),
            .offset = header_offset_};
  }

  std::string path_;
  FileSource source_;
  std::uint64_t position_ = 0;
  std::uint64_t header_offset_ = 0;
  std::int64_t n_headers_ = 0;
  bool has_ended_ = false;  // True after an end mark.
  std::array<std::byte, kTarBlockBytes> block_{};
  std::optional<Content> content_;  // Content of the last entry, until content() reads it.
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

ShardReader::ShardReader(std::vector<std::string> paths)
    : paths_(std::move(paths)), left_out_(std::make_unique<LeftOut>()) {}

ShardReader::~ShardReader() = default;
ShardReader::ShardReader(ShardReader&&) noexcept = default;
ShardReader& ShardReader::operator=(ShardReader&&) noexcept = default;

void ShardReader::report_left_out() {
  const LeftOut left_out = std::exchange(*left_out_, LeftOut());
  if (!paths_.empty()) {
    const std::size_t n_others = paths_.size() - 1;
    left_out.report(base::Logger("data"),
                    paths_.front() + (n_others == 0 ? "" : fmt::format(" and {} more", n_others)));
  }
}

// Returns the next file of the open archive, or an empty optional at the end.
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

}  // namespace unisono::datasets
