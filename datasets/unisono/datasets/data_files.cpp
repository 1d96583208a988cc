#include "unisono/datasets/data_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zconf.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/file.h"

namespace unisono::datasets {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} * 1024;
constexpr std::size_t kFirstGrowth = std::size_t{1} << 20;
constexpr int kGzipOnly = MAX_WBITS + 16;

bool starts_as_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

}  // namespace

void FileSource::InflateEnd::operator()(z_stream* stream) const {
  ::inflateEnd(stream);
  std::default_delete<z_stream>()(stream);
}

FileSource::FileSource(std::string path) : file_(std::move(path)), buffer_(kBufferBytes) {
  refill();
  check_no_placeholder(file_.path(), unread_);
  if (!starts_as_gzip(unread_)) {
    return;
  }
  auto stream = std::make_unique<z_stream>();
  if (::inflateInit2(stream.get(), kGzipOnly) != Z_OK) {
    throw std::bad_alloc();
  }
  inflate_.reset(stream.release());
}

std::optional<std::uint64_t> FileSource::content_bytes() const {
  if (inflate_ != nullptr) {
    return std::nullopt;
  }
  return file_.n_bytes();
}

std::size_t FileSource::read(std::span<std::byte> into) {
  std::size_t n_read = 0;
  while (n_read < into.size()) {
    if (unread_.empty()) {
      refill();
    }
    const std::span<std::byte> rest = into.subspan(n_read);
    if (unread_.empty()) {
      if (inflate_ != nullptr && inside_member_) {
        throw_corrupt(Z_BUF_ERROR);
      }
      break;
    }
    n_read += inflate_ != nullptr ? inflate_some(rest) : copy_plain(rest);
  }
  return n_read;
}

std::uint64_t FileSource::append(std::uint64_t n_bytes, std::vector<std::byte>& into) {
  std::uint64_t n_appended = 0;
  while (n_appended < n_bytes) {
    const std::size_t start = into.size();
    const std::uint64_t n_wanted =
        std::min<std::uint64_t>(n_bytes - n_appended, std::max(kFirstGrowth, start));
    into.resize(start + n_wanted);
    const std::size_t n_read = read(std::span(into).subspan(start));
    n_appended += n_read;
    if (n_read < n_wanted) {
      into.resize(start + n_read);
      break;
    }
  }
  return n_appended;
}

std::uint64_t FileSource::skip(std::uint64_t n_bytes) {
  std::vector<std::byte> scratch(std::min<std::uint64_t>(n_bytes, kBufferBytes));
  std::uint64_t n_skipped = 0;
  while (n_skipped < n_bytes) {
    const std::uint64_t n_wanted = std::min<std::uint64_t>(n_bytes - n_skipped, scratch.size());
    const std::size_t n_read = read(std::span(scratch).first(n_wanted));
    n_skipped += n_read;
    if (n_read < n_wanted) {
      break;
    }
  }
  return n_skipped;
}

// Leaves unread_ empty at the end of the file.
void FileSource::refill() {
  unread_ = std::span(buffer_).first(file_.read(buffer_));
}

std::size_t FileSource::copy_plain(std::span<std::byte> into) {
  const std::size_t n_bytes = std::min(into.size(), unread_.size());
  std::memcpy(into.data(), unread_.data(), n_bytes);
  unread_ = unread_.subspan(n_bytes);
  return n_bytes;
}

std::size_t FileSource::inflate_some(std::span<std::byte> into) {
  if (!inside_member_) {
    ::inflateReset(inflate_.get());
    inside_member_ = true;
  }
  const std::size_t n_wanted = std::min(into.size(), kBufferBytes);
  inflate_->next_in = reinterpret_cast<Bytef*>(unread_.data());
  inflate_->avail_in = static_cast<uInt>(unread_.size());
  inflate_->next_out = reinterpret_cast<Bytef*>(into.data());
  inflate_->avail_out = static_cast<uInt>(n_wanted);

  const int status = ::inflate(inflate_.get(), Z_NO_FLUSH);

  unread_ = unread_.last(inflate_->avail_in);
  const std::size_t n_bytes = n_wanted - inflate_->avail_out;
  n_inflated_ += n_bytes;
  if (status == Z_STREAM_END) {
    inside_member_ = false;
  } else if (status != Z_OK) {
    throw_corrupt(status);
  }
  return n_bytes;
}

