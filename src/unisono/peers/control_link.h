#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/transport/dial.h"
#include "unisono/transport/frame.h"

namespace unisono::peers {

/// A complete frame to be sent.
struct OutgoingFrame {
  std::vector<std::byte> bytes;
  /// Released when the frame has been written or dropped.
  std::shared_ptr<void> hold = nullptr;
};

/// Exchanges control frames with a rank of another node over a socket. Never blocks. Owned by
/// ControlPlane and, for a short time, by replies; used only by the event loop's thread.
class ControlLink {
 public:
  /// The reason for the end of a link.
  enum class End {
    kClosed,   ///< Closed by the peer or the network.
    kJunk,     ///< The peer sent a frame that is not permitted here.
    kStarved,  ///< No memory for a received frame.
  };

  struct Callbacks {
    /// Handles a frame. Returns false if the frame is not permitted on such a connection.
    std::function<bool(const transport::Frame& frame, std::span<const std::byte> payload)> frame;
    /// Called once, and last: the callback may destroy the link.
    std::function<void(End how)> end;
  };

  /// The loop must outlive the object.
  ControlLink(net::EventLoop& loop, Fd socket, Callbacks callbacks);

  /// Drops unsent frames.
  ~ControlLink();

  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;
  ControlLink(ControlLink&&) = delete;
  ControlLink& operator=(ControlLink&&) = delete;

  /// Sends a frame, without allocating memory if the socket accepts the frame at once. Drops the
  /// frame if hundreds of frames wait.
  void send(OutgoingFrame parcel);

  /// Reads all received frames. May end the link.
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
  std::vector<OutgoingFrame> outgoing_;
  std::size_t n_written_ = 0;  // Written bytes of the first frame.
  bool is_full_ = false;       // The socket accepts no more bytes.
};

/// Opens a connection to a rank. Owned by ControlPlane; used only by the event loop's thread.
class ControlDial {
 public:
  /// Receives the socket after its hello, or the reason of a failure; neither after the deadline.
  /// Called once, and last: the callback may destroy the ControlDial.
  using Done = std::function<void(Fd socket, const std::optional<Error>& problem)>;

  /// The loop and `secret` must outlive the object. Throws Error if no socket can be opened.
  ControlDial(net::EventLoop& loop,
              transport::RankAddress member,
              const std::string& secret,
              net::HelloInfo mine,
              Deadline until,
              Done done);
  ~ControlDial();

  ControlDial(const ControlDial&) = delete;
  ControlDial& operator=(const ControlDial&) = delete;
  ControlDial(ControlDial&&) = delete;
  ControlDial& operator=(ControlDial&&) = delete;

  /// Moves the deadline, for another frame that waits.
  void extend(Deadline until) { until_ = until; }

 private:
  void advance();
  void watch();
  void unwatch();

  net::EventLoop& loop_;
  transport::RankAddress member_;
  net::HelloInfo mine_;
  transport::Dial dial_;
  Deadline until_;
  Done done_;
  int fd_ = -1;  // Descriptor that the loop watches.
  net::EventLoop::TimerId timer_ = 0;
};

}  // namespace unisono::peers
