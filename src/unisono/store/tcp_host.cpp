#include "unisono/store/tcp_host.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <thread>

#include "unisono/store/tcp_server.h"

namespace unisono::store {

TcpStoreHost::TcpStoreHost(const TcpServerOptions& options)
    : server_(loop_, options), thread_([this] {
        ::pthread_setname_np(::pthread_self(), "unisono-store");
        loop_.run();
      }) {}

TcpStoreHost::~TcpStoreHost() {
  loop_.stop();
  thread_.join();
}

void TcpStoreHost::wait_until_left(Deadline deadline) {
  constexpr std::chrono::nanoseconds kPause = std::chrono::milliseconds(5);
  while (!deadline.has_passed()) {
    const auto n_connections = std::make_shared<std::promise<std::size_t>>();
    loop_.post([this, n_connections] { n_connections->set_value(server_.n_connections()); });
    if (n_connections->get_future().get() == 0) {
      return;
    }
    std::this_thread::sleep_for(std::min(kPause, deadline.remaining()));
  }
}

}  // namespace unisono::store
