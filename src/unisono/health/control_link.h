#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/event_loop.h"
#include "unisono/transport/frame.h"

namespace unisono::health {

/// A whole frame on its way out.
struct Parcel {
  std::vector<std::byte> bytes;
  /// Released when the frame has been written, or never will be.
  std::shared_ptr<void> hold = nullptr;
};

/// The frames that two ranks of different nodes send each other by a socket. Never blocks. Belongs
/// to the event loop's thread.
class ControlLink {
 public:
  enum class End {
    kClosed,   ///< By the other side, or the network.
    kJunk,     ///< What came is no frame that ranks send on such a connection.
    kStarved,  ///< There was no memory for what came.
  };

  struct Callbacks {
    /// False for a frame that ranks don't send on such a connection.
    std::function<bool(const transport::Frame& frame, std::span<const std::byte> payload)> frame;
    /// Once, and last: it may end the link.
    std::function<void(End how)> end;
  };

  /// The loop outlives it.
  ControlLink(net::EventLoop& loop, Fd socket, Callbacks callbacks);

  /// Drops what has not been written.
  ~ControlLink();

  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;
  ControlLink(ControlLink&&) = delete;
  ControlLink& operator=(ControlLink&&) = delete;

  /// Needs no memory where the socket takes it at once. Dropped where hundreds wait before it.
  void send(Parcel parcel);

  /// Hears all that has come. May end the link.
  void read_all();

 private:
  void attend(std::uint32_t events);
  void read(int most);
  [[nodiscard]] bool hear_frames();
  void flush();
  void end(End how);

  net::EventLoop& loop_;
  Fd socket_;
  Callbacks callbacks_;
  std::vector<std::byte> received_;
  std::vector<Parcel> outgoing_;
  std::size_t n_written_ = 0;  // Of the first.
  bool is_full_ = false;       // The socket is.
};

}  // namespace unisono::health
