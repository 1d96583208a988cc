#pragma once

#include <string>

#include "unisono/base/error.h"

namespace unisono::ddp {

/// Runs `action`; to the error of a rank that is gone it adds what may be the reason.
template <class Action>
void explain_uneven_inputs(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) {
      throw;
    }
    throw Error(error.code(),
                std::string(error.what()) +
                    "; if that rank had fewer batches than this one, train by run_step(), or under "
                    "DistributedDataParallel's join()");
  }
}

}  // namespace unisono::ddp
