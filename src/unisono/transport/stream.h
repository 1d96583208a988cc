#pragma once

#include <poll.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/io.h"

namespace unisono::transport {

/// Bytes to and from one rank of another node, in order. Never blocks, but for the destructor. One
/// thread at a time.
class Stream {
 public:
  Stream() = default;
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  Stream(Stream&&) = delete;
  Stream& operator=(Stream&&) = delete;

  /// Takes what fits of `head` and, behind it, of `rest`; it gets to the peer without another call.
  [[nodiscard]] virtual net::IoResult write_some(std::span<const std::byte> head,
                                                 std::span<const std::byte> rest) noexcept = 0;

  /// Reads what is there, at most `bytes`.
  [[nodiscard]] virtual net::IoResult read_some(std::span<std::byte> bytes) noexcept = 0;

  /// Adds what poll(2) is to wait for, until something can be read, or written.
  virtual void add_polls(std::vector<pollfd>& polls, bool reads, bool writes) = 0;

  /// Ends this direction: the peer reads what was written, and then the end. Nothing is written
  /// any more.
  virtual void end_writing() noexcept = 0;

  /// The socket on which the two have said hello. Its end is the stream's.
  [[nodiscard]] virtual int socket() const noexcept = 0;

  /// What an IoResult's error_number means here.
  [[nodiscard]] virtual std::string describe(int error_number) const = 0;
};

/// Makes a stream of a connection to another rank, after the hello; the other side does the same.
/// Throws Error(kSystem).
using MakeStream = std::function<std::unique_ptr<Stream>(Fd socket)>;

/// How ranks of different nodes reach each other: what UNISONO_TRANSPORT names.
///
/// Throws Error(kInvalidArgument) that names those that there are, and Error(kNotFound) where that
/// one can't be used here, with what to do about it.
[[nodiscard]] MakeStream find_streams(std::string_view name);

/// Adds streams of the program's own, for jobs that it joins from here on. `prepare` makes what
/// makes them, and throws Error(kNotFound) where they can't be used. Thread-safe.
///
/// Throws Error(kInvalidArgument) if there is no name, or one that others have.
void register_streams(std::string name, std::function<MakeStream()> prepare);

}  // namespace unisono::transport
