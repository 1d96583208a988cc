#include "unisono/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <random>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/text.h"

namespace unisono {
namespace {

Fd open_file(const std::string& path) {
  // O_NONBLOCK: otherwise opening a named pipe without a writer blocks forever.
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.is_open()) {
    return file;
  }
  const int reason = errno;
  if (reason == ENOENT || reason == ENOTDIR) {
    throw Error(ErrorCode::kNotFound, fmt::format("{}: there is no such file", path));
  }
  throw system_error(fmt::format("{}: can't open the file", path), reason);
}

std::uint64_t regular_file_bytes(const Fd& file, const std::string& path) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) {
    throw system_error(fmt::format("{}: can't get the file's state", path), errno);
  }
  if (S_ISDIR(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: is a folder, not a file", path));
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: is not a regular file (but a pipe, socket or device)", path));
  }
  return static_cast<std::uint64_t>(status.st_size);
}

// Calls `read_some` until `into` is full or the file ends.
template <class ReadSome>
std::size_t read_fully(std::span<std::byte> into, const std::string& path, ReadSome read_some) {
  std::size_t n_read = 0;
  while (n_read < into.size()) {
    const ssize_t n_now = read_some(into.subspan(n_read), n_read);
    if (n_now < 0 && errno == EINTR) {
      continue;
    }
    if (n_now < 0) {
      throw system_error(fmt::format("{}: can't read the file", path), errno);
    }
    if (n_now == 0) {
      break;
    }
    n_read += static_cast<std::size_t>(n_now);
  }
  return n_read;
}

}  // namespace

RegularFile::RegularFile(std::string path)
    : path_(std::move(path)), file_(open_file(path_)), n_bytes_(regular_file_bytes(file_, path_)) {}

std::size_t RegularFile::read(std::span<std::byte> into) {
  return read_fully(into, path_, [this](std::span<std::byte> rest, std::size_t) {
    return ::read(file_.get(), rest.data(), rest.size());
  });
}

std::size_t RegularFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  return read_fully(into, path_, [&](std::span<std::byte> rest, std::size_t n_read) {
    return ::pread(file_.get(), rest.data(), rest.size(), static_cast<off_t>(offset + n_read));
  });
}

namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  std::random_device random;
  std::filesystem::path name = path;
  name += ".part-" + std::to_string(random()) + std::to_string(random());
  return name;
}

// Granularity of write-back. Smaller requests do not pay.
constexpr off_t kWriteBackBytes = off_t{1} << 22;

// Starts asynchronous write-back of the complete kWriteBackBytes blocks that the last `n_bytes`
// written have filled. flush() then waits for less data. Errors are ignored here because flush()
// reports them.
void begin_write_back(int file, ssize_t n_bytes) {
  const off_t size = ::lseek(file, 0, SEEK_CUR);
  const off_t begin = (size - n_bytes) / kWriteBackBytes * kWriteBackBytes;
  const off_t end = size / kWriteBackBytes * kWriteBackBytes;
  if (end > begin) {
    (void)::sync_file_range(file, begin, end - begin, SYNC_FILE_RANGE_WRITE);
  }
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)), temporary_(temporary_name(path_)) {
  if (!path_.has_filename()) {
    throw Error(ErrorCode::kInvalidArgument,
                "can't write a file to '" + path_.string() + "': the path has no file name");
  }
  std::error_code ignored;
  if (const auto status = std::filesystem::status(path_, ignored);
      std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "can't write a file to '" + path_.string() + "': " +
            (is_directory(status) ? "it is a folder" : "it is a device, a pipe or a socket"));
  }
  fd_ = Fd(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd_.is_open()) {
    fail("create a file in " + folder_of(path_).string(), errno);
  }
}

AtomicFile::~AtomicFile() {
  if (fd_.is_open()) {
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty() && write_error_ == 0) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written >= 0) {
      begin_write_back(fd_.get(), written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      write_error_ = errno;
    }
  }
}

void AtomicFile::flush() {
  if (write_error_ != 0) {
    fail("write it", write_error_);
  }
  if (::fsync(fd_.get()) != 0) {
    fail("write it to disk", errno);
  }
}

void AtomicFile::commit() {
  flush();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail("give it its name", errno);
  }
  fd_.reset();
  sync_folder(folder_of(path_));
}

void AtomicFile::fail(const std::string& step, int error_number) const {
  std::string hint;
  std::error_code ignored;
  if (error_number == ENOENT && !std::filesystem::exists(folder_of(path_), ignored)) {
    hint = "; create the folder " + folder_of(path_).string() + " first";
  }
  throw system_error("save " + path_.string() + ": can't " + step + hint, error_number);
}

