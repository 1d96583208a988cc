#include "unisono/launch/error_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"

namespace unisono::launch {
namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMaxErrorBytes = 64 << 10;

std::string read_all(int fd) {
  std::string text(kMaxFileBytes, '\0');
  std::size_t n_read = 0;
  while (n_read < text.size()) {
    const ssize_t n_bytes =
        ::pread(fd, text.data() + n_read, text.size() - n_read, static_cast<off_t>(n_read));
    if (n_bytes <= 0) {
      break;
    }
    n_read += static_cast<std::size_t>(n_bytes);
  }
  text.resize(n_read);
  return text;
}

// {"message": {"message": "ValueError: ...", "extraInfo": {...}}}, or {"message": "..."}.
std::string find_message(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto* found = &json;
  while (found->is_object() && found->contains("message")) {
    found = &found->at("message");
  }
  return found->is_string() ? found->get<std::string>() : text;
}

}  // namespace

ErrorFile::ErrorFile() : file_(::memfd_create("unisono-rank-error", MFD_CLOEXEC)) {
  if (!file_.is_open()) {
    throw system_error("cannot make a file for a rank's error", errno);
  }
}

std::string ErrorFile::path() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get());
}

std::string ErrorFile::message() const {
  const std::string text = read_all(file_.get());
  return text.empty() ? "" : find_message(text).substr(0, kMaxErrorBytes);
}

}  // namespace unisono::launch
