#include "unisono/base/crash/memory_map.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "unisono/base/fd.h"

namespace unisono::crash {
namespace {

// Reads a file by lines; of a line that is too long only the end.
class MapLines {
 public:
  explicit MapLines(int fd) : fd_(fd) {}

  bool next(std::string_view& line) {
    std::size_t n = 0;
    for (char byte = 0; read_byte(byte);) {
      if (byte == '\n') {
        line = {line_.data(), n};
        return true;
      }
      n = n == line_.size() ? 0 : n;
      line_[n++] = byte;
    }
    return false;
  }

 private:
  bool read_byte(char& byte) {
    if (at_ == end_) {
      const ssize_t n = ::read(fd_, buffer_.data(), buffer_.size());
      at_ = 0;
      end_ = n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    if (at_ == end_) {
      return false;
    }
    byte = buffer_[at_++];
    return true;
  }

  int fd_;
  std::array<char, 4096> buffer_{};
  std::size_t at_ = 0;
  std::size_t end_ = 0;
  std::array<char, 1024> line_{};
};

// "55d0c000-55d0d000 r-xp 00001000 08:01 4711    /opt/job/train"
struct Row {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool is_executable = false;
  std::uintptr_t offset = 0;
  std::string_view path;
};

std::string_view take_word(std::string_view& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  text.remove_prefix(begin == std::string_view::npos ? text.size() : begin);
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

std::uintptr_t parse_hex(std::string_view text) {
  std::uintptr_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number, 16);
  return number;
}

Row parse_row(std::string_view line) {
  Row row;
  const std::string_view range = take_word(line);
  const std::size_t dash = range.find('-');
  if (dash != std::string_view::npos) {
    row.begin = parse_hex(range.substr(0, dash));
    row.end = parse_hex(range.substr(dash + 1));
  }
  row.is_executable = take_word(line).find('x') != std::string_view::npos;
  row.offset = parse_hex(take_word(line));
  take_word(line);  // The device.
  take_word(line);  // The inode.
  const std::size_t path = line.find('/');
  row.path = path == std::string_view::npos ? std::string_view() : line.substr(path);
  return row;
}

}  // namespace

bool find_mapping(std::uintptr_t address, Mapping& mapping) {
  const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return false;
  }
  const Fd owner(fd);
  MapLines lines(fd);
  for (std::string_view line; lines.next(line);) {
    const Row row = parse_row(line);
    // A file's parts follow each other, the first byte first.
    if (row.offset == 0 || row.path != mapping.file()) {
      mapping.file_begin = row.begin - row.offset;
      mapping.n_path_bytes = row.path.copy(mapping.path.data(), mapping.path.size());
    }
    if (address >= row.begin && address < row.end) {
      mapping.is_executable = row.is_executable;
      return true;
    }
  }
  return false;
}

}  // namespace unisono::crash
