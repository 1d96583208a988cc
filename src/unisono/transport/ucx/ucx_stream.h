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
#include "unisono/net/io.h"
#include "unisono/net/wakeup.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/ucx/side_channel.h"

namespace unisono::ucx {

/// A stream of UCX's, beside the socket on which the ranks have said hello: a SideChannel, whose
/// end without a last word is a dead rank's.
///
/// What is written is copied into memory of the stream's own, since UCX reads it later; the
/// process's ProgressThread sees that it gets on. The destructor waits until the peer's UCX has it:
/// for a second at most.
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

  /// Lets UCX go on. Adds to `polls` what poll(2) is to wait for before the next time; false: it is
  /// to be called again. Any thread.
  [[nodiscard]] bool progress(std::vector<pollfd>& polls) UNISONO_EXCLUDES(mutex_);

 private:
  // What is on its way, until UCX has done with it.
  struct Chunk {
    std::vector<std::byte> bytes = {};
    void* request = nullptr;
  };

  static void note_error(void* stream, ucp_ep_h endpoint, ucs_status_t status);

  // Nothing: it goes on. Else what a call is to return.
  [[nodiscard]] std::optional<net::IoResult> advance() noexcept UNISONO_REQUIRES(mutex_);
  // True: something has happened.
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
  Mutex mutex_;       // Held while UCX works, which does not wait.
  net::Wakeup bell_;  // Rung where something has come that event_fd_ does not tell of.
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  ucp_ep_h endpoint_ = nullptr;  // Null until the peer's address is known.

  bool is_plain_ = false;  // The peer said something else.

  std::array<Chunk, 4> chunks_;
  std::uint64_t n_written_ = 0;
  bool has_ended_ = false;

  std::span<const std::byte> data_;  // To be read: of UCX's own memory, or `rest_`.
  void* data_begin_ = nullptr;       // That memory.
  std::vector<std::byte> rest_;
  std::uint64_t n_read_ = 0;
  bool has_all_ = false;  // What the peer has written: it is read, or in `data_`.
  Deadline rest_by_ = Deadline::never();
  int error_number_ = 0;
};

}  // namespace unisono::ucx
