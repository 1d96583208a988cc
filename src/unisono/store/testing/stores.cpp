#include "unisono/store/testing/stores.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/store/file_store.h"
#include "unisono/store/hash_store.h"
#include "unisono/store/prefix_store.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_host.h"
#include "unisono/store/tcp_store.h"

#include "support/temporary_folder.h"

namespace unisono::store::testing {
namespace {

net::Address loopback() {
  const std::optional<net::Address> address = net::Address::parse("127.0.0.1", 0);
  return address ? *address : net::Address::any(AF_INET, 0);
}

// Without a secret, after a hello, and that within TLS.
class TcpStores final : public Stores {
 public:
  explicit TcpStores(std::string secret, bool tls = false)
      : secret_(std::move(secret)),
        tls_(tls),
        host_({.address = loopback(),
               .secret = secret_,
               .tls = tls_,
               .logger = Logger("store", LogLevel::kError)}) {}

  std::shared_ptr<Store> open() override {
    return std::make_shared<TcpStore>(
        TcpStoreOptions{
            .host = "127.0.0.1", .port = host_.address().port(), .secret = secret_, .tls = tls_},
        soon());
  }

  [[nodiscard]] std::string name() const override { return "store " + host_.address().to_string(); }

 private:
  std::string secret_;
  bool tls_;
  TcpStoreHost host_;
};

class HashStores final : public Stores {
 public:
  std::shared_ptr<Store> open() override { return store_; }

  [[nodiscard]] std::string name() const override { return "hash store"; }

 private:
  std::shared_ptr<Store> store_ = std::make_shared<HashStore>();
};

class FileStores final : public Stores {
 public:
  std::shared_ptr<Store> open() override {
    return std::make_shared<FileStore>(FileStoreOptions{.path = path()}, soon());
  }

  [[nodiscard]] std::string name() const override { return "store " + path(); }

 private:
  [[nodiscard]] std::string path() const { return folder_.path() + "/store"; }

  test::TemporaryFolder folder_;
};

class PrefixStores final : public Stores {
 public:
  explicit PrefixStores(std::unique_ptr<Stores> inner) : inner_(std::move(inner)) {}

  std::shared_ptr<Store> open() override {
    return std::make_shared<PrefixStore>("p", inner_->open());
  }

  [[nodiscard]] std::string name() const override { return inner_->name(); }

  [[nodiscard]] std::string shown(const std::string& key) const override { return "p/" + key; }

 private:
  std::unique_ptr<Stores> inner_;
};

std::unique_ptr<Stores> tcp() {
  return std::make_unique<TcpStores>("secret");
}

std::unique_ptr<Stores> tls() {
  return std::make_unique<TcpStores>("secret", true);
}

std::unique_ptr<Stores> plain_tcp() {
  return std::make_unique<TcpStores>("");
}

std::unique_ptr<Stores> hash() {
  return std::make_unique<HashStores>();
}

std::unique_ptr<Stores> file() {
  return std::make_unique<FileStores>();
}

template <std::unique_ptr<Stores> (*inner)()>
std::unique_ptr<Stores> prefix() {
  return std::make_unique<PrefixStores>(inner());
}

}  // namespace

std::vector<StoreKind> all_kinds() {
  return {{.name = "Tcp", .make = tcp},
          {.name = "Tls", .make = tls},
          {.name = "PlainTcp", .make = plain_tcp},
          {.name = "Hash", .make = hash},
          {.name = "File", .make = file},
          {.name = "PrefixOfTcp", .make = prefix<tcp>},
          {.name = "PrefixOfHash", .make = prefix<hash>},
          {.name = "PrefixOfFile", .make = prefix<file>}};
}

Deadline soon() {
  return Deadline::after(std::chrono::seconds(30));
}

Deadline at_once() {
  return Deadline::after(std::chrono::milliseconds(2));
}

std::vector<int> descriptors_of(const std::string& path) {
  std::vector<int> descriptors;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code has_gone;
    if (std::filesystem::read_symlink(entry.path(), has_gone) == path) {
      descriptors.push_back(std::stoi(entry.path().filename()));
    }
  }
  return descriptors;
}

}  // namespace unisono::store::testing
