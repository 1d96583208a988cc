#pragma once

#include <span>
#include <string>
#include <vector>

#include "unisono/comm/side_store.h"
#include "unisono/engine/native/whereabouts.h"

namespace unisono::comm {

/// Whereabouts in the job's store, a key for each rank.
class StoredWhereabouts final : public engine::Whereabouts {
 public:
  /// `store` outlives it. `prefix` stands before the keys of one group.
  StoredWhereabouts(SideStore& store, std::string prefix, int rank);

  void tell(std::span<const engine::CallRecord> calls) noexcept override;
  [[nodiscard]] std::vector<engine::CallRecord> ask(int rank) noexcept override;

 private:
  [[nodiscard]] std::string key_of(int rank) const;

  SideStore& store_;
  std::string prefix_;
  int rank_;
};

}  // namespace unisono::comm
