#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/net/address.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"

#include "client.h"

namespace unisono::bench {
namespace {

// Server and clients run the hello handshake, as the ranks of a job do.
constexpr const char* kSecret = "secret";

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

class UnisonoServer final : public Server {
 public:
  [[nodiscard]] std::uint16_t port() const override { return host_.address().port(); }

 private:
  store::TcpStoreHost host_{{.address = *net::Address::parse("127.0.0.1", 0), .secret = kSecret}};
};

class UnisonoClient final : public Client {
 public:
  explicit UnisonoClient(std::uint16_t port)
      : store_({.host = "127.0.0.1", .port = port, .secret = kSecret}, soon()) {}

  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }

  std::size_t get(const std::string& key) override { return store_.get(key, soon()).size(); }

  std::int64_t add(const std::string& key) override { return store_.add(key, 1); }

  std::size_t multi_get(const std::vector<std::string>& keys) override {
    return store_.multi_get(keys, soon()).size();
  }

  void wait(const std::string& key) override { store_.wait({&key, 1}, soon()); }

  void watch(const std::string& key, OnChange on_change) override {
    watch_ = store_.watch(key, [on_change](const store::KeyChange& change) {
      on_change(change.before.value_or(""), change.after.value_or(""));
    });
  }

 private:
  store::TcpStore store_;
  std::unique_ptr<store::Watch> watch_;
};

}  // namespace

const Library kUnisono{
    .name = "unisono",
    .serve = [] { return std::unique_ptr<Server>(std::make_unique<UnisonoServer>()); },
    .connect =
        [](std::uint16_t port) {
          return std::unique_ptr<Client>(std::make_unique<UnisonoClient>(port));
        }};

}  // namespace unisono::bench
