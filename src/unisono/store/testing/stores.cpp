#include "unisono/store/testing/stores.h"

#include <poll.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/store/file_store.h"
#include "unisono/store/hash_store.h"
#include "unisono/store/protocol.h"
#include "unisono/store/store.h"

#include "support/temporary_folder.h"

namespace unisono::store::testing {
namespace {

net::Address loopback() {
  const std::optional<net::Address> address = net::Address::parse("127.0.0.1", 0);
  return address ? *address : net::Address::any(AF_INET, 0);
}

// Stores without a secret, with a hello, and with a hello within TLS.
class TcpStores final : public Stores {
 public:
  explicit TcpStores(std::string secret, bool tls = false)
      : secret_(std::move(secret)),
        tls_(tls),
        host_({.address = loopback(),
               .secret = secret_,
               .tls = tls_,
               .logger = base::Logger("store", LogLevel::kError)}) {}

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

TcpServerOptions quiet(const std::string& secret) {
  return {.address = net::Address::loopback(0),
          .secret = secret,
          .logger = base::Logger("store", LogLevel::kError)};
}

TcpStoreOptions client_of(const net::Address& address, const std::string& secret) {
  return {.host = address.ip(), .port = address.port(), .secret = secret};
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::unique_ptr<TcpStore> ServedStore::connect() const {
  return std::make_unique<TcpStore>(client_of(host_->address(), GetParam()), soon());
}

RawClient::RawClient(const net::Address& address) : fd_(net::connect_tcp(address, soon())) {}

void RawClient::send(const std::vector<std::byte>& bytes) {
  net::write_all(fd_.get(), bytes, soon(), "raw");
}

void RawClient::send_validate() {
  ByteWriter message = begin(Opcode::kValidate);
  message.put(kValidateMagic);
  send(message.bytes());
}

bool RawClient::is_dropped() {
  std::vector<std::byte> bytes(1 << 16);
  while (net::wait_for(fd_.get(), POLLIN, soon())) {
    const net::IoStatus status = net::read_some(fd_.get(), bytes).status;
    if (status == net::IoStatus::kClosed || status == net::IoStatus::kError) {
      return true;
    }
  }
  return false;
}

bool RawClient::has_ended() const {
  pollfd socket{.fd = fd_.get(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&socket, 1, 0) == 1;
}

}  // namespace unisono::store::testing
