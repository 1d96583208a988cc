#include "sim_device/device_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "sim_device/sim_device.h"

namespace sim {
namespace {

constexpr std::size_t kAllBytes = kBytesPerDevice * kDeviceCount;

std::byte* reserve(int protection) {
  void* range =
      mmap(nullptr, kAllBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    throw Error("sim: cannot reserve 32 GiB of address space; raise the limit `ulimit -v`");
  }
  // A core dump would contain both ranges.
  madvise(range, kAllBytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(range);
}

// The signal handler reads both. Release in report_host_accesses() pairs with the handler's
// acquire.
std::atomic<const DeviceMemory*> reported_memory{nullptr};
struct sigaction earlier_action{};

void write_text(std::string_view text) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

void on_segmentation_fault(int /*number*/, siginfo_t* info, void* /*context*/) {
  const DeviceMemory* memory = reported_memory.load(std::memory_order_acquire);
  if (memory != nullptr && memory->contains(info->si_addr)) {
    const char digit = static_cast<char>('0' + memory->device_of(info->si_addr));
    write_text("sim: host code touched memory of device sim:");
    write_text({&digit, 1});
    write_text("; copy the tensor to the CPU, or use operators of the device\n");
  }
  // The instruction faults again and reaches the earlier handler.
  sigaction(SIGSEGV, &earlier_action, nullptr);
}

}  // namespace

DeviceMemory::DeviceMemory()
    : device_range_(reserve(PROT_NONE)), alias_range_(reserve(PROT_READ | PROT_WRITE)) {}

DeviceMemory::~DeviceMemory() {
  munmap(device_range_, kAllBytes);
  munmap(alias_range_, kAllBytes);
}

bool DeviceMemory::contains(const void* pointer) const {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto first = reinterpret_cast<std::uintptr_t>(device_range_);
  return address >= first && address < first + kAllBytes;
}

int DeviceMemory::device_of(const void* pointer) const {
  const auto offset = static_cast<const std::byte*>(pointer) - device_range_;
  return static_cast<int>(static_cast<std::size_t>(offset) / kBytesPerDevice);
}

void* DeviceMemory::alias(const void* pointer) const {
  if (!contains(pointer)) {
    throw Error("sim: a pointer to host memory was given where device memory is needed");
  }
  return alias_range_ + (static_cast<const std::byte*>(pointer) - device_range_);
}

std::byte* DeviceMemory::begin(int device) const {
  return device_range_ + kBytesPerDevice * static_cast<std::size_t>(device);
}

void report_host_accesses(const DeviceMemory& memory) {
  const DeviceMemory* expected = nullptr;
  if (!reported_memory.compare_exchange_strong(expected, &memory, std::memory_order_release)) {
    return;
  }
  struct sigaction action{};
  action.sa_sigaction = &on_segmentation_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &earlier_action);
}

}  // namespace sim
