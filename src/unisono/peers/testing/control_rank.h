#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/base/thread.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/net/socket.h"
#include "unisono/peers/acceptor.h"
#include "unisono/peers/control_link.h"
#include "unisono/peers/control_plane.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/rank_table.h"

namespace unisono::peers::testing {

inline const std::string kSecret = "secret";
inline constexpr std::chrono::milliseconds kPlenty{20'000};
inline constexpr std::chrono::milliseconds kShort{200};

inline Fd listen() {
  return net::listen_tcp(net::Address::parse("127.0.0.1", 0).value());
}

inline transport::Member member(int rank, const std::string& node, const Fd& listener) {
  return {.job_rank = rank,
          .host = "host",
          .pid = 1,
          .node = node,
          .address =
              listener.is_open() ? net::local_address(listener.get()) : net::Address::loopback(1),
          .endpoint = ""};
}

inline transport::RankTable as_rank(int rank, std::vector<transport::Member> members) {
  return {.rank = rank, .job = "job", .members = std::move(members)};
}

inline Question ask_of(int rank) {
  return {.rank = rank, .frame = {.kind = transport::FrameKind::kAsk, .sequence = 5}};
}

// A rank's control plane, with a thread and an acceptor as in a monitor. Answers each query with
// the report that this rank has left the group.
class Rank {
 public:
  Rank(transport::RankTable roster, int listener, NodeContact contact = {})
      : roster_(std::move(roster)),
        control_(loop_,
                 roster_,
                 kSecret,
                 std::move(contact),
                 {.frame = [this](const IncomingFrame& heard) { return hear(heard); },
                  .end =
                      [this](int rank, ControlLink::End how) {
                        ++n_ended;
                        ended_rank = rank;
                        end = how;
                        has_ended.end();
                      }},
                 base::Logger("test", LogLevel::kError)) {
    if (listener >= 0) {
      acceptor_ = std::make_unique<Acceptor>(
          *loop_,
          listener,
          net::HelloInfo{.job = "job", .purpose = "data", .rank = roster_.rank},
          kSecret,
          roster_.world_size(),
          base::Logger("test", LogLevel::kError),
          [this](const net::HelloInfo& peer, Fd socket, const auto& shortage) {
            ++n_accepted;
            control_.adopt(peer.rank, std::move(socket), shortage.has_value() || is_short);
          });
    }
    thread_ = std::thread([this] { loop_->run(); });
  }

  ~Rank() {
    loop_->stop();
    thread_.join();
  }

  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  Rank(Rank&&) = delete;
  Rank& operator=(Rank&&) = delete;

  ControlPlane& control() { return control_; }

  net::EventLoop& loop() { return *loop_; }

  std::atomic<int> n_accepted = 0;
  std::atomic<bool> is_short = false;
  std::atomic<int> n_heard = 0;
  InterruptiblePause has_heard;
  std::atomic<int> ended_rank = -1;
  std::atomic<int> n_ended = 0;
  std::atomic<ControlLink::End> end{};
  InterruptiblePause has_ended;

 private:
  bool hear(const IncomingFrame& heard) {
    ++n_heard;
    has_heard.end();
    if (heard.frame.kind == transport::FrameKind::kAsk) {
      heard.reply(transport::encode_leave(5, {}, heard.frame.question));
    }
    return heard.frame.kind != transport::FrameKind::kAskWait;
  }

  transport::RankTable roster_;
  std::shared_ptr<net::EventLoop> loop_ = std::make_shared<net::EventLoop>();
  ControlPlane control_;
  std::unique_ptr<Acceptor> acceptor_;
  std::thread thread_;
};

inline bool is_left(const Answer& answer) {
  return answer.frame && answer.frame->kind == transport::FrameKind::kLeave;
}

}  // namespace unisono::peers::testing
