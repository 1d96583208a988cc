#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/net/hello.h"
#include "unisono/store/answers.h"
#include "unisono/store/limits.h"
#include "unisono/store/protocol.h"
#include "unisono/store/replies.h"
#include "unisono/store/request_parser.h"
#include "unisono/store/store_map.h"
#include "unisono/store/watch.h"

namespace unisono::store {

/// The server's side of one connection: bytes in, replies out, no I/O.
///
/// Serves a client after its hello, or, when the store has no secret, after PyTorch's VALIDATE.
/// Requests are answered in order: those that follow a wait are kept until it ends; only
/// CANCEL_WAIT overtakes them.
class Session {
 public:
  /// Whether this client is served without the hello, though there is a secret.
  using AdmitsPlain = std::function<bool()>;

  /// `map` is shared by all sessions of a server and outlives them. An empty `secret` lets plain
  /// clients in; so does `admits_plain`, which is asked once, if at all. The client is told `job`.
  Session(ClientId id,
          StoreMap& map,
          std::string secret,
          const Limits& limits,
          AdmitsPlain admits_plain = nullptr,
          std::string job = "");

  ~Session();

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  Session(Session&&) = delete;
  Session& operator=(Session&&) = delete;

  void feed(std::span<const std::byte> bytes);

  /// Tells the client that its wait is over. To be called when StoreMap::take_woken() names it.
  void wake();

  /// Tells the client of a change of what it watches. To be called for StoreMap::take_news().
  void notify(const KeyChange& change);

  /// The client is not to be served: what it asks for, but to be told why, ends the session. An
  /// empty reason takes an earlier one back.
  void turn_away(const std::string& reason) { turned_away_because_ = reason; }

  /// For the client. Whoever has sent some drops them; what is left is what the client has not
  /// taken, which is limited.
  [[nodiscard]] Replies& replies() { return answers_.replies(); }

  [[nodiscard]] const Replies& replies() const { return answers_.replies(); }

  /// Why the connection is to be closed, after the replies are sent; empty while it may go on.
  [[nodiscard]] const std::string& problem() const { return answers_.problem(); }

  /// True once the client has the right to make requests.
  [[nodiscard]] bool is_admitted() const {
    return state_ == State::kServing && turned_away_because_.empty();
  }

 private:
  enum class State { kNew, kHello, kValidating, kServing };

  void choose_state(std::byte first);
  std::size_t feed_hello(std::span<const std::byte> bytes);
  std::size_t feed_request(std::span<const std::byte> bytes);
  void handle(Request request);
  void hear_out(const Request& request);
  void execute(Request& request);
  [[nodiscard]] bool may_grow_store(const Request& request) const;
  void execute_map(Request& request);
  void execute_queue(Request& request);
  void execute_watch(const Request& request);
  void keep_last_word(Request& request);
  void wait_for(const std::vector<std::string>& keys);
  void cancel_wait();
  void end_wait(WaitReply result);
  void check(const std::vector<std::string>& keys);
  void pop(const std::string& key);
  void add(const std::string& key, std::int64_t delta);
  void append(const std::string& key, const std::string& value);
  void get(const std::vector<std::string>& keys);
  void barrier(const std::string& key, std::int64_t world_size);
  void reply_wait(WaitReply reply);

  ClientId id_;
  StoreMap& map_;
  std::string secret_;
  std::string job_;
  AdmitsPlain admits_plain_;
  Limits limits_;
  State state_ = State::kNew;
  std::unique_ptr<net::Hello> hello_;
  RequestParser parser_;
  std::string turned_away_because_;
  bool is_waiting_ = false;
  std::deque<Request> deferred_;
  std::size_t n_deferred_bytes_ = 0;
  // Set when the session ends; without a value nothing is.
  std::string last_word_key_;
  std::string last_word_;
  Answers answers_;
};

/// What a server does after a session was fed: tells others of what has come, until nothing is left
/// to tell, since a client that is woken may go on with requests that concern others in turn.
/// `tell(id, body)` calls `body(session)` if that client is still there.
template <class Tell>
void serve_others(StoreMap& map, const Tell& tell) {
  for (;;) {
    const std::vector<ClientId> woken = map.take_woken();
    const std::vector<StoreMap::News> news = map.take_news();
    if (woken.empty() && news.empty()) {
      return;
    }
    for (const ClientId id : woken) {
      tell(id, [](Session& session) { session.wake(); });
    }
    for (const StoreMap::News& item : news) {
      tell(item.client, [&](Session& session) { session.notify(*item.change); });
    }
  }
}

}  // namespace unisono::store
