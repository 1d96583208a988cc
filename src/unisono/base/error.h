#pragma once

#include <stdexcept>
#include <string>

namespace unisono {

/// What kind of thing went wrong; callers branch on this, never on the text.
enum class ErrorCode {
  kInvalidArgument,  ///< A wrong argument, option or environment variable; nothing was sent.
  kNotFound,         ///< A file, program or key that is not there.
  kSystem,           ///< A system call failed; the message has errno's text.
  kTimeout,          ///< A deadline passed.
  kPeerLost,         ///< Another rank, the store or the launcher is gone.
  kMismatch,         ///< Ranks called different operations, or with different shapes.
  kUnauthenticated,  ///< The other side did not prove the job's secret.
  kIncompatible,     ///< The other side speaks another version.
  kCorruptData,      ///< Bytes from a file or peer that no correct writer makes.
  kClosed,           ///< The object was closed before; the message has the first cause.
  kInterrupted,      ///< The program had the wait end; see base/interruption.h.
  kInternal          ///< A broken invariant: a bug in this library.
};

/// The enumerator's name without its prefix, e.g. "PeerLost".
[[nodiscard]] const char* to_string(ErrorCode code) noexcept;

/// Every exception that leaves the core is one of these.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// An Error(kSystem) whose message is "`what`: text of `error_number` (errno NN)".
[[nodiscard]] Error system_error(const std::string& what, int error_number);

namespace detail {
[[noreturn]] void check_failed(const char* condition,
                               const char* file,
                               int line,
                               const std::string& message);
}  // namespace detail

}  // namespace unisono

/// Throws Error(kInternal) with the condition, its place and `message` when an invariant is broken.
#define UNISONO_CHECK(condition, message)                                         \
  do {                                                                            \
    if (!(condition)) [[unlikely]] {                                              \
      ::unisono::detail::check_failed(#condition, __FILE__, __LINE__, (message)); \
    }                                                                             \
  } while (false)
