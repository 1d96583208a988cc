#include "unisono/rendezvous/meet.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/loopback.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/connect_to_store.h"
#include "unisono/rendezvous/interface_choice.h"
#include "unisono/rendezvous/secret.h"
#include "unisono/rendezvous/serve_store.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {
namespace {

constexpr std::chrono::seconds kLingerTimeout{5};

}  // namespace

Meeting meet(const Config& config,
             const Assignment& assignment,
             Deadline deadline,
             const MeetingKeys& keys) {
  Meeting meeting;
  meeting.assignment = assignment;
  meeting.assignment.master_addr = meeting_host(assignment);
  meeting.secret = find_secret(config, meeting.assignment);
  std::shared_ptr<store::TcpStore> store;
  if (serves_store(assignment)) {
    ServedStore served = serve_store(config, meeting.assignment, meeting.secret, deadline, keys);
    meeting.host = std::move(served.host);
    meeting.is_second_rank_0 = served.of_twin != nullptr;
    store = std::move(served.of_twin);
  }
  if (store == nullptr) {
    store = connect_to_store(config, meeting.assignment, meeting.secret, deadline);
  }
  meeting.store_fd = assignment.uses_agent_store ? store->fd() : -1;
  meeting.local_ip = store->local_address().ip();
  meeting.store = store;
  meeting.connect_again = [options = store_options(config, meeting.assignment, meeting.secret)](
                              std::chrono::milliseconds io_timeout) {
    store::TcpStoreOptions again = options;
    again.io_timeout = io_timeout;
    again.if_refused = net::IfRefused::kGiveUp;
    return std::make_shared<store::TcpStore>(again, Deadline::after(io_timeout));
  };
  return meeting;
}

void leave_after_failure(Meeting& meeting) {
  meeting.store.reset();
  if (meeting.host != nullptr) {
    meeting.host->wait_until_left(Deadline::after(kLingerTimeout));
  }
}

Meeting meet_in(const GivenStore& given, const Config& config, const Assignment& assignment) {
  Meeting meeting;
  meeting.assignment = assignment;
  meeting.secret = given.secret ? *given.secret : find_secret(config, net::loopback_host());
  meeting.store = given.store;
  meeting.store_fd = given.fd;
  meeting.connect_again = given.connect_again;
  if (meeting.connect_again == nullptr) {
    meeting.connect_again = [store = given.store](std::chrono::milliseconds) { return store; };
  }
  if (meeting.secret.empty()) {
    meeting.local_ip = net::loopback_host();
  } else if (given.local_ip.empty()) {
    meeting.local_ip =
        choose_own_address(config.interface, net::interfaces(), net::default_route_address()).ip();
  } else {
    meeting.local_ip = given.local_ip;
  }
  return meeting;
}

}  // namespace unisono::rendezvous
