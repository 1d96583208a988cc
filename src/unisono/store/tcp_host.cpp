#include "unisono/store/tcp_host.h"

#include <pthread.h>

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

}  // namespace unisono::store
