#include "unisono/engine/mpi/library.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/loaded_library.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/engine/mpi/module.h"
#include "unisono/engine/mpi/module_file.h"
#include "unisono/rendezvous/launchers/mpi_implementation.h"

namespace unisono::engine::mpi {
namespace {

using rendezvous::MpiImplementation;

// What another rank waits for is rarely held back, and each call takes some microseconds.
constexpr std::chrono::milliseconds kBetweenMoves{5};

const Module* load(MpiImplementation implementation) {
  const std::string file = find_module(implementation);
  if (file.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("backend mpi: this is a rank of {}, for which unisono was not built; "
                            "install {} and build it again",
                            to_string(implementation),
                            package_of(implementation)));
  }
  FindModule find = nullptr;
  try {
    LoadedLibrary(file).find(kFindModule, find);
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("backend mpi: its module can't be loaded: {}; is the {} that it was "
                            "built with installed?",
                            error.what(),
                            to_string(implementation)));
  }
  const Module* const module = find();
  if (module == nullptr || module->version != kModuleVersion) {
    throw Error(
        ErrorCode::kIncompatible,
        fmt::format("backend mpi: {} is of another version of unisono; build it again", file));
  }
  return module;
}

// The process has but one MPI.
struct OfProcess {
  Mutex mutex;
  std::weak_ptr<Library> library UNISONO_GUARDED_BY(mutex);
};

OfProcess& of_process() {
  static OfProcess* const instance = new OfProcess;
  return *instance;
}

}  // namespace

std::shared_ptr<Library> Library::open(MpiImplementation implementation) {
  OfProcess& state = of_process();
  const MutexLock lock(state.mutex);
  std::shared_ptr<Library> library = state.library.lock();
  if (library == nullptr) {
    library = std::make_shared<Library>(implementation);
    state.library = library;
  }
  return library;
}

Library::Library(MpiImplementation implementation)
    : implementation_(implementation), module_(load(implementation)), pid_(::getpid()) {
  check(module_->start(&started_), "MPI_Init_thread");
  if (!started_.is_for_any_thread) {
    throw Error(ErrorCode::kInvalidArgument,
                "backend mpi: the program has initialized its MPI for one thread alone; call "
                "MPI_Init_thread with MPI_THREAD_SERIALIZED at least, or leave it to unisono");
  }
  mover_ =
      start_thread("unisono-mpi", "backend mpi can't start its thread", [this] { keep_moving(); });
}

Library::~Library() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (pid_ == ::getpid()) {
    mover_.join();
  } else {
    mover_.detach();
  }
}

void Library::keep_moving() {
  const MutexLock lock(mutex_);
  while (!is_ending_ && !has_abandoned_) {
    (void)changed_.wait_until(mutex_, Deadline::after(kBetweenMoves).time());
    if (!is_ending_ && !has_abandoned_) {
      call([this] { module_->move(); });
    }
  }
}

Handle Library::join(const std::vector<int>& ranks, std::uint32_t number) {
  check_not_abandoned();
  const auto tag = static_cast<int>(number % static_cast<std::uint32_t>(started_.largest_tag));
  Handle communicator;
  check(call([&] {
          return module_->join(ranks.data(), static_cast<int>(ranks.size()), tag, &communicator);
        }),
        "MPI_Comm_create_group");
  return communicator;
}

void Library::leave(Handle communicator) noexcept {
  if (!has_abandoned_) {
    // An error can't be helped here: the process is about to end, or goes on without.
    (void)call([&] { return module_->leave(&communicator); });
  }
}

Handle Library::begin(const Handle& communicator, const CollectiveCall& call_of_rank) {
  check_not_abandoned();
  Handle request;
  check(call([&] { return module_->begin(&communicator, &call_of_rank, &request); }),
        "a collective operation");
  return request;
}

bool Library::advance(Handle& request) {
  check_not_abandoned();
  bool is_done = false;
  check(call([&] { return module_->advance(&request, &is_done); }), "MPI_Test");
  return is_done;
}

void Library::leave_out_finalize() noexcept {
  module_->give_up();
}

void Library::abandon() noexcept {
  has_abandoned_ = true;
  leave_out_finalize();
}

void Library::check_not_abandoned() const {
  if (has_abandoned_) {
    throw Error(ErrorCode::kClosed,
                fmt::format("an operation of this process failed while {} carried it out, and "
                            "there is no way back from that: start the job again",
                            to_string(implementation_)));
  }
}

void Library::check(int error, const char* what) const {
  if (error == 0) {
    return;
  }
  std::array<char, 512> text{};
  module_->describe(error, text.data(), static_cast<int>(text.size()));
  throw Error(ErrorCode::kSystem,
              fmt::format("{} failed in {}: {}", to_string(implementation_), what, text.data()));
}

}  // namespace unisono::engine::mpi
