// The store's server: several connections to one map, without sockets.
//
// Input: u8 whether the store has a secret, then steps. Each step is a u8 with the connection
// (modulo 4; bit 7: the connection closes and a new connection replaces the old one; bit 6: the
// client reads its replies), a u8 length, and that number of bytes for the connection.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/net/hello.h"
#include "unisono/store/protocol.h"
#include "unisono/store/session.h"
#include "unisono/store/store.h"
#include "unisono/store/store_map.h"
#include "unisono/store/testing/take_replies.h"

#include "expect.h"
#include "input.h"

namespace unisono::fuzz {
namespace {

using store::ClientId;
using store::Session;
using store::StoreMap;
using store::testing::take_replies;

// Small enough for inputs to reach the limits.
constexpr store::Limits kLimits{.max_key_bytes = 64,
                                .max_value_bytes = 256,
                                .max_count = 2,
                                .max_request_bytes = 1024,
                                .max_unread_bytes = 512,
                                .max_store_bytes = 512};

// A request is limited by its number of bytes. The entries that it leaves in the map count by their
// bytes plus the cost of a node.
constexpr std::size_t kSlackOfARequest = kLimits.max_count * 128;

class Server {
 public:
  explicit Server(std::string secret) : secret_(std::move(secret)) {}

  void run(Input input) {
    while (!input.rest().empty()) {
      const std::uint8_t what = input.take_u8();
      Client& client = clients_[what % clients_.size()];
      const std::span<const std::byte> bytes = input.take(input.take_u8());
      if (client.session == nullptr || (what & 0x80U) != 0) {
        connect(client);
      }
      if ((what & 0x40U) != 0) {
        (void)take_replies(*client.session);
      }
      feed(client, bytes);
      store::serve_others(map_, [this](ClientId id, const auto& body) { tell(id, body); });
      expect(map_.n_bytes() <= kLimits.max_store_bytes + kSlackOfARequest,
             "a full store takes no more");
    }
    for (Client& client : clients_) {
      client.session.reset();
    }
    (void)map_.take_woken();
    map_.set("/a", "watched");
    expect(map_.take_news().empty(), "a client that has left watches nothing");
    for (const std::string& key : map_.keys()) {
      (void)map_.erase(key);
    }
  }

 private:
  struct Client {
    ClientId id = 0;
    std::unique_ptr<Session> session;
  };

  void connect(Client& client) {
    client.session.reset();
    client = {.id = next_id_, .session = nullptr};
    client.session = std::make_unique<Session>(next_id_++, map_, secret_, kLimits);
    if (!secret_.empty()) {
      introduce(*client.session);
    }
  }

  void introduce(Session& session) {
    net::Hello hello(net::Hello::Side::kClient,
                     secret_,
                     {.job = "", .purpose = store::kHelloPurpose, .rank = 1, .group = 0});
    session.feed(hello.take_output());
    (void)hello.feed(take_replies(session));
    session.feed(hello.take_output());
    (void)hello.feed(take_replies(session));
    expect(hello.state() == net::Hello::State::kDone && session.is_admitted(),
           "a client with the secret is admitted");
  }

  void feed(Client& client, std::span<const std::byte> bytes) {
    const bool had_problem = !client.session->problem().empty();
    const std::size_t n_before = map_.n_bytes();
    client.session->feed(bytes);
    check_replies(client);
    expect(!had_problem || map_.n_bytes() == n_before, "nothing is served after a problem");
    expect(client.session->is_admitted() || map_.n_bytes() == n_before,
           "nothing is served to an unknown client");
  }

  static void check_replies(const Client& client) {
    expect(client.session->replies().n_bytes() <= kLimits.max_unread_bytes,
           "answers that are not read are limited");
  }

  template <class Body>
  void tell(ClientId id, const Body& body) {
    for (Client& client : clients_) {
      if (client.id == id) {
        body(*client.session);
        check_replies(client);
      }
    }
  }

  std::string secret_;
  StoreMap map_;
  ClientId next_id_ = 1;
  std::array<Client, 4> clients_;
};

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unisono::fuzz::Input input(data, size);
  const bool has_secret = (input.take_u8() & 1U) != 0;
  unisono::fuzz::Server(has_secret ? "secret" : "").run(input);
  return 0;
}
