#include "unisono/transport/shm/node_memory.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cerrno>
#include <map>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"

namespace unisono::shm {

bool read_process(pid_t pid, std::uint64_t address, std::span<std::byte> into) noexcept {
  while (!into.empty()) {
    const iovec local{.iov_base = into.data(), .iov_len = into.size()};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): it is an address of the other process.
    const iovec remote{.iov_base = reinterpret_cast<void*>(address), .iov_len = into.size()};
    const ssize_t n_bytes = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (n_bytes <= 0) {
      return false;
    }
    into = into.subspan(static_cast<std::size_t>(n_bytes));
    address += static_cast<std::uint64_t>(n_bytes);
  }
  return true;
}

bool ProcessMemory::is_readable() noexcept {
  if (state_ == State::kUnknown) {
    state_ = is_that_process() ? State::kReadable : State::kNot;
  }
  return state_ == State::kReadable;
}

bool ProcessMemory::is_that_process() const noexcept {
  // Pairs with the release in the Endpoint of the proof's owner: the address is visible with the
  // value.
  const std::uint64_t expected = proof_.value.load(std::memory_order_acquire);
  std::uint64_t found = 0;
  return expected != 0 && read(proof_.address, std::as_writable_bytes(std::span(&found, 1))) &&
         found == expected;
}

namespace {

constexpr std::uint64_t kMagic = 0x31454d4f4e494e55;  // "UNINOME1"

// The mappings of this process, by the file's inode. A process maps each file once and ranks that
// are threads share the mapping, so that tools which watch memory accesses see all accesses.
class Mappings {
 public:
  template <class Make>
  std::shared_ptr<const Arena> find_or_make(ino_t inode, Make make) {
    const MutexLock lock(mutex_);
    std::erase_if(files_, [](const auto& entry) { return entry.second.expired(); });
    std::shared_ptr<const Arena> file = files_[inode].lock();
    if (file == nullptr) {
      file = std::make_shared<const Arena>(make());
      files_[inode] = file;
    }
    return file;
  }

 private:
  Mutex mutex_;
  // A mapped file keeps its inode, so no other file has the number.
  std::map<ino_t, std::weak_ptr<const Arena>> files_ UNISONO_GUARDED_BY(mutex_);
};

// Never destroyed: a process may leave its job during static destruction.
Mappings& mappings() {
  static Mappings* const instance = new Mappings;
  return *instance;
}

struct stat status_of(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) {
    throw system_error("getting the size of a node's shared memory", errno);
  }
  return status;
}

std::int64_t round_up(std::int64_t n_bytes, std::int64_t unit) {
  return (n_bytes + unit - 1) / unit * unit;
}

}  // namespace

struct alignas(64) NodeMemory::Seat {
  std::atomic<std::uint32_t> state;
  std::int64_t offset;  // Offset of the rank's arena in the file.
  std::int64_t n_bytes;
};

// Followed by the seats.
struct alignas(64) NodeMemory::Header {
  std::uint64_t magic;
  std::uint64_t n_ranks;
  Key key;
};

NodeMemory NodeMemory::create(std::span<const std::int64_t> arena_bytes) {
  std::vector<std::int64_t> offsets;
  auto end = static_cast<std::int64_t>(sizeof(Header) + arena_bytes.size() * sizeof(Seat));
  for (const std::int64_t n_bytes : arena_bytes) {
    const auto place = static_cast<std::int64_t>(offsets.size() + 1) * kHugePageBytes;
    offsets.push_back(round_up(end - place % kPlacesBytes, kPlacesBytes) + place % kPlacesBytes);
    end = offsets.back() + n_bytes;
  }
  auto file = std::make_shared<const Arena>(Arena::create(round_up(end, kHugePageBytes)));
  const ino_t inode = status_of(file->fd()).st_ino;
  NodeMemory memory(mappings().find_or_make(inode, [&] { return *file; }));
  Header& header = memory.header();
  if (::getrandom(header.key.data(), header.key.size(), 0) !=
      static_cast<ssize_t>(header.key.size())) {
    throw system_error("making the key of a node's shared memory", errno);
  }
  header.magic = kMagic;
  header.n_ranks = arena_bytes.size();
  for (std::size_t index = 0; index < arena_bytes.size(); ++index) {
    memory.seat(index).offset = offsets[index];
    memory.seat(index).n_bytes = arena_bytes[index];
  }
  return memory;
}

NodeMemory NodeMemory::map(Fd file, std::size_t n_ranks) {
  const struct stat status = status_of(file.get());
  const auto n_header_bytes = static_cast<std::int64_t>(sizeof(Header) + n_ranks * sizeof(Seat));
  const Error corrupt(ErrorCode::kCorruptData,
                      "a node's shared memory is not what its ranks need; do all run one build?");
  if (status.st_size < n_header_bytes) {
    throw Error(corrupt);
  }
  NodeMemory memory(mappings().find_or_make(
      status.st_ino, [&] { return Arena::map(std::move(file), status.st_size); }));
  if (memory.header().magic != kMagic || memory.header().n_ranks != n_ranks) {
    throw Error(corrupt);
  }
  for (std::size_t index = 0; index < n_ranks; ++index) {
    const Seat& seat = memory.seat(index);
    if (seat.offset < n_header_bytes || seat.n_bytes <= 0 || seat.offset > status.st_size ||
        seat.n_bytes > status.st_size - seat.offset) {
      throw Error(corrupt);
    }
  }
  return memory;
}

NodeMemory::Header& NodeMemory::header() const {
  return *reinterpret_cast<Header*>(file_->data());
}

NodeMemory::Seat& NodeMemory::seat(std::size_t index) const {
  return reinterpret_cast<Seat*>(file_->data() + sizeof(Header))[index];
}

std::shared_ptr<const Arena> NodeMemory::arena(std::size_t index) const {
  const Seat& place = seat(index);
  return std::make_shared<const Arena>(file_->part(place.offset, place.n_bytes));
}

std::size_t NodeMemory::n_ranks() const {
  return header().n_ranks;
}

const NodeMemory::Key& NodeMemory::key() const {
  return header().key;
}

SeatState NodeMemory::state(std::size_t index) const {
  return static_cast<SeatState>(seat(index).state.load(std::memory_order_acquire));
}

void NodeMemory::leave(std::size_t index) const {
  seat(index).state.store(static_cast<std::uint32_t>(SeatState::kLeft), std::memory_order_release);
}

bool NodeMemory::note_gone(std::size_t index) const {
  auto expected = static_cast<std::uint32_t>(SeatState::kTaken);
  return seat(index).state.compare_exchange_strong(
      expected, static_cast<std::uint32_t>(SeatState::kGone), std::memory_order_acq_rel);
}

}  // namespace unisono::shm
