#pragma once

#include <memory>
#include <string>

#include <pybind11/pybind11.h>

#include "unisono/store/store.h"
#include "unisono/store/watch.h"

namespace unisono::python {

/// A function of Python's that hears of a key's changes, on a thread of the store's. All members
/// need the GIL.
class StoreWatch {
 public:
  /// The function is called with the value before and the value after, as bytes or None; what it
  /// raises is reported as of a thread. Throws Error as Store::watch() does.
  StoreWatch(std::shared_ptr<store::Store> store,
             const std::string& key,
             pybind11::function on_change);

  /// As close(); in a watch's function the main thread does it a little later.
  ~StoreWatch();

  StoreWatch(const StoreWatch&) = delete;
  StoreWatch& operator=(const StoreWatch&) = delete;
  StoreWatch(StoreWatch&&) = delete;
  StoreWatch& operator=(StoreWatch&&) = delete;

  /// Once it returns, the function does not run any more. Throws Error(kInvalidArgument) in a
  /// watch's function, for which it would wait.
  void close();

  /// For the end of Python, which functions must not outlive.
  static void close_all();

 private:
  struct Parts;

  std::unique_ptr<Parts> parts_;
};

}  // namespace unisono::python
