#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/net/address.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"

namespace unisono::store::testing {

/// A store for a test, and handles to the store as ranks have.
class Stores {
 public:
  Stores() = default;
  virtual ~Stores() = default;
  Stores(const Stores&) = delete;
  Stores& operator=(const Stores&) = delete;
  Stores(Stores&&) = delete;
  Stores& operator=(Stores&&) = delete;

  [[nodiscard]] virtual std::shared_ptr<Store> open() = 0;

  /// Returns the prefix of the store's messages.
  [[nodiscard]] virtual std::string name() const = 0;

  /// Returns the name of a key in messages.
  [[nodiscard]] virtual std::string shown(const std::string& key) const { return key; }
};

struct StoreKind {
  const char* name;
  std::unique_ptr<Stores> (*make)();

  friend std::ostream& operator<<(std::ostream& out, const StoreKind& kind) {
    return out << kind.name;
  }
};

/// Returns every implementation of Store. Implementations on top of other stores occur with several
/// of these.
[[nodiscard]] std::vector<StoreKind> all_kinds();

/// Returns the deadline after which a test has failed.
[[nodiscard]] Deadline soon();

/// Returns a deadline for waits that are expected to time out.
[[nodiscard]] Deadline at_once();

/// Returns this process's descriptors of a file.
[[nodiscard]] std::vector<int> descriptors_of(const std::string& path);

/// Returns options of a server on loopback that logs no warnings.
[[nodiscard]] TcpServerOptions quiet(const std::string& secret = "");

[[nodiscard]] TcpStoreOptions client_of(const net::Address& address,
                                        const std::string& secret = "");

/// Returns the message of the Error that `call` throws.
[[nodiscard]] std::string message_of(const std::function<void()>& call);

/// A server and its clients, with and without a secret: the two kinds of handshake.
class ServedStore : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] std::unique_ptr<TcpStore> connect() const;

  std::unique_ptr<TcpStoreHost> host_ = std::make_unique<TcpStoreHost>(quiet(GetParam()));
};

/// A client that sends arbitrary bytes.
class RawClient {
 public:
  explicit RawClient(const net::Address& address);

  void send(const std::vector<std::byte>& bytes);

  void send_validate();

  /// Waits until the server closes the connection. Returns false at the deadline.
  [[nodiscard]] bool is_dropped();

  /// Returns true if the server has closed the connection.
  [[nodiscard]] bool has_ended() const;

 private:
  Fd fd_;
};

/// An event that happens once, for which threads of a test wait.
class Event {
 public:
  void set() {
    {
      const MutexLock lock(mutex_);
      is_set_ = true;
    }
    came_.notify_all();
  }

  /// Returns false if the deadline passed first.
  [[nodiscard]] bool wait(Deadline deadline) {
    const MutexLock lock(mutex_);
    while (!is_set_ && came_.wait_until(mutex_, deadline.time())) {
    }
    return is_set_;
  }

 private:
  Mutex mutex_;
  Condition came_;
  bool is_set_ UNISONO_GUARDED_BY(mutex_) = false;
};

}  // namespace unisono::store::testing
