#include "unisono/datasets/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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
#include "unisono/base/text.h"
#include "unisono/datasets/data_files.h"

namespace unisono::datasets {
namespace {

constexpr std::size_t kMaxFields = std::size_t{1} << 16;

struct Place {
  std::int64_t line = 1;
  std::int64_t column = 1;
};

// The characters of a file, with the position of the next character.
class Characters {
 public:
  explicit Characters(const std::string& path) : source_(path) {
    constexpr std::size_t kMostMarkBytes = 4;
    refill();
    const std::size_t n_bytes = std::min(unread_.size(), kMostMarkBytes);
    unread_ = unread_.subspan(check_encoding(path, unread_.first(n_bytes)));
  }

  [[nodiscard]] Place place() const { return place_; }

  // Returns an empty optional at the end.
  [[nodiscard]] std::optional<char> peek() {
    if (unread_.empty()) {
      refill();
    }
    return unread_.empty() ? std::nullopt
                           : std::optional(static_cast<char>(std::to_integer<int>(unread_[0])));
  }

  // Steps over the character of peek().
  void skip() {
    const bool ends_line = unread_[0] == std::byte{'\n'};
    place_.line += ends_line ? 1 : 0;
    place_.column = ends_line ? 1 : place_.column + 1;
    unread_ = unread_.subspan(1);
  }

  // Steps over `expected` if the next character equals `expected`.
  bool skip_if(char expected) {
    const bool is_there = peek() == expected;
    if (is_there) {
      skip();
    }
    return is_there;
  }

 private:
  void refill() { unread_ = std::span(buffer_).first(source_.read(buffer_)); }

  FileSource source_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(std::size_t{1} << 16);
  std::span<std::byte> unread_;
  Place place_;
};

}  // namespace

class CsvReader::Impl {
 public:
  Impl(const std::string& path, const CsvOptions& options)
      : path_(path), options_(options), text_(path) {
    if (std::string_view("\"\r\n").find(options.delimiter) != std::string_view::npos) {
      throw Error(ErrorCode::kInvalidArgument,
                  "CsvReader: the delimiter must not be a quote or a line end");
    }
    if (!options.has_header) {
      return;
    }
    if (std::optional<std::vector<std::string>> header = next()) {
      header_ = std::move(*header);
      return;
    }
    throw_at(text_.place(), "the file is empty; a header was expected");
  }

  [[nodiscard]] const std::vector<std::string>& header() const { return header_; }

  [[nodiscard]] std::int64_t line() const { return line_; }

  [[nodiscard]] std::size_t column(std::string_view name) const {
    const auto found = std::ranges::find(header_, name);
    if (found == header_.end()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}: there is no column \"{}\", only {}",
                              path_,
                              escape_text(name),
                              escape_text(fmt::format("{}", fmt::join(header_, ", ")), 400)));
    }
    return static_cast<std::size_t>(found - header_.begin());
  }

  std::optional<std::vector<std::string>> next() {
    if (take_empty_line()) {
      return std::vector<std::string>(1);
    }
    if (!text_.peek()) {
      return std::nullopt;
    }
    line_ = text_.place().line;
    std::vector<std::string> fields;
    do {
      const std::size_t n_most = n_fields_ == 0 ? kMaxFields : n_fields_;
      if (fields.size() == n_most) {
        throw_at(text_.place(), fmt::format("more than {} fields", n_most));
      }
      fields.push_back(text_.peek() == '"' ? quoted_field() : plain_field());
    } while (text_.skip_if(options_.delimiter));
    if (n_fields_ != 0 && fields.size() != n_fields_) {
      throw_at(text_.place(),
               fmt::format("{} fields, but the records before have {}", fields.size(), n_fields_));
    }
    skip_line_end();
    n_fields_ = fields.size();
    return fields;
  }

 private:
  [[noreturn]] void throw_at(Place place, const std::string& problem) const {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{}: line {}, column {}: {}", path_, place.line, place.column, problem));
  }

  // Steps over empty lines. In a file of one column an empty line is a record, except at the end of
  // the file. Returns true if the next record is an empty line.
  bool take_empty_line() {
    if (n_empty_ == 0) {
      while (skip_line_end()) {
        ++n_empty_;
      }
      n_empty_ = n_fields_ > 1 || !text_.peek() ? 0 : n_empty_;
    }
    if (n_empty_ == 0) {
      return false;
    }
    line_ = text_.place().line - n_empty_;
    --n_empty_;
    n_fields_ = 1;
    return true;
  }

  bool skip_line_end() {
    const Place place = text_.place();
    const bool has_return = text_.skip_if('\r');
    const bool has_feed = text_.skip_if('\n');
    if (has_return && !has_feed) {
      throw_at(place, "a CR without LF; lines end in LF or CR LF, others stand in quotes");
    }
    return has_feed;
  }

  void append(std::string& field, char character, Place start) const {
    if (field.size() == options_.max_field_bytes) {
      throw_at(start,
               fmt::format("a field of more than {} bytes begins here; is its quote never closed?",
                           options_.max_field_bytes));
    }
    if (character == '\0') {
      throw_at(start, "a NUL byte in the field that begins here; is the file a text in UTF-8?");
    }
    field += character;
  }

  // Reads up to the delimiter or the end of the line, which stay unread.
  std::string plain_field() {
    const Place start = text_.place();
    std::string field;
    for (std::optional<char> next = text_.peek();
         next && *next != options_.delimiter && *next != '\n' && *next != '\r';
         next = text_.peek()) {
      if (*next == '"') {
        throw_at(text_.place(),
                 "a quote in a field without quotes; put the field into quotes and double this "
                 "one");
      }
      append(field, *next, start);
      text_.skip();
    }
    return field;
  }

  std::string quoted_field() {
    const Place start = text_.place();
    text_.skip();
    std::string field;
    while (true) {
      const std::optional<char> next = text_.peek();
      if (!next) {
        throw_at(start, "the quote that begins here is never closed");
      }
      text_.skip();
      if (*next == '"' && !text_.skip_if('"')) {
        break;
      }
      append(field, *next, start);
    }
    const std::optional<char> after = text_.peek();
    if (after && *after != options_.delimiter && *after != '\n' && *after != '\r') {
      throw_at(text_.place(),
               "the field goes on behind its closing quote; a quote within quotes is doubled");
    }
    return field;
  }

  std::string path_;
  CsvOptions options_;
  Characters text_;
  std::vector<std::string> header_;
  std::size_t n_fields_ = 0;  // of each record; 0 before the first record
  std::int64_t line_ = 1;
  std::int64_t n_empty_ = 0;  // empty lines that next() still has to return as records
};

CsvReader::CsvReader(const std::string& path, const CsvOptions& options)
    : impl_(std::make_unique<Impl>(path, options)) {}

CsvReader::~CsvReader() = default;
CsvReader::CsvReader(CsvReader&&) noexcept = default;
CsvReader& CsvReader::operator=(CsvReader&&) noexcept = default;

const std::vector<std::string>& CsvReader::header() const {
  return impl_->header();
}

std::size_t CsvReader::column(std::string_view name) const {
  return impl_->column(name);
}

std::optional<std::vector<std::string>> CsvReader::next() {
  return impl_->next();
}

std::int64_t CsvReader::line() const {
  return impl_->line();
}

}  // namespace unisono::datasets