void FileSource::throw_corrupt(int status) const {
  if (status == Z_MEM_ERROR) {
    throw std::bad_alloc();
  }
  if (status == Z_BUF_ERROR) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: the gzip data ends early: all {} bytes of the file give {} bytes "
                            "of content, and more should follow; fetch the file again",
                            file_.path(),
                            file_.n_bytes(),
                            n_inflated_));
  }
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}: corrupt gzip data after {} bytes of content: {}; fetch the file "
                          "again",
                          file_.path(),
                          n_inflated_,
                          inflate_->msg != nullptr ? inflate_->msg : ::zError(status)));
}

TextLines open_text(const std::string& path) {
  // The copies of a std::function share the source.
  const auto source = std::make_shared<FileSource>(path);
  return {path, [source](std::span<std::byte> into) { return source->read(into); }};
}

namespace fs = std::filesystem;

namespace {

// Path of an existing file with one of the names; an empty optional if no file has one.
std::optional<fs::path> find_file(const fs::path& folder, const Spellings& spellings) {
  for (const std::string& spelling : spellings) {
    for (const char* const suffix : {"", ".gz"}) {
      fs::path path = folder / (spelling + suffix);
      std::error_code unreadable;
      if (fs::exists(path, unreadable) && !fs::is_directory(path, unreadable)) {
        return path;
      }
    }
  }
  return std::nullopt;
}

std::optional<fs::path> find_file_or_inner(const fs::path& folder, const Spellings& spellings) {
  std::optional<fs::path> path = find_file(folder, spellings);
  for (const std::string& spelling : spellings) {
    for (const char* const suffix : {"", ".gz"}) {
      path = path ? path : find_file(folder / (spelling + suffix), spellings);
    }
  }
  return path;
}

FoundFiles files_in(const fs::path& folder, const std::vector<Spellings>& files) {
  FoundFiles found;
  for (const Spellings& spellings : files) {
    if (const std::optional<fs::path> path = find_file_or_inner(folder, spellings)) {
      found.paths.push_back(path->string());
    } else {
      found.missing.push_back(spellings.front());
    }
  }
  return found;
}

}  // namespace

void check_data_folder(const std::string& folder, const std::string& hint) {
  std::error_code reason;
  const fs::file_status status = fs::status(folder, reason);
  if (status.type() == fs::file_type::not_found) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("data folder \"{}\": there is no such folder; {}", folder, hint));
  }
  if (reason) {
    throw system_error(fmt::format("data folder \"{}\": can't look into it", folder),
                       reason.value());
  }
  if (status.type() != fs::file_type::directory) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("data folder \"{}\": is not a folder; {}", folder, hint));
  }
}

FolderEntries list_folder(const fs::path& root, const std::string& below, LeftOut& left_out) {
  const fs::path folder = below.empty() ? root : root / below;
  FolderEntries entries;
  std::error_code reason;
  fs::directory_iterator place(folder, reason);
  while (!reason && place != fs::directory_iterator()) {
    std::string name = place->path().filename().string();
    std::error_code dangling;
    if (is_left_behind(name)) {
      left_out.add((fs::path(below) / name).string());
    } else {
      (place->is_directory(dangling) ? entries.folders : entries.others).push_back(std::move(name));
    }
    place.increment(reason);
  }
  if (reason) {
    throw system_error(fmt::format("data folder \"{}\": can't list its files", folder.string()),
                       reason.value());
  }
  std::ranges::sort(entries.folders);
  std::ranges::sort(entries.others);
  return entries;
}

FoundFiles find_data_files(const fs::path& folder,
                           const std::string& usual,
                           const std::vector<Spellings>& files) {
  FoundFiles best = files_in(folder, files);
  const auto take = [&](const fs::path& place) {
    FoundFiles found = files_in(place, files);
    const bool is_whole = found.missing.empty();
    if (found.paths.size() > best.paths.size()) {
      best = std::move(found);
    }
    return is_whole;
  };
  if (best.missing.empty() || take(folder / usual)) {
    return best;
  }
  LeftOut not_reported;
  std::vector<std::string> whole;
  for (const std::string& name : list_folder(folder, "", not_reported).folders) {
    if (take(folder / name)) {
      whole.push_back(name);
    }
  }
  if (whole.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("data folder \"{}\": {} is in each of its folders {}; give one of them",
                            folder.string(),
                            files.front().front(),
                            fmt::join(whole, ", ")));
  }
  return best;
}

}  // namespace unisono::datasets
