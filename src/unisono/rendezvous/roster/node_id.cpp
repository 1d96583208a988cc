#include "unisono/rendezvous/roster/node_id.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>

#include "unisono/base/config.h"

namespace unisono::rendezvous {
namespace {

// Two machines never share a boot id, so an inode number beside it names one namespace.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id.empty() ? host_name() : id;
}

ino_t namespace_of(const char* path) {
  struct stat status{};
  return ::stat(path, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

std::string node_id(const Config& config) {
  if (!config.node_id.empty()) {
    return config.node_id;
  }
  return fmt::format("{}/net{}/pid{}/uid{}",
                     boot_id(),
                     namespace_of("/proc/self/ns/net"),
                     namespace_of("/proc/self/ns/pid"),
                     ::getuid());
}

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::string host_name() {
  constexpr std::size_t kMaxBytes = 256;
  std::array<char, kMaxBytes> name{};
  const bool is_known = ::gethostname(name.data(), name.size() - 1) == 0;
  return is_known && name[0] != '\0' ? name.data() : "unknown host";
}

}  // namespace unisono::rendezvous
