#include "store_watch.h"

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <pybind11/pybind11.h>

#include "unisono/base/error.h"
#include "unisono/store/store.h"

#include "interrupt.h"

namespace unisono::python {
namespace {

namespace py = pybind11;

thread_local bool is_in_function = false;

py::object value_of(const std::optional<std::string>& value) {
  return value ? py::object(py::bytes(*value)) : py::none();
}

// The open watches, guarded by the GIL.
std::set<StoreWatch*>& open_watches() {
  static auto* const instance = new std::set<StoreWatch*>;
  return *instance;
}

}  // namespace

struct StoreWatch::Parts {
  std::shared_ptr<store::Store> store;
  py::function on_change;
  std::unique_ptr<store::Watch> watch = {};
  const pid_t pid = ::getpid();

  void tell(const store::KeyChange& change) {
    if (is_python_ending()) {
      return;
    }
    const py::gil_scoped_acquire acquire;
    is_in_function = true;
    try {
      on_change(value_of(change.before), value_of(change.after));
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable(on_change);
    }
    is_in_function = false;
  }

  void stop() {
    if (::getpid() != pid) {
      (void)watch.release();  // In a child of fork() there is no thread to end.
      return;
    }
    // Releases the GIL, because the function may be about to take the GIL.
    const py::gil_scoped_release released;
    watch.reset();
  }
};

StoreWatch::StoreWatch(std::shared_ptr<store::Store> store,
                       const std::string& key,
                       py::function on_change)
    : parts_(new Parts{.store = std::move(store), .on_change = std::move(on_change)}) {
  {
    const py::gil_scoped_release released;
    parts_->watch = parts_->store->watch(
        key, [parts = parts_.get()](const store::KeyChange& change) { parts->tell(change); });
  }
  open_watches().insert(this);
}

StoreWatch::~StoreWatch() {
  if (!is_in_function) {
    close();
    return;
  }
  open_watches().erase(this);
  const auto destroy = [](void* parts) {
    const std::unique_ptr<Parts> owner(static_cast<Parts*>(parts));
    owner->stop();
    return 0;
  };
  // If Python's queue of pending calls is full, the watch stays until the process ends.
  (void)Py_AddPendingCall(destroy, parts_.release());
}

void StoreWatch::close() {
  if (is_in_function) {
    throw Error(ErrorCode::kInvalidArgument,
                "unisono.Watch: close() is called by a watch's function, for which it would wait");
  }
  open_watches().erase(this);
  if (parts_ != nullptr) {
    const std::unique_ptr<Parts> parts = std::move(parts_);
    parts->stop();
  }
}

void StoreWatch::close_all() {
  while (!open_watches().empty()) {
    (*open_watches().begin())->close();
  }
}

}  // namespace unisono::python
