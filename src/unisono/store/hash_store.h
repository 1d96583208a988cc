#pragma once

#include <memory>
#include <string>

#include "unisono/store/limits.h"
#include "unisono/store/map_store.h"
#include "unisono/store/watch.h"

namespace unisono::store {

/// A store within this process: its ranks are threads that share the object. Thread-safe; a wait
/// holds nobody up.
///
/// A call that adds to what is no number, or would exceed the limits, throws
/// Error(kInvalidArgument) and changes nothing.
///
/// watch() tells of each change, in order, from one thread of the store.
class HashStore final : public MapStore {
 public:
  explicit HashStore(const Limits& limits = {});

  /// No call is under way and no watch is left.
  ~HashStore() override;

  HashStore(const HashStore&) = delete;
  HashStore& operator=(const HashStore&) = delete;
  HashStore(HashStore&&) = delete;
  HashStore& operator=(HashStore&&) = delete;

  [[nodiscard]] std::unique_ptr<Watch> watch(const std::string& key,
                                             WatchCallback on_change) override;

 private:
  class Impl;

  bool run(const MapCall& call) override;

  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::store
