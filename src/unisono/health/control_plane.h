#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/health/control_dial.h"
#include "unisono/health/control_link.h"
#include "unisono/health/node_post.h"
#include "unisono/net/event_loop.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::health {

/// What the hello of a control connection says it is for.
inline constexpr const char* kControlPurpose = "control";

/// By what a rank reaches the others of its node.
struct NodeContact {
  Fd post;  ///< Of the name that post_name() gives this rank; not open where it has no others.
  shm::NodeMemory::Key key;  ///< Of the node's memory.
};

/// What a rank is asked.
struct Question {
  int rank;  ///< Of the job.
  transport::Frame frame;
  std::vector<std::byte> payload = {};
};

/// How a question to another rank ended.
struct Answer {
  std::optional<transport::Frame> frame = {};  ///< What it said.
  std::vector<std::byte> payload = {};
  /// Without a frame: why none comes; kPeerLost: the rank has left, or is gone. Without either none
  /// came in time.
  std::optional<Error> problem = {};
};

/// A request or notification from another rank.
struct Heard {
  int rank;
  const transport::Frame& frame;
  std::span<const std::byte> payload;
  /// Sends the answer on the connection by which the question came. Any thread, at any time.
  std::function<void(std::vector<std::byte> frame)> reply;
};

/// Sends failure reports, questions and answers of all groups between ranks, beside their
/// operations: inside a node by NodePost, between nodes by a connection per pair of ranks that the
/// first of the two with something to send opens. Where both do so at once each sends by its own.
class ControlPlane {
 public:
  struct Callbacks {
    /// False for a frame that no correct rank sends.
    std::function<bool(const Heard& heard)> frame;
    /// A rank of this node has ended, or sent no correct frame.
    std::function<void(int rank, ControlLink::End how)> end;
  };

  /// The references outlive it. The loop is shared with replies, which may come after its end.
  ControlPlane(std::shared_ptr<net::EventLoop> loop,
               const rendezvous::Roster& roster,
               const std::string& secret,
               NodeContact node,
               Callbacks callbacks,
               Logger logger);

  // For any thread:

  /// Sends a frame to ranks of the job. Waits, for `patience` at most, until it has been written:
  /// then it arrives, whatever becomes of this process.
  void tell(std::vector<int> ranks,
            const std::vector<std::byte>& frame,
            std::chrono::milliseconds patience) noexcept;

  using HearAnswer = std::function<void(const Answer& answer)>;

  /// Asks a rank; `hear` is called by the loop, within `timeout`. Takes the frame's number from it.
  void ask(Question question, std::chrono::milliseconds timeout, HearAnswer hear);

  /// Asks all at once, and waits for the answers, which come in the order of the questions.
  [[nodiscard]] std::vector<Answer> ask_all(const std::vector<Question>& questions,
                                            std::chrono::milliseconds timeout);

  // For the loop's thread:

  /// A connection that the rank has opened. It is closed soon where it `is_brief`.
  void adopt(int rank, Fd socket, bool is_brief);

  /// A rank of this node has ended. Its last frames are taken first; the second call does nothing.
  void note_process_end(int rank);

 private:
  struct Peer {
    std::shared_ptr<ControlLink> own = nullptr;  // Shared with the replies that go by it: weakly.
    std::shared_ptr<ControlLink> theirs = nullptr;
    std::unique_ptr<ControlDial> dial = nullptr;
    std::vector<Parcel> waiting = {};  // For the dial.
  };

  // By what a question went to its rank.
  enum class Way : std::uint8_t { kNone, kPost, kOwnLink, kTheirLink };

  // A question under way. kNone: it waits for a dial.
  struct Pending {
    int rank;
    HearAnswer hear;
    net::EventLoop::TimerId timer;
    Way way;
  };

  [[nodiscard]] std::shared_ptr<ControlLink> link(int rank, Fd socket, bool is_own);
  void send(int rank, Parcel parcel, Deadline until);
  void dial(int rank, Peer& peer, Deadline until);
  void end_dial(int rank, Fd socket, const std::optional<Error>& problem);
  void begin(std::uint32_t number, Question& question, Deadline deadline, HearAnswer& hear);
  using SendBack = std::function<void(const Parcel& parcel)>;  // Of the loop's thread.
  [[nodiscard]] bool hear_frame(int rank,
                                const SendBack& send_back,
                                const transport::Frame& frame,
                                std::span<const std::byte> payload);
  [[nodiscard]] bool is_of_node(int rank) const;
  [[nodiscard]] std::shared_ptr<NodePost> make_post(NodeContact node);
  void end_node_peer(int rank, ControlLink::End how);
  void hear_end(int rank, bool is_own, ControlLink::End how);
  void end(std::uint32_t number, const Answer& answer);
  // The questions to the rank that went by that.
  void end_all(int rank, Way way, const Error& problem);
  [[nodiscard]] Error is_gone(int rank) const;

  std::shared_ptr<net::EventLoop> loop_;
  const rendezvous::Roster& roster_;
  const std::string& secret_;
  Callbacks callbacks_;
  Logger logger_;
  // Relaxed: they order nothing else.
  std::atomic<std::uint32_t> n_questions_ = 0;
  std::atomic<std::uint64_t> thread_ = 0;  // That runs the loop; 0 until it does.
  // Of the loop's thread.
  std::shared_ptr<NodePost> post_;  // Shared with the replies that go by it: weakly.
  std::set<int> ended_;             // Ranks of this node.
  std::map<int, Peer> peers_;       // Ranks of other nodes.
  std::map<std::uint32_t, Pending> pending_;
};

}  // namespace unisono::health
