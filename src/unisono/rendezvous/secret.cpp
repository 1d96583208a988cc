#include "unisono/rendezvous/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <system_error>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/text.h"
#include "unisono/net/address.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::rendezvous {
namespace {

constexpr std::size_t kMaxSecretBytes = 4096;

Error file_error(ErrorCode code, const std::string& path, const std::string& problem) {
  return {code, fmt::format("the job's secret: the file \"{}\" {}", path, problem)};
}

void check_private(const Fd& fd, const std::string& path) {
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) {
    throw system_error("fstat " + path, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw file_error(ErrorCode::kInvalidArgument, path, "is not a file");
  }
  const bool is_own = status.st_uid == ::geteuid();
  if (!is_own && status.st_uid != 0) {
    throw file_error(
        ErrorCode::kInvalidArgument,
        path,
        fmt::format("belongs to user {}, and this process to user {}", status.st_uid, ::geteuid()));
  }
  // A file of root may be readable by a group that root has chosen, as Kubernetes mounts secrets.
  constexpr mode_t kMoreThanRead = S_IWGRP | S_IXGRP | S_IRWXO;
  const mode_t others = is_own ? S_IRWXG | S_IRWXO : kMoreThanRead;
  if ((status.st_mode & others) != 0) {
    throw file_error(ErrorCode::kInvalidArgument,
                     path,
                     fmt::format("has mode {:04o}, so others can use it: chmod {} \"{}\"",
                                 status.st_mode & 07777,
                                 is_own ? "600" : "440",
                                 path));
  }
}

// Returns std::nullopt if the file does not exist or, if `may_be_out_of_reach`, cannot be opened by
// this user: in containers HOME may belong to another user.
std::optional<std::string> read_secret_file(const std::string& path, bool may_be_out_of_reach) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) {
    const int error_number = errno;
    if (error_number == ENOENT || error_number == ENOTDIR ||
        (error_number == EACCES && may_be_out_of_reach)) {
      return std::nullopt;
    }
    throw file_error(ErrorCode::kInvalidArgument,
                     path,
                     "can't be opened: " + std::generic_category().message(error_number));
  }
  check_private(fd, path);
  std::array<char, kMaxSecretBytes + 1> buffer{};
  const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
  if (n < 0) {
    throw system_error("read " + path, errno);
  }
  std::string secret(buffer.data(), static_cast<std::size_t>(n));
  if (secret.size() > kMaxSecretBytes) {
    throw file_error(
        ErrorCode::kInvalidArgument, path, fmt::format("has more than {} bytes", kMaxSecretBytes));
  }
  // Some editors begin a file with a byte order mark, and most add a newline at the end. Neither
  // belongs to the secret.
  secret.erase(0, secret.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  secret.erase(secret.find_last_not_of("\r\n") + 1);
  if (secret.empty()) {
    throw file_error(ErrorCode::kInvalidArgument, path, "is empty");
  }
  return secret;
}

// Returns the reason why a job that meets at `host` needs a secret; "" if only this machine can
// connect.
std::string why_needed(const std::string& host) {
  try {
    const std::vector<net::Address> addresses = net::resolve(host, 0);
    const bool stays_here =
        std::all_of(addresses.begin(), addresses.end(), [](const net::Address& address) {
          return address.is_loopback();
        });
    return stays_here ? "" : "can be reached from other machines";
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInvalidArgument) {
      throw;
    }
    return fmt::format(
        "does not resolve ({}): is it right? Only a job with a secret waits for a name",
        error.what());
  }
}

// Returns the command that creates a secret.
std::string advise_secret(const base::Config& config) {
  return config.home.empty()
             ? "HOME is not set, so type \"unisono secret FILE\", and set UNISONO_SECRET_FILE=FILE "
               "on every rank"
             : "type \"unisono secret\", once, which writes ~/.unisono/secret; nodes with another "
               "home need a copy (scp -rp ~/.unisono NODE:), or the same UNISONO_SECRET";
}

// `what` describes the address in the user's form.
std::string find(const base::Config& config,
                 const LaunchInfo& launch_info,
                 const std::string& what) {
  if (!config.secret.empty()) {
    return config.secret;
  }
  if (!config.secret_file.empty()) {
    const std::optional<std::string> secret = read_secret_file(config.secret_file, false);
    if (!secret) {
      throw file_error(
          ErrorCode::kNotFound, config.secret_file, "of UNISONO_SECRET_FILE does not exist");
    }
    return *secret;
  }
  if (!launch_info.secret.empty()) {
    return launch_info.secret;
  }
  if (!config.home.empty()) {
    if (const auto secret = read_secret_file(config.home + "/.unisono/secret", true)) {
      return *secret;
    }
  }
  if (const std::string why = why_needed(launch_info.master_addr); !why.empty()) {
    const std::string& reason = launch_info.key_value_space.problem;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} {}, and the job has no secret: {}{}{}",
                            what,
                            why,
                            advise_secret(config),
                            reason.empty() ? "" : "; ",
                            reason));
  }
  return {};
}

}  // namespace

void write_secret(const std::string& path) {
  constexpr std::size_t kSecretBytes = 32;
  const std::string text = random_hex(kSecretBytes) + "\n";
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!fd.is_open()) {
    const int error_number = errno;
    throw file_error(error_number == EEXIST ? ErrorCode::kInvalidArgument : ErrorCode::kSystem,
                     path,
                     error_number == EEXIST
                         ? "exists, and jobs may use it; delete it to have another one written"
                         : "can't be made: " + std::generic_category().message(error_number));
  }
  errno = ENOSPC;  // A short write sets no errno.
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(fd.get()) != 0) {
    const int error_number = errno;
    (void)::unlink(path.c_str());
    throw system_error("write " + path, error_number);
  }
}

bool is_secret_given(const base::Config& config) {
  return !config.secret.empty() || !config.secret_file.empty();
}

std::string find_secret(const base::Config& config, const std::string& host) {
  return find(config, LaunchInfo{.master_addr = host}, fmt::format("\"{}\"", host));
}

std::string find_secret(const base::Config& config, const LaunchInfo& launch_info) {
  const std::string& source = launch_info.place_source;
  return find(config,
              launch_info,
              source.empty() ? fmt::format("MASTER_ADDR=\"{}\"", launch_info.master_addr)
                             : fmt::format("\"{}\" ({})", launch_info.master_addr, source));
}

}  // namespace unisono::rendezvous
