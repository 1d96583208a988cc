// Who speaks TLS with a server, and who does not.
#include <sys/poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/store/tcp_host.h"
#include "unisono/store/tcp_store.h"
#include "unisono/store/testing/stores.h"
#include "unisono/store/testing/tcp.h"

namespace unisono::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::soon;
using ::testing::ThrowsMessage;

TcpServerOptions server(bool tls, bool allows_plain = false) {
  TcpServerOptions options = testing::quiet("secret");
  options.tls = tls;
  options.plain_clients.own_user = allows_plain;
  return options;
}

TcpStoreOptions client(const net::Address& server, bool tls, const std::string& secret = "secret") {
  TcpStoreOptions options = testing::client_of(server, secret);
  options.tls = tls;
  return options;
}

TEST(StoreTls, LargeValuesPassInBothDirections) {
  const TcpStoreHost host(server(true));
  TcpStore store(client(host.address(), true), soon());
  for (const std::size_t n_bytes : {0U, 1U, 16'383U, 16'384U, 65'536U, 5'000'000U}) {
    std::string value(n_bytes, '\0');
    for (std::size_t i = 0; i < n_bytes; ++i) {
      value[i] = static_cast<char>(i * 7 + i / 256);
    }
    store.set("k", value);
    EXPECT_TRUE(store.get("k", soon()) == value) << n_bytes;
  }
}

TEST(StoreTls, ManyClientsWorkAtTheSameTime) {
  const TcpStoreHost host(server(true));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      TcpStore store(client(host.address(), true), soon());
      for (int n = 0; n < 100; ++n) {
        store.add("sum", 1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  TcpStore store(client(host.address(), true), soon());
  EXPECT_EQ(store.add("sum", 0), 800);
}

TEST(StoreTls, BothSidesHaveToSpeakIt) {
  const TcpStoreHost with(server(true));
  EXPECT_THAT([&] { TcpStore store(client(with.address(), false), soon()); },
              ThrowsMessage<Error>(HasSubstr("wants TLS (UNISONO_TLS=on)")));
  const TcpStoreHost without(server(false));
  EXPECT_THAT([&] { TcpStore store(client(without.address(), true), soon()); },
              ThrowsMessage<Error>(HasSubstr("UNISONO_TLS=on")));
}

TEST(StoreTls, AnotherSecretIsUnauthenticated) {
  const TcpStoreHost host(server(true));
  try {
    TcpStore store(client(host.address(), true, "another"), soon());
    FAIL() << "it was let in";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnauthenticated);
    EXPECT_THAT(error.what(), HasSubstr("another secret"));
  }
}

TEST(StoreTls, TakesASecretOnBothSides) {
  const auto needs_a_secret = ThrowsMessage<Error>(
      AllOf(HasSubstr("UNISONO_TLS=on"), HasSubstr("set UNISONO_SECRET or UNISONO_SECRET_FILE")));
  for (const net::Address& address : {net::Address::loopback(0), net::Address::any(AF_INET, 0)}) {
    TcpServerOptions options = server(true);
    options.address = address;
    options.secret = "";
    options.insecure = true;
    EXPECT_THAT([&] { TcpStoreHost host(options); }, needs_a_secret);
  }
  TcpServerOptions plain = server(false);
  plain.secret = "";
  const TcpStoreHost host(plain);
  EXPECT_THAT([&] { TcpStore store(client(host.address(), true, ""), soon()); }, needs_a_secret);
}

TEST(StoreTls, PlainClientsAreServedBesideWhereThatIsAllowed) {
  const TcpStoreHost host(server(true, true));
  TcpStore sealed(client(host.address(), true), soon());
  TcpStore plain(client(host.address(), false, ""), soon());
  plain.set("k", "v");
  EXPECT_EQ(sealed.get("k", soon()), "v");
}

// Hands on what passes between a client and a server, and keeps it.
class Listener {
 public:
  explicit Listener(const net::Address& server)
      : listener_(net::listen_tcp(net::Address::loopback(0))), thread_([this, server] {
          const Fd client = accept();
          const Fd to_server = net::connect_tcp(server, soon());
          std::thread back([&] { carry(to_server.get(), client.get()); });
          heard_ = carry(client.get(), to_server.get());
          back.join();
        }) {}

  [[nodiscard]] net::Address address() const { return net::local_address(listener_.get()); }

  // What the client has said until it hung up.
  std::string heard() {
    thread_.join();
    return heard_;
  }

 private:
  [[nodiscard]] Fd accept() const {
    EXPECT_TRUE(net::wait_for(listener_.get(), POLLIN, soon()));
    return net::accept_connection(listener_.get()).fd;
  }

  static std::string carry(int from, int to) {
    std::string text;
    std::vector<std::byte> buffer(100'000);
    try {
      while (true) {
        const std::size_t n = net::read_at_least_one(from, buffer, soon(), "client");
        net::write_all(to, std::span(buffer).first(n), soon(), "server");
        text.append(reinterpret_cast<const char*>(buffer.data()), n);
      }
    } catch (const Error&) {
      ::shutdown(to, SHUT_RDWR);
      return text;
    }
  }

  Fd listener_;
  std::string heard_;
  std::thread thread_;
};

TEST(StoreTls, AListenerOnThePathHearsNothing) {
  for (const bool tls : {false, true}) {
    const TcpStoreHost host(server(tls));
    Listener listener(host.address());
    {
      TcpStore store(client(listener.address(), tls), soon());
      store.set("confidential", "value");
      EXPECT_EQ(store.get("confidential", soon()), "value");
    }
    const bool is_heard = listener.heard().find("confidential") != std::string::npos;
    EXPECT_EQ(is_heard, !tls);
  }
}

}  // namespace
}  // namespace unisono::store