void sync_folder(const std::filesystem::path& folder) {
  const Fd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool is_synced = opened.is_open() && ::fsync(opened.get()) == 0;
  const int error_number = errno;
  const bool is_impossible =
      opened.is_open() ? error_number == EINVAL || error_number == ENOTSUP : error_number == EACCES;
  if (!is_synced && !is_impossible) {
    throw system_error("write the names in " + folder.string() + " to disk", error_number);
  }
}

namespace {

struct Pointer {
  std::string_view beginning;
  const char* kind;
  const char* command;
};

constexpr std::array<Pointer, 2> kPointers{
    {{"version https://git-lfs.github.com/spec/", "Git LFS", "git lfs pull --include"},
     {"/annex/objects/", "git-annex", "git annex get"}}};

// In lower case; the comparison ignores case.
constexpr std::array<std::string_view, 3> kPages{"<!doctype html", "<html", "<?xml"};

bool is_page(std::string_view text) {
  text.remove_prefix(text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return std::ranges::any_of(kPages, [text](std::string_view page) {
    return std::ranges::equal(text.substr(0, page.size()), page, [](char one, char small) {
      return one == small || (one >= 'A' && one <= 'Z' && one - 'A' + 'a' == small);
    });
  });
}

}  // namespace

void check_no_placeholder(const std::string& name, std::span<const std::byte> beginning) {
  const std::string_view text(reinterpret_cast<const char*>(beginning.data()), beginning.size());
  const std::string file = name.substr(name.rfind('/') + 1);
  for (const Pointer& pointer : kPointers) {
    if (text.starts_with(pointer.beginning)) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: is a pointer of {} in place of the file; fetch the file in its "
                              "repository: {} \"{}\"",
                              name,
                              pointer.kind,
                              pointer.command,
                              file));
    }
  }
  if (is_page(text)) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: is a web page in place of the file, \"{}\"; its address is wrong "
                            "or needs a login. Fetch the file: curl --fail --location --output "
                            "\"{}\" ADDRESS",
                            name,
                            escape_text(text),
                            file));
  }
}

namespace {

constexpr std::size_t kMostLeftOutNames = 3;

// In lower case, because Windows and macOS ignore the case of file names.
constexpr std::array<std::string_view, 17> kLeftBehindNames{
    "__macosx",                   // macOS, in archives
    "icon\r",                     // macOS
    "network trash folder",       // macOS file server
    "temporary items",            // macOS file server
    "$recycle.bin",               // Windows
    "recycler",                   // Windows
    "system volume information",  // Windows
    "desktop.ini",                // Windows
    "thumbs.db",                  // Windows
    "ehthumbs.db",                // Windows
    "lost+found",                 // Linux
    "@eadir",                     // Synology
    "#recycle",                   // Synology
    "#snapshot",                  // Synology
    "@recycle",                   // QNAP
    "@recently-snapshot",         // QNAP
    "__pycache__"};               // Python

bool is_left_behind_name(std::string_view name) {
  if (name.empty() || name == "." || name == "..") {
    return false;
  }
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return name.starts_with('.') ||
         std::ranges::find(kLeftBehindNames, lower) != kLeftBehindNames.end();
}

std::string some_of(const std::vector<std::string>& first, std::size_t n_entries) {
  return fmt::format("{}{}", fmt::join(first, ", "), n_entries > first.size() ? ", ..." : "");
}

}  // namespace

bool is_left_behind(std::string_view path) {
  while (true) {
    const std::size_t slash = path.find('/');
    if (is_left_behind_name(path.substr(0, slash))) {
      return true;
    }
    if (slash == std::string_view::npos) {
      return false;
    }
    path.remove_prefix(slash + 1);
  }
}

void LeftOut::add(std::string_view path) {
  Kind& kind = is_left_behind(path) ? left_behind_ : others_;
  ++kind.n_entries;
  if (kind.first.size() < kMostLeftOutNames) {
    kind.first.push_back(escape_text(path));
  }
}

void LeftOut::report(const base::Logger& logger, std::string_view where) const {
  std::vector<std::string> kinds;
  if (left_behind_.n_entries > 0) {
    kinds.push_back(fmt::format("{} of systems and tools ({})",
                                left_behind_.n_entries,
                                some_of(left_behind_.first, left_behind_.n_entries)));
  }
  if (others_.n_entries > 0) {
    kinds.push_back(fmt::format(
        "{} of other types ({})", others_.n_entries, some_of(others_.first, others_.n_entries)));
  }
  if (!kinds.empty()) {
    logger.info(fmt::format("{}: entries left out: {}", where, fmt::join(kinds, ", ")));
  }
}

}  // namespace unisono
