#include "unisono/peers/control_plane.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/net/socket.h"
#include "unisono/peers/group_registry.h"
#include "unisono/transport/dial.h"
#include "unisono/transport/stream.h"

namespace unisono::peers {
namespace {

// Time for a question, if this rank lacks descriptors for a longer connection.
constexpr std::chrono::milliseconds kBrief{200};

// State of ask_all().
struct Answers {
  Mutex mutex;
  Condition changed;
  std::vector<Answer> all UNISONO_GUARDED_BY(mutex);
  std::size_t n_left UNISONO_GUARDED_BY(mutex) = 0;
};

// Returns whether the frame is a reply to a question of this rank.
bool is_answer(const transport::Frame& frame) {
  using Kind = transport::FrameKind;
  return frame.question != 0 && (frame.kind == Kind::kAbort || frame.kind == Kind::kLeave ||
                                 frame.kind == Kind::kRankProgress || frame.kind == Kind::kWait ||
                                 frame.kind == Kind::kAck);
}

}  // namespace

ControlPlane::ControlPlane(std::shared_ptr<net::EventLoop> loop,
                           const transport::RankTable& roster,
                           const std::string& secret,
                           NodeContact node,
                           Callbacks callbacks,
                           base::Logger logger)
    : loop_(std::move(loop)),
      roster_(roster),
      secret_(secret),
      callbacks_(std::move(callbacks)),
      logger_(std::move(logger)),
      post_(make_post(std::move(node))) {
  loop_->post([this] { thread_ = this_thread_number(); });
}

std::shared_ptr<NodePost> ControlPlane::make_post(NodeContact node) {
  if (!node.post.is_open()) {
    return nullptr;
  }
  return std::make_shared<NodePost>(
      *loop_,
      std::move(node.post),
      node.key,
      roster_,
      NodePost::Callbacks{
          .frame =
              [this](int rank, const transport::Frame& frame, std::span<const std::byte> payload) {
                return hear_frame(
                    rank,
                    [post = std::weak_ptr(post_), rank](const OutgoingFrame& parcel) {
                      if (const std::shared_ptr<NodePost> kept = post.lock()) {
                        kept->send(rank, parcel);
                      }
                    },
                    frame,
                    payload);
              },
          .junk = [this](int rank) { end_node_peer(rank, ControlLink::End::kJunk); },
          .unreachable = [this](int rank) { end_all(rank, Way::kPost, is_gone(rank)); }});
}

bool ControlPlane::is_of_node(int rank) const {
  return roster_.members[static_cast<std::size_t>(rank)].node == roster_.self().node;
}

void ControlPlane::tell(std::vector<int> ranks,
                        const std::vector<std::byte>& frame,
                        std::chrono::milliseconds patience) noexcept {
  const Deadline deadline = Deadline::after(patience);
  try {
    const auto written = std::make_shared<InterruptiblePause>();
    // Allocated here, because the loop's thread may lack memory.
    std::vector<OutgoingFrame> parcels(
        ranks.size(), {.bytes = frame, .hold = std::shared_ptr<void>(nullptr, [written](void*) {
                                         written->end();
                                       })});
    auto send_all =
        [this, ranks = std::move(ranks), parcels = std::move(parcels), deadline]() mutable {
          for (std::size_t i = 0; i < ranks.size(); ++i) {
            try {
              send(ranks[i], std::move(parcels[i]), deadline);
            } catch (const std::exception& problem) {
              logger_.debug(fmt::format("can't notify rank {}: {}", ranks[i], problem.what()));
            }
          }
          parcels.clear();
        };
    if (thread_.load(std::memory_order_relaxed) == this_thread_number()) {
      send_all();
      return;
    }
    loop_->post(std::move(send_all));
    if (patience > std::chrono::milliseconds::zero()) {
      (void)written->wait_until(deadline);
    }
  } catch (const std::exception&) {
    return;  // For example out of memory: the closed connections must report the failure.
  }
}

void ControlPlane::ask(Question question, std::chrono::milliseconds timeout, ReplyCallback hear) {
  // The number 0 means that a frame is not a question.
  const std::uint32_t number =
      n_questions_.fetch_add(1, std::memory_order_relaxed) % 0x7FFF'FFFF + 1;
  loop_->post([this,
               number,
               deadline = Deadline::after(timeout),
               question = std::move(question),
               hear = std::move(hear)]() mutable { begin(number, question, deadline, hear); });
}

std::vector<Answer> ControlPlane::ask_all(const std::vector<Question>& questions,
                                          std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  const auto answers = std::make_shared<Answers>();
  {
    const MutexLock lock(answers->mutex);
    answers->all.resize(questions.size());
    answers->n_left = questions.size();
  }
  for (std::size_t i = 0; i < questions.size(); ++i) {
    ask(questions[i], timeout, [answers, i](const Answer& answer) {
      const MutexLock lock(answers->mutex);
      answers->all[i] = answer;
      --answers->n_left;
      answers->changed.notify_all();
    });
  }
  const MutexLock lock(answers->mutex);
  while (answers->n_left > 0 && !deadline.has_passed()) {
    (void)answers->changed.wait_until(answers->mutex, deadline.time());
  }
  return answers->all;
}

void ControlPlane::begin(std::uint32_t number,
                         Question& question,
                         Deadline deadline,
                         ReplyCallback& hear) {
  try {
    question.frame.question = number;
    const Peer& peer = peers_[question.rank];
    const Way way = is_of_node(question.rank) ? Way::kPost
                    : peer.own != nullptr     ? Way::kOwnLink
                    : peer.theirs != nullptr  ? Way::kTheirLink
                                              : Way::kNone;
    Pending& pending =
        pending_.insert_or_assign(number, Pending{question.rank, std::move(hear), 0, way})
            .first->second;
    pending.timer = loop_->add_timer(deadline, [this, number] { end(number, {}); });
    send(question.rank, {.bytes = transport::encode(question.frame, question.payload)}, deadline);
  } catch (const Error& error) {
    end(number, {.problem = error});
  } catch (const std::exception& problem) {
    end(number, {.problem = Error(ErrorCode::kSystem, problem.what())});
  }
}

void ControlPlane::send(int rank, OutgoingFrame parcel, Deadline until) {
  if (is_of_node(rank)) {
    if (post_ == nullptr || ended_.contains(rank)) {
      end_all(rank, Way::kPost, is_gone(rank));
    } else {
      post_->send(rank, std::move(parcel));
    }
    return;
  }
  Peer& peer = peers_[rank];
  if (const auto& link = peer.own != nullptr ? peer.own : peer.theirs) {
    link->send(std::move(parcel));
    return;
  }
  peer.waiting.push_back(std::move(parcel));
  dial(rank, peer, until);
}

void ControlPlane::dial(int rank, Peer& peer, Deadline until) {
  if (peer.dial != nullptr) {
    peer.dial->extend(until);
    return;
  }
  try {
    peer.dial = std::make_unique<ControlDial>(
        *loop_,
        transport::address_of(roster_.members[static_cast<std::size_t>(rank)]),
        secret_,
        net::HelloInfo{.job = roster_.job, .purpose = kControlPurpose, .rank = roster_.rank},
        until,
        [this, rank](Fd socket, const std::optional<Error>& problem) {
          end_dial(rank, std::move(socket), problem);
        });
  } catch (...) {
    peer.waiting.clear();
    throw;
  }
}

void ControlPlane::end_dial(int rank, Fd socket, const std::optional<Error>& problem) {
  Peer& peer = peers_[rank];
  const std::unique_ptr<ControlDial> dial = std::move(peer.dial);
  const std::vector<OutgoingFrame> waiting = std::move(peer.waiting);
  peer.waiting.clear();
  try {
    if (socket.is_open()) {
      peer.own = link(rank, std::move(socket), true);
      for (const OutgoingFrame& parcel : waiting) {
        peer.own->send(parcel);
      }
      for (auto& [number, pending] : pending_) {
        if (pending.rank == rank && pending.way == Way::kNone) {
          pending.way = Way::kOwnLink;
        }
      }
    } else if (problem) {
      end_all(rank, Way::kNone, *problem);
    }
  } catch (const std::exception& error) {
    end_all(rank, Way::kNone, Error(ErrorCode::kSystem, error.what()));
  }
}

std::shared_ptr<ControlLink> ControlPlane::link(int rank, Fd socket, bool is_own) {
  // The callbacks need the link, which does not exist yet.
  const auto made = std::make_shared<std::weak_ptr<ControlLink>>();
  auto link = std::make_shared<ControlLink>(
      *loop_,
      std::move(socket),
      ControlLink::Callbacks{
          .frame =
              [this, rank, made](const transport::Frame& frame,
                                 std::span<const std::byte> payload) {
                return hear_frame(
                    rank,
                    [from = *made](const OutgoingFrame& parcel) {
                      if (const std::shared_ptr<ControlLink> kept = from.lock()) {
                        kept->send(parcel);
                      }
                    },
                    frame,
                    payload);
              },
          .end = [this, rank, is_own](ControlLink::End how) { hear_end(rank, is_own, how); }});
  *made = link;
  return link;
}

void ControlPlane::adopt(int rank, Fd socket, bool is_brief) {
  if (is_of_node(rank) || !transport::send_accept(socket.get())) {
    return;
  }
  Peer& peer = peers_[rank];
  net::set_no_delay(socket.get());
  net::set_liveness_timeout(socket.get(), transport::kLivenessTimeout);
  // A rank that opens another connection has abandoned the earlier connection.
  if (const std::shared_ptr<ControlLink> earlier = std::move(peer.theirs)) {
    earlier->read_all();
  }
  peer.theirs = link(rank, std::move(socket), false);
  if (is_brief) {
    (void)loop_->add_timer(Deadline::after(kBrief), [&peer, brief = std::weak_ptr(peer.theirs)] {
      if (peer.theirs == brief.lock()) {
        peer.theirs.reset();
      }
    });
  }
}

void ControlPlane::note_process_end(int rank) {
  if (post_ != nullptr) {
    post_->read_all();
  }
  end_node_peer(rank, ControlLink::End::kClosed);
}

void ControlPlane::end_node_peer(int rank, ControlLink::End how) {
  if (ended_.insert(rank).second) {
    end_all(rank, Way::kPost, is_gone(rank));
    callbacks_.end(rank, how);
  }
}

bool ControlPlane::hear_frame(int rank,
                              const SendBack& send_back,
                              const transport::Frame& frame,
                              std::span<const std::byte> payload) {
  if (is_answer(frame)) {
    const auto pending = pending_.find(frame.question);
    if (pending != pending_.end() && pending->second.rank == rank) {
      end(frame.question, {.frame = frame, .payload = {payload.begin(), payload.end()}});
    }
    return true;
  }
  if (frame.kind == transport::FrameKind::kEnded) {
    const auto ended = static_cast<int>(frame.sequence);
    const bool is_known = frame.sequence < roster_.members.size() && ended != roster_.rank &&
                          is_of_node(rank) && is_of_node(ended);
    if (is_known) {
      end_node_peer(ended, ControlLink::End::kClosed);
    }
    return is_known;
  }
  const auto reply =
      [loop = loop_, send_back, here = this_thread_number()](std::vector<std::byte> bytes) {
        const auto send = [send_back, parcel = OutgoingFrame{.bytes = std::move(bytes)}] {
          send_back(parcel);
        };
        if (this_thread_number() == here) {
          send();
        } else {
          loop->post(send);
        }
      };
  return callbacks_.frame({.rank = rank, .frame = frame, .payload = payload, .reply = reply});
}

void ControlPlane::hear_end(int rank, bool is_own, ControlLink::End how) {
  Peer& peer = peers_[rank];
  const std::shared_ptr<ControlLink> ended = std::move(is_own ? peer.own : peer.theirs);
  if (ended == nullptr) {
    return;  // A later link has replaced this link.
  }
  if (how == ControlLink::End::kJunk) {
    logger_.warning(
        fmt::format("ended the control connection with {}: it sent an invalid frame",
                    transport::describe(roster_.members[static_cast<std::size_t>(rank)])));
  }
  end_all(rank, is_own ? Way::kOwnLink : Way::kTheirLink, is_gone(rank));
}

void ControlPlane::end(std::uint32_t number, const Answer& answer) {
  const auto pending = pending_.extract(number);
  if (!pending.empty()) {
    loop_->cancel_timer(pending.mapped().timer);
    pending.mapped().hear(answer);
  }
}

void ControlPlane::end_all(int rank, Way way, const Error& problem) {
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, pending] : pending_) {
    if (pending.rank == rank && pending.way == way) {
      numbers.push_back(number);
    }
  }
  for (const std::uint32_t number : numbers) {
    end(number, {.problem = problem});
  }
}

Error ControlPlane::is_gone(int rank) const {
  return {ErrorCode::kPeerLost,
          fmt::format("{} has left, or is gone",
                      transport::describe(roster_.members[static_cast<std::size_t>(rank)]))};
}

}  // namespace unisono::peers
