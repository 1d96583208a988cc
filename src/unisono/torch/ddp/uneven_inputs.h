#pragma once

#include <string>

#include "unisono/base/error.h"

namespace unisono::ddp {

/// Runs `action`; to an error with that code it adds the advice, if there is any.
template <class Action>
void explain(ErrorCode code, const std::string& advice, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.code() != code || advice.empty()) {
      throw;
    }
    throw Error(error.code(), std::string(error.what()) + "; " + advice);
  }
}

/// Runs `action`; to the error of a rank that is gone it adds what may be the reason.
template <class Action>
void explain_uneven_inputs(const Action& action) {
  explain(ErrorCode::kPeerLost,
          "if that rank had fewer batches than this one, train by run_step(), or under "
          "DistributedDataParallel's join()",
          action);
}

}  // namespace unisono::ddp
