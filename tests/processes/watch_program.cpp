// Watches a key through several connections: watch_program PORT SECRET KEY CONNECTIONS. Prints each
// change until stdin is closed.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"

#include "support/process.h"

namespace unisono::test {
namespace {

std::string text_of(const std::optional<std::string>& value) {
  return value ? *value : "nothing";
}

void watch(std::uint16_t port, const std::string& secret, const std::string& key, int n) {
  std::vector<std::unique_ptr<store::TcpStore>> stores;
  std::vector<std::unique_ptr<store::Watch>> watches;
  for (int i = 0; i < n; ++i) {
    stores.push_back(std::make_unique<store::TcpStore>(
        store::TcpStoreOptions{.host = "127.0.0.1", .port = port, .secret = secret},
        Deadline::after(std::chrono::seconds(30))));
    watches.push_back(stores.back()->watch(key, [i](const store::KeyChange& change) {
      print("%d: %s was %s is %s\n",
            i,
            change.key.c_str(),
            text_of(change.before).c_str(),
            text_of(change.after).c_str());
    }));
  }
  print("watching\n");
  wait_for_end_of_stdin();
  while (!watches.empty()) {
    watches.pop_back();
  }
}

}  // namespace
}  // namespace unisono::test

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: watch_program PORT SECRET KEY CONNECTIONS\n");
    return 2;
  }
  try {
    unisono::test::watch(
        static_cast<std::uint16_t>(std::stoi(argv[1])), argv[2], argv[3], std::stoi(argv[4]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "watch_program: %s\n", error.what());
    return 1;
  }
}
