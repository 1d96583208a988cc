#include "unisono/base/text.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/file.h"

namespace unisono {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;
constexpr std::size_t kMostMarkBytes = 4;
constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";

struct Encoding {
  std::string_view beginning;
  std::string_view name;
};

// UTF-32 comes first, because the little-endian mark begins with the mark of UTF-16. The last two
// rows match texts without a mark that begin with an ASCII character.
constexpr std::array<Encoding, 4> kMarks{{{{"\xFF\xFE\0\0", 4}, "UTF-32LE"},
                                          {{"\0\0\xFE\xFF", 4}, "UTF-32BE"},
                                          {{"\xFF\xFE", 2}, "UTF-16LE"},
                                          {{"\xFE\xFF", 2}, "UTF-16BE"}}};

std::string_view encoding_without_mark(std::string_view text) {
  if (text.size() < 2 || (text[0] == '\0') == (text[1] == '\0')) {
    return "";
  }
  return text[0] == '\0' ? "UTF-16BE" : "UTF-16LE";
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns true for a code point that has no visible width.
bool is_invisible(std::uint32_t character) {
  return character == 0xAD || character == 0xFEFF || (character >= 0x80 && character < 0xA1) ||
         (character >= 0x200B && character <= 0x200F) ||
         (character >= 0x2028 && character <= 0x202E) ||
         (character >= 0x2060 && character <= 0x2064);
}

std::uint32_t code_point(std::string_view character) {
  constexpr std::array<unsigned, 5> kFirstByteMask{0, 0x7F, 0x1F, 0x0F, 0x07};
  std::uint32_t code = static_cast<unsigned char>(character[0]) & kFirstByteMask[character.size()];
  for (const char byte : character.substr(1)) {
    code = (code << 6U) | (static_cast<unsigned char>(byte) & 0x3FU);
  }
  return code;
}

std::string escape_character(std::string_view character) {
  const auto byte = static_cast<unsigned char>(character[0]);
  switch (character[0]) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  if (character.size() == 1 && (byte < 0x20 || byte >= 0x7F)) {
    return fmt::format("\\x{:02X}", byte);
  }
  const std::uint32_t code = code_point(character);
  return character.size() > 1 && is_invisible(code) ? fmt::format("\\u{:04X}", code)
                                                    : std::string(character);
}

}  // namespace

std::size_t check_encoding(const std::string& name, std::span<const std::byte> beginning) {
  const std::string_view text = as_text(beginning);
  const auto* const mark = std::ranges::find_if(
      kMarks, [text](const Encoding& encoding) { return text.starts_with(encoding.beginning); });
  const std::string_view encoding = mark != kMarks.end() ? mark->name : encoding_without_mark(text);
  if (!encoding.empty()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: the text is {}, and must be UTF-8; convert it: iconv -f {} -t "
                            "UTF-8 FILE > NEW_FILE",
                            name,
                            encoding,
                            encoding));
  }
  return text.starts_with(kUtf8Mark) ? kUtf8Mark.size() : 0;
}

TextLines::TextLines(std::string name, Read read)
    : name_(std::move(name)), read_(std::move(read)), buffer_(kBufferBytes) {
  std::size_t n_bytes = 0;
  for (std::size_t n_more = 1; n_bytes < kMostMarkBytes && n_more > 0; n_bytes += n_more) {
    n_more = read_(std::span(buffer_).subspan(n_bytes));
  }
  const std::span<const std::byte> beginning = std::span(buffer_).first(n_bytes);
  const std::size_t mark_bytes =
      check_encoding(name_, beginning.first(std::min(n_bytes, kMostMarkBytes)));
  unread_ = as_text(beginning).substr(mark_bytes);
}

void TextLines::refuse(const std::string& problem) const {
  throw Error(ErrorCode::kCorruptData, fmt::format("{}: line {}: {}", name_, n_read_, problem));
}

void TextLines::refill() {
  unread_ = as_text(std::span<const std::byte>(buffer_).first(read_(buffer_)));
}

std::optional<std::string> TextLines::read_line() {
  std::string line;
  bool is_there = false;
  bool is_whole = false;
  while (!is_whole) {
    if (unread_.empty()) {
      refill();
    }
    if (unread_.empty()) {
      break;
    }
    is_there = true;
    const std::size_t end = unread_.find('\n');
    is_whole = end != std::string_view::npos;
    line += unread_.substr(0, end);
    unread_.remove_prefix(is_whole ? end + 1 : unread_.size());
    if (line.size() > kMaxLineBytes) {
      ++n_read_;
      refuse(fmt::format("more than {} bytes; is the file a text?", kMaxLineBytes));
    }
  }
  if (!is_there) {
    return std::nullopt;
  }
  ++n_read_;
  if (is_whole && line.ends_with('\r')) {
    line.pop_back();
  }
  if (const std::size_t at = line.find('\r'); at != std::string::npos) {
    refuse(
        fmt::format("a CR without LF at byte {}; lines end in LF or CR LF. Convert the file: tr "
                    "'\\r' '\\n' < FILE > NEW_FILE",
                    at + 1));
  }
  if (const std::size_t at = line.find('\0'); at != std::string::npos) {
    refuse(fmt::format("a NUL byte at byte {}; is the file a text in UTF-8?", at + 1));
  }
  return line;
}

std::optional<std::string> TextLines::next() {
  if (n_empty_ == 0 && !pending_) {
    for (pending_ = read_line(); pending_ && pending_->empty(); pending_ = read_line()) {
      ++n_empty_;
    }
    if (!pending_) {
      n_empty_ = 0;
    }
  }
  if (!pending_) {
    return std::nullopt;
  }
  ++line_;
  if (n_empty_ > 0) {
    --n_empty_;
    return std::string();
  }
  return std::exchange(pending_, std::nullopt);
}

std::vector<std::string> read_text_lines(const std::string& path) {
  RegularFile file(path);
  TextLines source(path, [&file](std::span<std::byte> into) { return file.read(into); });
  std::vector<std::string> lines;
  while (std::optional<std::string> line = source.next()) {
    lines.push_back(std::move(*line));
  }
  return lines;
}

std::string escape_text(std::string_view text, std::size_t max_bytes) {
  const std::string_view shown = utf8_prefix(text, max_bytes);
  std::string_view rest = shown;
  std::string escaped;
  while (!rest.empty()) {
    const std::size_t n_bytes = utf8_character_bytes(rest);
    escaped += n_bytes == 0 ? fmt::format("\\x{:02X}", static_cast<unsigned char>(rest[0]))
                            : escape_character(rest.substr(0, n_bytes));
    rest.remove_prefix(std::max<std::size_t>(n_bytes, 1));
  }
  return shown.size() < text.size() ? escaped + "..." : escaped;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = last[j] + (a[i] == b[j] ? 0 : 1);
      row[j + 1] = std::min({row[j] + 1, last[j + 1] + 1, replaced});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        row[j + 1] = std::min(row[j + 1], before_last[j - 1] + 1);
      }
    }
  }
  return row.back();
}

std::string random_hex(std::size_t n_bytes) {
  std::string raw(n_bytes, '\0');
  // getrandom() never truncates a request of up to 256 bytes.
  if (::getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) {
    throw system_error("getrandom", errno);
  }
  std::string hex;
  for (const char byte : raw) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return hex;
}

}  // namespace unisono
