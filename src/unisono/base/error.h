#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace unisono {

/// Category of an error. Callers branch on the code, never on the text.
enum class ErrorCode {
  kInvalidArgument,  ///< An argument, option or environment variable is invalid; no data was sent.
  kNotFound,         ///< A file, program or key does not exist.
  kSystem,           ///< A system call failed; the message has errno's text.
  kTimeout,          ///< A deadline passed.
  kPeerLost,         ///< Another rank, the store or the launcher is gone.
  kMismatch,         ///< Ranks called different operations, or with different shapes.
  kUnauthenticated,  ///< The other side did not prove the job's secret.
  kIncompatible,     ///< The other side speaks another version.
  kCorruptData,      ///< The bytes of a file or peer are corrupt: no correct writer produces them.
  kClosed,           ///< The object was closed earlier; the message has the first cause.
  kInterrupted,      ///< The program had the wait end; see base/thread.h.
  kInternal          ///< A broken invariant: a bug in this library.
};

/// Returns the enumerator's name without the prefix, e.g. "PeerLost".
[[nodiscard]] const char* to_string(ErrorCode code) noexcept;

/// The exception type of this library: every exception that leaves the core is an Error.
class Error : public std::runtime_error {
 public:
  /// `message` is the text that what() returns.
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  /// Returns the kind of the error. Callers branch on the code, never on the text.
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// Returns an Error(kSystem) with the message "`what`: text of `error_number` (errno NN)".
[[nodiscard]] Error system_error(const std::string& what, int error_number);

/// Returns the text of an exception for users: what() without the stack trace that LibTorch appends
/// to each of its exceptions. The 20 and more lines of addresses hide the message, so that a
/// terminal or a report does not show the message. With UNISONO_LOG=debug the text is complete.
///
/// For the end of a program:
///
///     } catch (const std::exception& error) {
///       std::fprintf(stderr, "train: %s\n", unisono::error_text(error).c_str());
///     }
///
/// Thread-safe. Recognizes the stack trace by the first line and therefore needs no LibTorch.
/// Handles a text that embeds the text of another exception.
[[nodiscard]] std::string error_text(const std::exception& error);

namespace detail {
[[noreturn]] void check_failed(const char* condition,
                               const char* file,
                               int line,
                               const std::string& message);
}  // namespace detail

}  // namespace unisono

/// Checks an invariant: throws Error(kInternal) with the condition, the source position and
/// `message` if `condition` is false.
#define UNISONO_CHECK(condition, message)                                         \
  do {                                                                            \
    if (!(condition)) [[unlikely]] {                                              \
      ::unisono::detail::check_failed(#condition, __FILE__, __LINE__, (message)); \
    }                                                                             \
  } while (false)
