#include "unisono/engine/mpi/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/base/thread.h"

namespace unisono::engine::mpi {
namespace {

constexpr std::array kImplementations{MpiImplementation::kOpenMpi, MpiImplementation::kMpich};

// Returns the folder of the library or program that contains this code.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&package_of), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  // A program may have been called by its bare name.
  return error ? std::filesystem::read_symlink("/proc/self/exe", error).parent_path()
               : file.parent_path();
}

}  // namespace

std::vector<MpiImplementation> built_modules() {
  std::vector<MpiImplementation> built;
  for (const MpiImplementation implementation : kImplementations) {
    if (!find_module(implementation).empty()) {
      built.push_back(implementation);
    }
  }
  return built;
}

std::string find_module(MpiImplementation implementation) {
  const std::string name = fmt::format(
      "libunisono_mpi_{}.so", implementation == MpiImplementation::kOpenMpi ? "openmpi" : "mpich");
  const std::filesystem::path own = own_folder();
  const std::array<std::filesystem::path, 4> folders{
      own, own.parent_path() / "lib" / "unisono", UNISONO_MPI_INSTALLED, UNISONO_MPI_BUILT};
  for (const std::filesystem::path& folder : folders) {
    std::error_code error;
    if (folder.is_absolute() && std::filesystem::is_regular_file(folder / name, error)) {
      return folder / name;
    }
  }
  return "";
}

const char* package_of(MpiImplementation implementation) {
  return implementation == MpiImplementation::kOpenMpi ? "libopenmpi-dev" : "libmpich-dev";
}

namespace {

// Held-back data that another rank waits for is rare, and each call takes some microseconds.
constexpr std::chrono::milliseconds kBetweenMoves{5};

// Throws Error: kNotFound without a module, kIncompatible for a module of another version.
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

// A process has a single MPI.
struct OfProcess {
  Mutex mutex;
  std::weak_ptr<MpiLibrary> library UNISONO_GUARDED_BY(mutex);
};

OfProcess& of_process() {
  static OfProcess* const instance = new OfProcess;
  return *instance;
}

}  // namespace

std::shared_ptr<MpiLibrary> MpiLibrary::open(MpiImplementation implementation) {
  OfProcess& state = of_process();
  const MutexLock lock(state.mutex);
  std::shared_ptr<MpiLibrary> library = state.library.lock();
  if (library == nullptr) {
    library = std::make_shared<MpiLibrary>(implementation);
    state.library = library;
  }
  return library;
}

MpiLibrary::MpiLibrary(MpiImplementation implementation)
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

MpiLibrary::~MpiLibrary() {
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

void MpiLibrary::keep_moving() {
  const MutexLock lock(mutex_);
  while (!is_ending_ && !has_abandoned_) {
    (void)changed_.wait_until(mutex_, Deadline::after(kBetweenMoves).time());
    if (!is_ending_ && !has_abandoned_) {
      call([this] { module_->move(); });
    }
  }
}

Handle MpiLibrary::join(const std::vector<int>& ranks, std::uint32_t number) {
  check_not_abandoned();
  const auto tag = static_cast<int>(number % static_cast<std::uint32_t>(started_.largest_tag));
  Handle communicator;
  check(call([&] {
          return module_->join(ranks.data(), static_cast<int>(ranks.size()), tag, &communicator);
        }),
        "MPI_Comm_create_group");
  return communicator;
}

void MpiLibrary::leave(Handle communicator) noexcept {
  if (!has_abandoned_) {
    // An error has no remedy here: the process is about to end, or continues without the
    // communicator.
    (void)call([&] { return module_->leave(&communicator); });
  }
}

Handle MpiLibrary::begin(const Handle& communicator, const CollectiveCall& call_of_rank) {
  check_not_abandoned();
  Handle request;
  check(call([&] { return module_->begin(&communicator, &call_of_rank, &request); }),
        "a collective operation");
  return request;
}

bool MpiLibrary::advance(Handle& request) {
  check_not_abandoned();
  bool is_done = false;
  check(call([&] { return module_->advance(&request, &is_done); }), "MPI_Test");
  return is_done;
}

void MpiLibrary::leave_out_finalize() noexcept {
  module_->give_up();
}

void MpiLibrary::abandon() noexcept {
  has_abandoned_ = true;
  leave_out_finalize();
}

void MpiLibrary::check_not_abandoned() const {
  if (has_abandoned_) {
    throw Error(ErrorCode::kClosed,
                fmt::format("an operation of this process failed while {} carried it out, and MPI "
                            "can't continue after that: start the job again",
                            to_string(implementation_)));
  }
}

void MpiLibrary::check(int error, const char* what) const {
  if (error == 0) {
    return;
  }
  std::array<char, 512> text{};
  module_->describe(error, text.data(), static_cast<int>(text.size()));
  throw Error(ErrorCode::kSystem,
              fmt::format("{} failed in {}: {}", to_string(implementation_), what, text.data()));
}

}  // namespace unisono::engine::mpi
