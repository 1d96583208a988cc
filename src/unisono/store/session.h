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
#include "unisono/store/protocol.h"
#include "unisono/store/requests.h"
#include "unisono/store/store.h"
#include "unisono/store/store_map.h"

namespace unisono::store {

/// The server's side of a connection, without I/O: consumes received bytes and produces replies.
///
/// Admits a client after the mutual handshake; if the store has no secret, or `admits_plain` admits
/// the client, after PyTorch's VALIDATE. Replies are in the order of the requests: requests behind
/// a wait are deferred until the wait ends; only CANCEL_WAIT overtakes deferred requests.
///
/// Owned by a ServerConnection. Not thread-safe. Misbehaving clients are reported by problem().
class Session {
 public:
  /// Returns true if this client is admitted without the handshake although there is a secret.
  using AdmitsPlain = std::function<bool()>;

  /// `map` is shared by all sessions of a server and must outlive the sessions. With an empty
  /// `secret`, clients without the handshake are admitted; otherwise `admits_plain` decides, and is
  /// called once at most. The client receives `job`.
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

  /// Processes bytes from the client and executes completed requests.
  void feed(std::span<const std::byte> bytes);

  /// Replies that the client's wait is over. Must be called when StoreMap::take_woken() returns
  /// this client.
  void wake();

  /// Sends the client a change of a watched key. Must be called for the results of
  /// StoreMap::take_news().
  void notify(const KeyChange& change);

  /// Rejects the client: the next request other than VALIDATE ends the session with `reason`, which
  /// the client receives after EXPLAIN. An empty reason lifts the rejection.
  void turn_away(const std::string& reason) { turned_away_because_ = reason; }

  /// Bytes for the client. The caller drops the bytes that were sent; the rest, which is limited,
  /// waits for the client to read.
  [[nodiscard]] Replies& replies() { return answers_.replies(); }

  [[nodiscard]] const Replies& replies() const { return answers_.replies(); }

  /// Returns the reason for which the connection must be closed after the replies are sent, or "".
  [[nodiscard]] const std::string& problem() const { return answers_.problem(); }

  /// Returns true if the client may make requests.
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
  // Set in the map when the session ends, unless the value is empty.
  std::string last_word_key_;
  std::string last_word_;
  Answers answers_;
};

/// Must be called after a session was fed: notifies the sessions of other clients of ended waits
/// and changed keys. Repeats until there are no more, because the deferred requests of a woken
/// client may concern further clients. `tell(id, body)` calls `body(session)` if that client still
/// exists.
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
