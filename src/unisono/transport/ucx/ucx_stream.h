#pragma once

#include <poll.h>
#include <ucp/api/ucp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/io.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/ucx/side_channel.h"

namespace unisono::ucx {

/// A stream over OpenUCX. The socket of the handshake remains open as a SideChannel; if the socket
/// ends without the count of written bytes, the peer has died.
///
/// Written data is copied into memory of the stream, because UCX reads the data later; the
/// process's ProgressThread drives the transfer. Owned by a FrameStream and registered with the
/// ProgressThread. Not thread-safe, except for progress(). The destructor blocks for a second at
/// most, until the peer's UCX has received the data.
class UcxStream final : public transport::Stream {
 public:
  /// Throws Error(kSystem).
  explicit UcxStream(Fd socket);
  ~UcxStream() override;

  UcxStream(const UcxStream&) = delete;
  UcxStream& operator=(const UcxStream&) = delete;
  UcxStream(UcxStream&&) = delete;
  UcxStream& operator=(UcxStream&&) = delete;

  [[nodiscard]] net::IoResult write_some(std::span<const std::byte> head,
                                         std::span<const std::byte> rest) noexcept override;
  [[nodiscard]] net::IoResult read_some(std::span<std::byte> bytes) noexcept override;
  void add_polls(std::vector<pollfd>& polls, bool reads, bool writes) override;
  void end_writing() noexcept override;

  [[nodiscard]] int socket() const noexcept override { return peer_.fd(); }

  [[nodiscard]] std::string describe(int error_number) const override;

  /// Drives UCX. Appends to `polls` the descriptors to poll before the next call. Returns false if
  /// the caller must call again without a wait. Any thread.
  [[nodiscard]] bool progress(std::vector<pollfd>& polls) UNISONO_EXCLUDES(mutex_);

 private:
  // A copy of written data that UCX uses until `request` is complete.
  struct Chunk {
    std::vector<std::byte> bytes = {};
    void* request = nullptr;
  };

  static void note_error(void* stream, ucp_ep_h endpoint, ucs_status_t status);

  // Drives UCX. Returns std::nullopt if the stream is usable, otherwise the result that the caller
  // must return.
  [[nodiscard]] std::optional<net::IoResult> advance() noexcept UNISONO_REQUIRES(mutex_);
  // Drives the handshake or UCX. Returns true if the state has changed.
  [[nodiscard]] bool work() noexcept UNISONO_REQUIRES(mutex_);
  void greet() UNISONO_REQUIRES(mutex_);
  void connect() UNISONO_REQUIRES(mutex_);
  [[nodiscard]] bool find_data() noexcept UNISONO_REQUIRES(mutex_);
  void release_data() noexcept UNISONO_REQUIRES(mutex_);
  void take_rest() noexcept UNISONO_REQUIRES(mutex_);
  [[nodiscard]] net::IoResult find_end() noexcept UNISONO_REQUIRES(mutex_);
  [[nodiscard]] bool is_done(void*& request) noexcept UNISONO_REQUIRES(mutex_);
  [[nodiscard]] Chunk* find_free_chunk() noexcept UNISONO_REQUIRES(mutex_);
  [[nodiscard]] bool are_chunks_done() noexcept UNISONO_REQUIRES(mutex_);
  void add_socket(std::vector<pollfd>& polls) const UNISONO_REQUIRES(mutex_);
  void flush(Deadline deadline) noexcept UNISONO_EXCLUDES(mutex_);
  void close_endpoint() noexcept UNISONO_REQUIRES(mutex_);

  SideChannel peer_;
  Mutex mutex_;       // Held during calls of UCX, which do not block.
  net::Wakeup bell_;  // Rung for changes that event_fd_ does not report.
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  ucp_ep_h endpoint_ = nullptr;  // Null until the peer's address is known.

  bool is_plain_ = false;  // The peer sent other data instead of a UCX address.

  std::array<Chunk, 4> chunks_;
  std::uint64_t n_written_ = 0;
  bool has_ended_ = false;

  std::span<const std::byte> data_;  // Data to be read, in UCX's memory or in `rest_`.
  void* data_begin_ = nullptr;       // UCX's memory to release, or null.
  std::vector<std::byte> rest_;
  std::uint64_t n_read_ = 0;
  bool has_all_ = false;  // All data of the peer was read or is in `data_`.
  Deadline rest_by_ = Deadline::never();
  int error_number_ = 0;
};

}  // namespace unisono::ucx
