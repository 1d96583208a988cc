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
#include "unisono/net/event_loop.h"
#include "unisono/peers/control_link.h"
#include "unisono/peers/node_peers.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::peers {

/// The purpose of a control connection, in its handshake.
inline constexpr const char* kControlPurpose = "control";

/// Resources for control frames to the other ranks of the node.
struct NodeContact {
  Fd post;  ///< A socket named post_name(); not open if the rank is alone on its node.
  shm::NodeMemory::Key key;  ///< Key of the node's memory.
};

/// A question to another rank.
struct Question {
  int rank;  ///< Rank in the job.
  transport::Frame frame;
  std::vector<std::byte> payload = {};
};

/// Result of a question to another rank.
struct Answer {
  std::optional<transport::Frame> frame = {};  ///< The reply.
  std::vector<std::byte> payload = {};
  /// Set if no reply will come; kPeerLost: the rank has left or is gone. Without frame and problem,
  /// no reply came in time.
  std::optional<Error> problem = {};
};

/// A request or notification from another rank.
struct IncomingFrame {
  int rank;
  const transport::Frame& frame;
  std::span<const std::byte> payload;
  /// Sends the reply on the connection of the question. Any thread, at any time.
  std::function<void(std::vector<std::byte> frame)> reply;
};

/// Exchanges failure reports, questions and replies of all groups between ranks, independent of the
/// groups' operations. Inside a node NodePost carries the frames; between nodes a pair of ranks
/// uses a connection that the first sender opens. If both open a connection at the same time, each
/// sends on its own connection.
///
/// Owned by PeerMonitor. The loop's thread does all I/O; section comments name the thread of each
/// function. A failure of a question is the result of the question.
class ControlPlane {
 public:
  struct Callbacks {
    /// Handles a frame. Returns false for a frame that no correct rank sends.
    std::function<bool(const IncomingFrame& heard)> frame;
    /// A rank of this node has ended, or has sent an incorrect frame.
    std::function<void(int rank, ControlLink::End how)> end;
  };

  /// The references must outlive the object. Replies share the loop, because they may come after
  /// the end of the object.
  ControlPlane(std::shared_ptr<net::EventLoop> loop,
               const transport::RankTable& roster,
               const std::string& secret,
               NodeContact node,
               Callbacks callbacks,
               base::Logger logger);

  // Functions for any thread:

  /// Sends a frame to ranks of the job. Waits, for at most `patience`, until the frame is written.
  /// A written frame arrives even if this process ends.
  void tell(std::vector<int> ranks,
            const std::vector<std::byte>& frame,
            std::chrono::milliseconds patience) noexcept;

  /// Receives the result of a question, on the loop's thread.
  using ReplyCallback = std::function<void(const Answer& answer)>;

  /// Sends a question to a rank. The loop's thread calls `hear` within `timeout`. Sets the frame's
  /// number.
  void ask(Question question, std::chrono::milliseconds timeout, ReplyCallback hear);

  /// Sends all questions at once, and waits for the replies. Returns the results in the order of
  /// the questions.
  [[nodiscard]] std::vector<Answer> ask_all(const std::vector<Question>& questions,
                                            std::chrono::milliseconds timeout);

  // Functions for the loop's thread:

  /// Takes over a connection that the rank has opened. Closes it soon if `is_brief`.
  void adopt(int rank, Fd socket, bool is_brief);

  /// Handles the end of a rank of this node, after the rank's last frames. A second call does
  /// nothing.
  void note_process_end(int rank);

 private:
  struct Peer {
    std::shared_ptr<ControlLink> own = nullptr;  // Replies have weak references.
    std::shared_ptr<ControlLink> theirs = nullptr;
    std::unique_ptr<ControlDial> dial = nullptr;
    std::vector<OutgoingFrame> waiting = {};  // Frames that wait for the dial.
  };

  // The connection that carried a question.
  enum class Way : std::uint8_t { kNone, kPost, kOwnLink, kTheirLink };

  // A question that waits for its reply. kNone: the question waits for a connection.
  struct Pending {
    int rank;
    ReplyCallback hear;
    net::EventLoop::TimerId timer;
    Way way;
  };

  [[nodiscard]] std::shared_ptr<ControlLink> link(int rank, Fd socket, bool is_own);
  void send(int rank, OutgoingFrame parcel, Deadline until);
  void dial(int rank, Peer& peer, Deadline until);
  void end_dial(int rank, Fd socket, const std::optional<Error>& problem);
  void begin(std::uint32_t number, Question& question, Deadline deadline, ReplyCallback& hear);
  // Called on the loop's thread.
  using SendBack = std::function<void(const OutgoingFrame& parcel)>;
  [[nodiscard]] bool hear_frame(int rank,
                                const SendBack& send_back,
                                const transport::Frame& frame,
                                std::span<const std::byte> payload);
  [[nodiscard]] bool is_of_node(int rank) const;
  [[nodiscard]] std::shared_ptr<NodePost> make_post(NodeContact node);
  void end_node_peer(int rank, ControlLink::End how);
  void hear_end(int rank, bool is_own, ControlLink::End how);
  void end(std::uint32_t number, const Answer& answer);
  // Ends the questions to the rank on the given connection.
  void end_all(int rank, Way way, const Error& problem);
  [[nodiscard]] Error is_gone(int rank) const;

  std::shared_ptr<net::EventLoop> loop_;
  const transport::RankTable& roster_;
  const std::string& secret_;
  Callbacks callbacks_;
  base::Logger logger_;
  // Relaxed, because no other data depends on them.
  std::atomic<std::uint32_t> n_questions_ = 0;
  std::atomic<std::uint64_t> thread_ = 0;  // The thread that runs the loop; 0 before the start.
  // Used only by the loop's thread:
  std::shared_ptr<NodePost> post_;  // Replies have weak references.
  std::set<int> ended_;             // Ranks of this node.
  std::map<int, Peer> peers_;       // Ranks of other nodes.
  std::map<std::uint32_t, Pending> pending_;
};

}  // namespace unisono::peers
