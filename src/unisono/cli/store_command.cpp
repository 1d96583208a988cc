#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>  // IWYU pragma: keep (EPOLLIN)

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/launch/process/signals.h"
#include "unisono/launch/run.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/host.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/secret.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_server.h"
#include "unisono/store/tcp_store.h"

namespace unisono::cli {
namespace {

constexpr double kLeastTimeoutSeconds = 0.001;
constexpr double kMostTimeoutSeconds = 1e6;

struct StoreArguments {
  std::string host = net::loopback_host();
  std::uint16_t port = rendezvous::kDefaultMasterPort;
  double timeout_s = 10;
  bool is_insecure = false;
  // Options of `serve`.
  bool allows_plain_clients = false;
  std::vector<std::string> plain_networks;
  // Options of the other commands.
  std::string key;
  std::string value;
  std::string prefix;
  bool shows_values = false;
  std::uint64_t n_changes = 0;
};

store::PlainClients plain_clients_of(const StoreArguments& arguments) {
  store::PlainClients clients{.own_user = arguments.allows_plain_clients};
  for (const std::string& text : arguments.plain_networks) {
    const std::optional<net::Network> network = net::Network::parse(text);
    if (!network) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("--plain-clients-from {}: no network; write it as 10.0.0.0/8", text));
    }
    clients.networks.push_back(*network);
  }
  return clients;
}

std::string secret_of(const StoreArguments& arguments, const base::Config& config) {
  return arguments.is_insecure ? "" : rendezvous::find_secret(config, arguments.host);
}

int serve(const StoreArguments& arguments) {
  const base::Config config = read_config(process_environment());
  const std::string secret = secret_of(arguments, config);
  launch::raise_descriptor_limit();
  launch::SignalFd signals({SIGINT, SIGTERM}, {});
  net::EventLoop loop;
  const store::TcpStoreServer server(
      loop,
      {.address = net::resolve(arguments.host, arguments.port).front(),
       .secret = secret,
       .tls = config.tls,
       .insecure = arguments.is_insecure,
       .plain_clients = plain_clients_of(arguments),
       .logger = base::Logger("store", config.log_level)});
  loop.add(signals.fd(), EPOLLIN, [&](std::uint32_t) {
    if (signals.next()) {
      loop.stop();
    }
  });
  fmt::print("listening on {}\n", server.address().to_string());
  std::fflush(stdout);
  loop.run();
  loop.remove(signals.fd());
  return 0;
}

Deadline deadline_of(const StoreArguments& arguments) {
  return Deadline::after(std::chrono::duration<double>(arguments.timeout_s));
}

std::unique_ptr<store::TcpStore> connect(const StoreArguments& arguments) {
  const base::Config config = read_config(process_environment());
  return std::make_unique<store::TcpStore>(
      store::TcpStoreOptions{.host = arguments.host,
                             .port = arguments.port,
                             .secret = secret_of(arguments, config),
                             .tls = config.tls},
      deadline_of(arguments));
}

int get(const StoreArguments& arguments) {
  fmt::print("{}\n", connect(arguments)->get(arguments.key, deadline_of(arguments)));
  return 0;
}

int set(const StoreArguments& arguments) {
  const auto store = connect(arguments);
  store->set(arguments.key, arguments.value);
  // set() has no reply; the reply to check() arrives after set() was executed.
  (void)store->check(std::vector<std::string>{arguments.key});
  return 0;
}

// Escapes the bytes of a key or a value for a line of text.
std::string escaped(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (byte < 0x20 || byte >= 0x7F) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text;
}

std::string quoted(const std::string& value) {
  return '"' + escaped(value) + '"';
}

int list(const StoreArguments& arguments) {
  const auto store = connect(arguments);
  std::vector<std::string> keys = store->list_keys();
  std::sort(keys.begin(), keys.end());
  for (const std::string& key : keys) {
    if (!key.starts_with(arguments.prefix)) {
      continue;
    }
    if (!arguments.shows_values) {
      fmt::print("{}\n", escaped(key));
    } else if (const std::optional<std::string> value = store->try_get(key)) {
      fmt::print("{} = {}\n", escaped(key), quoted(*value));
    }
  }
  return 0;
}

std::string describe(const std::optional<std::string>& value) {
  return value ? quoted(*value) : "none";
}

