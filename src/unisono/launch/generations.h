#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/report.h"
#include "unisono/launch/worker_group.h"
#include "unisono/net/event_loop.h"
#include "unisono/store/tcp_server.h"

namespace unisono::launch {

/// End of a generation, as far as a restart depends on it.
struct GenerationEnd {
  /// A rank or the guardian has failed, no signal has ended the job, and no process is left.
  bool has_failed = false;
  std::chrono::nanoseconds lifetime{};
};

/// Decides whether the ranks of a job are restarted. Not thread-safe.
class RestartPolicy {
 public:
  explicit RestartPolicy(int max_restarts) : max_restarts_(max_restarts) {}

  /// Uses up a restart and returns the delay before the restart. Returns std::nullopt if the job is
  /// not restarted.
  ///
  /// The first restart has no delay. If generations fail within ten seconds of the start, the delay
  /// doubles each time, from 100 ms up to ten seconds.
  [[nodiscard]] std::optional<std::chrono::milliseconds> restart_after(const GenerationEnd& end);

  [[nodiscard]] int n_used() const { return n_used_; }

  [[nodiscard]] int max_restarts() const { return max_restarts_; }

 private:
  int max_restarts_;
  int n_used_ = 0;
  std::chrono::milliseconds delay_{};
};

/// Describes how a generation of this node's ranks ended.
struct GroupEnd {
  std::optional<Cause> cause;  ///< std::nullopt if all ranks were done.
  /// One line about a failure that a restart may fix; empty: a restart cannot help.
  std::string failure;
  std::string report;  ///< Full report about the cause.
  std::chrono::nanoseconds lifetime{};
  /// This node can run another generation, and no signal or order has ended the job.
  bool may_go_on = true;
};

/// Exit code of the job and the report for the user.
struct Outcome {
  int exit_code = 0;
  std::string report = {};
};

/// Functions of the agent for a Generations object that waits.
struct Waiting {
  /// Runs the agent's loop once, until the deadline at most. Returns false if this node is to end.
  std::function<bool(Deadline until)> run_once;
  /// Shows a message to the user.
  std::function<void(std::string_view text)> say;
};

/// Decides which generations of a job's ranks this node runs: LocalGenerations for a job of a
/// single node, NodeGenerations for a job of several.
///
/// Each job has an object on each node, which must outlive the Agent that uses the object. All
/// functions are called on the thread of the agent's loop. A failure of the rendezvous or of the
/// store becomes the outcome().
class Generations {
 public:
  Generations() = default;
  virtual ~Generations() = default;
  Generations(const Generations&) = delete;
  Generations& operator=(const Generations&) = delete;
  Generations(Generations&&) = delete;
  Generations& operator=(Generations&&) = delete;

  /// Waits for the next generation and returns its layout. Returns std::nullopt if the job is over
  /// or this node is to end.
  [[nodiscard]] virtual std::optional<JobLayout> next(const Waiting& waiting) = 0;

  /// Called each time that the loop has run while ranks run. Ends the group if the job requires
  /// that, and reports the end of the group to the other nodes.
  virtual void watch(WorkerGroup& group, const Waiting& waiting) = 0;

  /// Called after the last rank of the generation has ended.
  virtual void take_end(const GroupEnd& end) = 0;

  /// Returns how the job ended, or std::nullopt if this node has to end for a reason of its own.
  [[nodiscard]] virtual std::optional<Outcome> outcome() const = 0;
};

/// The generations of a job of one node. The object serves the ranks' store, a new store for each
/// generation.
class LocalGenerations final : public Generations {
 public:
  /// Serves the first store with the options `store`. The ranks receive the port that the store
  /// got.
  LocalGenerations(net::EventLoop& loop,
                   const JobLayout& job,
                   const store::TcpServerOptions& store);

  [[nodiscard]] std::optional<JobLayout> next(const Waiting& waiting) override;
  void watch(WorkerGroup& group, const Waiting& waiting) override;
  void take_end(const GroupEnd& end) override;
  [[nodiscard]] std::optional<Outcome> outcome() const override;

 private:
  [[nodiscard]] bool prepare_restart(const GroupEnd& last, const Waiting& waiting);

  net::EventLoop& loop_;
  JobLayout job_;
  store::TcpServerOptions store_options_;
  std::unique_ptr<store::TcpStoreServer> store_;  // Belongs to the present generation.
  RestartPolicy restarts_;
  std::vector<std::string> failures_;  // Failures of all generations that were followed by another.
  std::optional<GroupEnd> last_;
  std::optional<Outcome> outcome_;
};

}  // namespace unisono::launch
