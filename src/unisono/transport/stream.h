#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/io.h"

namespace unisono::transport {

/// A waiting rank reports a peer as lost after about this long without an answer, e.g. because the
/// peer's machine has vanished.
inline constexpr std::chrono::seconds kLivenessTimeout{20};

/// Interval at which a waiting thread checks connections.
inline constexpr std::chrono::seconds kLivenessLook{1};

/// For this long a lack of file descriptors is not an error when the process probes or dials a
/// rank: a descriptor may become free. The side that accepts connections fails sooner, and both
/// sides receive that error.
inline constexpr std::chrono::seconds kDescriptorPatience{10};

/// A bidirectional byte stream to one rank of another node. Implementations: tcp::TcpStream and
/// ucx::UcxStream.
///
/// Owned by a FrameStream. Not thread-safe. No call blocks except the destructor. Errors are
/// returned as IoResult; describe() explains the error number.
class Stream {
 public:
  Stream() = default;
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  Stream(Stream&&) = delete;
  Stream& operator=(Stream&&) = delete;

  /// Writes as much as fits of `head`, followed by `rest`. Accepted bytes reach the peer without
  /// another call.
  [[nodiscard]] virtual net::IoResult write_some(std::span<const std::byte> head,
                                                 std::span<const std::byte> rest) noexcept = 0;

  /// Reads the available bytes, at most bytes.size().
  [[nodiscard]] virtual net::IoResult read_some(std::span<std::byte> bytes) noexcept = 0;

  /// Appends the descriptors to poll until the stream can be read (`reads`) or written (`writes`).
  virtual void add_polls(std::vector<pollfd>& polls, bool reads, bool writes) = 0;

  /// Ends the outgoing direction: the peer reads the written bytes, then the end of the stream. No
  /// write may follow.
  virtual void end_writing() noexcept = 0;

  /// The socket of the handshake. The stream ends when this connection ends.
  [[nodiscard]] virtual int socket() const noexcept = 0;

  /// Returns the meaning of an IoResult's error_number for this kind of stream.
  [[nodiscard]] virtual std::string describe(int error_number) const = 0;
};

/// Makes a stream from a connection to another rank, after the handshake. The peer does the same.
/// Throws Error(kSystem).
using MakeStream = std::function<std::unique_ptr<Stream>(Fd socket)>;

/// Returns the factory of the stream kind that UNISONO_TRANSPORT names.
///
/// Throws Error(kInvalidArgument), with the list of known names, for an unknown name. Throws
/// Error(kNotFound), with a remedy, if that kind cannot be used on this machine.
[[nodiscard]] MakeStream find_streams(std::string_view name);

/// Registers a custom kind of stream for jobs that the process joins later. `prepare` returns the
/// factory of the streams, or throws Error(kNotFound) if the kind cannot be used. Thread-safe.
///
/// Throws Error(kInvalidArgument) if the name is empty or already registered.
void register_streams(std::string name, std::function<MakeStream()> prepare);

}  // namespace unisono::transport

namespace unisono::tcp {

/// A stream that is the TCP connection itself.
class TcpStream final : public transport::Stream {
 public:
  explicit TcpStream(Fd socket) : socket_(std::move(socket)) {}

  [[nodiscard]] net::IoResult write_some(std::span<const std::byte> head,
                                         std::span<const std::byte> rest) noexcept override {
    return net::write_some(socket_.get(), head, rest);
  }

  [[nodiscard]] net::IoResult read_some(std::span<std::byte> bytes) noexcept override {
    return net::read_some(socket_.get(), bytes);
  }

  void add_polls(std::vector<pollfd>& polls, bool reads, bool writes) override {
    const int events = (reads ? POLLIN : 0) | (writes ? POLLOUT : 0);
    polls.push_back({.fd = socket_.get(), .events = static_cast<short>(events), .revents = 0});
  }

  void end_writing() noexcept override { ::shutdown(socket_.get(), SHUT_WR); }

  [[nodiscard]] int socket() const noexcept override { return socket_.get(); }

  [[nodiscard]] std::string describe(int error_number) const override {
    return std::generic_category().message(error_number);
  }

 private:
  Fd socket_;
};

/// Returns the factory of TCP streams.
[[nodiscard]] inline transport::MakeStream prepare_streams() {
  return [](Fd socket) { return std::make_unique<TcpStream>(std::move(socket)); };
}

}  // namespace unisono::tcp

namespace unisono::ucx {

/// Returns the factory of streams over OpenUCX (https://openucx.org): InfiniBand and RoCE if there
/// is such a network, otherwise TCP. UCX must detect the end of a peer, which its shared memory
/// does not. UCX's own variables, such as UCX_TLS and UCX_NET_DEVICES, restrict the choice.
///
/// Throws Error(kNotFound) if this build or the machine has no UCX.
[[nodiscard]] transport::MakeStream prepare_streams();

}  // namespace unisono::ucx
