#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "unisono/rendezvous/connect_store.h"
#include "unisono/store/store.h"

namespace unisono::python {

/// A way to a store of the core's.
struct StoreAccess {
  std::shared_ptr<store::Store> store;  ///< Shared by the groups that meet in it.
  rendezvous::ConnectAgain connect_again;
  std::string secret = {};    ///< Empty for one without.
  std::string local_ip = {};  ///< This machine's address by which the store was reached.
  int fd = -1;                ///< The store's connection where no rank serves it, else -1.
  std::string host = {};
  std::uint16_t port = 0;
};

/// The one that a meeting has found. A server in this process lives as long as somebody here has
/// the way to its store.
[[nodiscard]] StoreAccess access_of(rendezvous::StoreSession session);

/// The same for the keys below `prefix`.
[[nodiscard]] StoreAccess in_part(const StoreAccess& access, const std::string& prefix);

/// The way below a store of torch.distributed, if there is a CoreStore, with the prefixes of all
/// that stands before it; else nothing.
[[nodiscard]] std::optional<StoreAccess> find_access(c10::intrusive_ptr<c10d::Store> store);

/// A store of the core's as a store of torch.distributed. Thread-safe but for setTimeout(); waits
/// on the main thread end with what a signal's handler raises.
///
/// Throws PyTorch's exceptions: DistStoreError when a wait's time is up, DistNetworkError when the
/// store is gone, ValueError for what no store takes.
class CoreStore final : public c10d::Store {
 public:
  CoreStore(StoreAccess access, std::chrono::milliseconds timeout);
  ~CoreStore() override;

  CoreStore(const CoreStore&) = delete;
  CoreStore& operator=(const CoreStore&) = delete;
  CoreStore(CoreStore&&) = delete;
  CoreStore& operator=(CoreStore&&) = delete;

  [[nodiscard]] const StoreAccess& access() const { return access_; }

  /// On a connection of its own.
  c10::intrusive_ptr<c10d::Store> clone() override;

  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key,
                                       const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<std::uint8_t>>& values) override;

  bool hasExtendedApi() const override { return true; }

  void queuePush(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> queuePop(const std::string& key, bool block) override;
  std::int64_t queueLen(const std::string& key) override;
  std::vector<std::string> listKeys() override;
  void barrier(const std::string& key,
               std::int64_t world_size,
               const std::chrono::milliseconds& timeout) override;

 private:
  const pid_t pid_;
  StoreAccess access_;
};

}  // namespace unisono::python
