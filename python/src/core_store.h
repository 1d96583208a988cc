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

/// Access to a store of the core.
struct StoreAccess {
  std::shared_ptr<store::Store> store;  ///< Shared by the groups that meet in the store.
  rendezvous::ConnectAgain connect_again;
  std::string secret = {};    ///< Empty for a store without a secret.
  std::string local_ip = {};  ///< Address of this machine on the connection to the store.
  int fd = -1;  ///< Descriptor of the connection if no rank serves the store; otherwise -1.
  std::string host = {};
  std::uint16_t port = 0;
};

/// Returns the access from a completed rendezvous. A server in this process lives as long as any
/// copy of the returned store or of a reconnected store.
[[nodiscard]] StoreAccess access_of(rendezvous::StoreSession session);

/// Returns the access restricted to the keys below `prefix`.
[[nodiscard]] StoreAccess in_part(const StoreAccess& access, const std::string& prefix);

/// Returns the access below a store of torch.distributed if there is a CoreStore behind any number
/// of PrefixStores, with their prefixes applied. Otherwise returns std::nullopt.
[[nodiscard]] std::optional<StoreAccess> find_access(c10::intrusive_ptr<c10d::Store> store);

/// A store of the core in the form of a torch.distributed store. Owned by torch. Thread-safe except
/// for setTimeout(). On the main thread, a signal handler's exception ends a wait.
///
/// Throws PyTorch's exceptions: DistStoreError if a wait times out, DistNetworkError if the
/// connection to the store is lost, ValueError for invalid arguments.
class CoreStore final : public c10d::Store {
 public:
  CoreStore(StoreAccess access, std::chrono::milliseconds timeout);
  ~CoreStore() override;

  CoreStore(const CoreStore&) = delete;
  CoreStore& operator=(const CoreStore&) = delete;
  CoreStore(CoreStore&&) = delete;
  CoreStore& operator=(CoreStore&&) = delete;

  [[nodiscard]] const StoreAccess& access() const { return access_; }

  /// Returns a store with a connection of its own.
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
