#pragma once

#include "unisono/base/error.h"

// Returns the name of the code of the Error that `action` throws.
template <class Action>
const char* code_of(Action action) {
  try {
    action();
  } catch (const unisono::Error& error) {
    return unisono::to_string(error.code());
  }
  return "none";
}