int watch(const StoreArguments& arguments) {
  const auto store = connect(arguments);
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t n_changes = 0;
  const auto print_change = [&](const store::KeyChange& change) {
    const std::lock_guard lock(mutex);
    if (arguments.n_changes > 0 && n_changes == arguments.n_changes) {
      return;
    }
    fmt::print(
        "{}: {} -> {}\n", escaped(change.key), describe(change.before), describe(change.after));
    std::fflush(stdout);
    ++n_changes;
    changed.notify_one();
  };
  const std::unique_ptr<store::Watch> held = store->watch(arguments.key, print_change);
  std::unique_lock lock(mutex);
  const auto is_enough = [&] {
    return arguments.n_changes > 0 && n_changes >= arguments.n_changes;
  };
  while (!changed.wait_for(lock, std::chrono::seconds(1), is_enough)) {
    lock.unlock();
    (void)store->num_keys();  // Throws if the store is gone.
    lock.lock();
  }
  return 0;
}

CLI::App* add_command(CLI::App& app,
                      const char* name,
                      const char* help,
                      StoreArguments& arguments) {
  CLI::App* const command = app.add_subcommand(name, help);
  command->add_option("-H,--host", arguments.host, "Address of the store")
      ->type_name("HOST")
      ->capture_default_str();
  command->add_option("-p,--port", arguments.port, "Port of the store")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  return command;
}

CLI::App* add_client(CLI::App& app, const char* name, const char* help, StoreArguments& arguments) {
  CLI::App* const command = add_command(app, name, help, arguments);
  command->add_option("--timeout", arguments.timeout_s, "Seconds to wait for store and key")
      ->capture_default_str()
      ->check(CLI::Range(kLeastTimeoutSeconds, kMostTimeoutSeconds));
  command->add_flag(
      "--insecure", arguments.is_insecure, "Use a store without a secret, wherever it listens");
  return command;
}

}  // namespace

int store_command(const CommandLine& line) {
  StoreArguments arguments;
  CLI::App app("Serves a key-value store in PyTorch's protocol, or queries one", "unisono store");
  app.require_subcommand(1);
  CLI::App* const serve_app = add_command(app, "serve", "Serve a store until SIGTERM", arguments);
  serve_app->add_flag(
      "--allow-plain-clients",
      arguments.allows_plain_clients,
      "Also serve clients without a secret that connect over loopback from this user");
  serve_app->add_option("--plain-clients-from",
                        arguments.plain_networks,
                        "Serve clients without a secret from this network, as 10.0.0.0/8");
  serve_app->add_flag(
      "--insecure", arguments.is_insecure, "Serve all clients that can connect, without a secret");
  CLI::App* const get_app =
      add_client(app, "get", "Print a key's value, once it is set", arguments);
  get_app->add_option("key", arguments.key)->required();
  CLI::App* const set_app = add_client(app, "set", "Set a key's value", arguments);
  set_app->add_option("key", arguments.key)->required();
  set_app->add_option("value", arguments.value)->required();
  CLI::App* const list_app = add_client(app, "list", "Print the keys", arguments);
  list_app->add_option("prefix", arguments.prefix, "Only keys that begin with this");
  list_app->add_flag("--values", arguments.shows_values, "Print the values, too");
  CLI::App* const watch_app =
      add_client(app, "watch", "Print the changes of a key, until ^C", arguments);
  watch_app->add_option("key", arguments.key)->required();
  watch_app->add_option("--count", arguments.n_changes, "End after this many changes");
  add_examples(*serve_app,
               {"unisono store serve",
                "unisono store serve --host 0.0.0.0 --port 29500 --plain-clients-from 10.0.0.0/8"});
  add_examples(
      *get_app,
      {"unisono store get some/key", "unisono store get some/key --host node0 --timeout 60"});
  add_examples(
      *set_app,
      {"unisono store set some/key \"some value\"", "unisono store set some/key 1 --host node0"});
  add_examples(*list_app, {"unisono store list", "unisono store list some/ --values"});
  add_examples(*watch_app,
               {"unisono store watch some/key", "unisono store watch some/key --count 3"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  if (serve_app->parsed()) {
    return serve(arguments);
  }
  if (get_app->parsed()) {
    return get(arguments);
  }
  if (set_app->parsed()) {
    return set(arguments);
  }
  return list_app->parsed() ? list(arguments) : watch(arguments);
}

}  // namespace unisono::cli
