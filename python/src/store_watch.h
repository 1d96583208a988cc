#pragma once

#include <memory>
#include <string>

#include <pybind11/pybind11.h>

#include "unisono/store/store.h"

namespace unisono::python {

/// A Python function that is called at each change of a key, on a thread of the store. Owned by a
/// Python object. All members need the GIL.
class StoreWatch {
 public:
  /// The function receives the values before and after the change, as bytes or None. An exception
  /// of the function is reported as unraisable, as for a thread. Throws the errors of
  /// Store::watch().
  StoreWatch(std::shared_ptr<store::Store> store,
             const std::string& key,
             pybind11::function on_change);

  /// Calls close(). In a watch's function, the main thread closes the watch a little later.
  ~StoreWatch();

  StoreWatch(const StoreWatch&) = delete;
  StoreWatch& operator=(const StoreWatch&) = delete;
  StoreWatch(StoreWatch&&) = delete;
  StoreWatch& operator=(StoreWatch&&) = delete;

  /// Ends the watch; the function is not running any more on return. Throws Error(kInvalidArgument)
  /// in a watch's function, because the call would wait for itself.
  void close();

  /// Closes all watches at the end of Python, because functions must not outlive Python.
  static void close_all();

 private:
  struct Parts;

  std::unique_ptr<Parts> parts_;
};

}  // namespace unisono::python
