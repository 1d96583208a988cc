#include "unisono/store/tcp_host.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <thread>

#include "unisono/base/deadline.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/store/tcp_server.h"
#include "unisono/store/tcp_server_options.h"

namespace unisono::store {

struct TcpStoreHost::Impl {
  explicit Impl(const TcpServerOptions& options) : server(loop, options) {}

  net::EventLoop loop;
  TcpStoreServer server;
  std::thread thread{[this] {
    ::pthread_setname_np(::pthread_self(), "unisono-store");
    loop.run();
  }};
};

TcpStoreHost::TcpStoreHost(const TcpServerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

TcpStoreHost::~TcpStoreHost() {
  impl_->loop.stop();
  impl_->thread.join();
}

const net::Address& TcpStoreHost::address() const {
  return impl_->server.address();
}

void TcpStoreHost::wait_until_left(Deadline deadline) {
  constexpr std::chrono::nanoseconds kPause = std::chrono::milliseconds(5);
  while (!deadline.has_passed()) {
    const auto n_connections = std::make_shared<std::promise<std::size_t>>();
    impl_->loop.post(
        [this, n_connections] { n_connections->set_value(impl_->server.n_connections()); });
    if (n_connections->get_future().get() == 0) {
      return;
    }
    std::this_thread::sleep_for(std::min(kPause, deadline.remaining()));
  }
}

}  // namespace unisono::store
