#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/network.h"
#include "unisono/store/limits.h"

namespace unisono::store {

/// Clients that a server with a secret serves without the hello: PyTorch's.
struct PlainClients {
  /// Those of this machine, if they come over loopback and their socket belongs to this process's
  /// user.
  bool own_user = false;
  std::vector<net::Network> networks = {};  ///< Those with an address in one of them.
};

/// Where a server says which clients it has turned away; see TcpServerOptions.
inline constexpr const char* kTurnedAwayKey = "unisono/turned away";

struct TcpServerOptions {
  net::Address address;  ///< Where to listen; port 0 takes a free one.
  std::string secret;    ///< Clients prove that they know it. Empty: anybody who can connect.
  /// Name of the job that it serves, told to its clients; at most net::kMaxJobBytes.
  std::string job = {};
  /// Clients that say the hello do so within TLS 1.3, whose key is made from the secret.
  bool tls = false;
  /// Allows an address other than loopback without a secret.
  bool insecure = false;
  PlainClients plain_clients = {};
  Limits limits = {};
  /// A client that has not been let in by then is dropped.
  std::chrono::milliseconds admission_timeout = std::chrono::seconds(20);
  /// Keeps how many connections it has not let in, with the last one's address and the reason, for
  /// each kind of client, under kTurnedAwayKey: for the clients that wait for one of them.
  bool notes_turned_away = false;
  /// Of more than 100 warnings in this time the rest is counted, and said in one line.
  std::chrono::milliseconds log_period = std::chrono::minutes(1);
  Logger logger = Logger("store");
};

}  // namespace unisono::store
