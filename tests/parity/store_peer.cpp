// Our side of compare_store_*.py: serves a store, or runs a client that reads commands from stdin.
//
//   store_peer serve [SECRET]               prints its port; ends when stdin ends
//   store_peer client HOST PORT [SECRET]    one call per line of stdin, one line of answer each
//
// Texts in lines are hexadecimal after an "x". With a secret the server also accepts clients
// without a secret.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/net/address.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"

namespace {

using unisono::Deadline;
using unisono::store::Store;
using unisono::store::TcpStore;
using Words = std::vector<std::string>;

constexpr std::string_view kDigits = "0123456789abcdef";

std::string encode(const std::string& text) {
  std::string hex = "x";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string decode(const std::string& hex) {
  std::string text;
  for (std::size_t i = 1; i + 1 < hex.size(); i += 2) {
    text += static_cast<char>(kDigits.find(hex[i]) << 4 | kDigits.find(hex[i + 1]));
  }
  return text;
}

std::int64_t number(const std::string& word) {
  return std::stoll(word);
}

Deadline after_ms(const std::string& word) {
  return Deadline::after(std::chrono::milliseconds(number(word)));
}

Words decode_from(const Words& words, std::size_t first) {
  Words texts;
  for (std::size_t i = first; i < words.size(); ++i) {
    texts.push_back(decode(words[i]));
  }
  return texts;
}

std::string encode_all(const Words& texts) {
  std::string line;
  for (const std::string& text : texts) {
    line += (line.empty() ? "" : " ") + encode(text);
  }
  return line;
}

std::string encode_optional(const std::optional<std::string>& text) {
  return text ? encode(*text) : "none";
}

// Each call takes the words after its name.
using Call = std::function<std::string(Store&, const Words&)>;

const std::map<std::string, Call>& calls() {
  static const std::map<std::string, Call> kCalls{
      {"set",
       [](Store& store, const Words& w) {
         store.set(decode(w[0]), decode(w[1]));
         return "ok";
       }},
      {"append",
       [](Store& store, const Words& w) {
         store.append(decode(w[0]), decode(w[1]));
         return "ok";
       }},
      {"get",
       [](Store& store, const Words& w) {
         return encode(store.get(decode(w[1]), after_ms(w[0])));
       }},
      {"try_get",
       [](Store& store, const Words& w) { return encode_optional(store.try_get(decode(w[0]))); }},
      {"add",
       [](Store& store, const Words& w) {
         return std::to_string(store.add(decode(w[0]), number(w[1])));
       }},
      {"check",
       [](Store& store, const Words& w) {
         return store.check(decode_from(w, 0)) ? "true" : "false";
       }},
      {"wait",
       [](Store& store, const Words& w) {
         store.wait(decode_from(w, 1), after_ms(w[0]));
         return "ok";
       }},
      {"compare_set",
       [](Store& store, const Words& w) {
         return encode(store.compare_set(decode(w[0]), decode(w[1]), decode(w[2])));
       }},
      {"delete_key",
       [](Store& store, const Words& w) {
         return store.delete_key(decode(w[0])) ? "true" : "false";
       }},
      {"num_keys", [](Store& store, const Words&) { return std::to_string(store.num_keys()); }},
      {"list_keys", [](Store& store, const Words&) { return encode_all(store.list_keys()); }},
      {"multi_get",
       [](Store& store, const Words& w) {
         return encode_all(store.multi_get(decode_from(w, 1), after_ms(w[0])));
       }},
      {"multi_set",
       [](Store& store, const Words& w) {
         std::vector<Store::KeyValue> pairs;
         for (std::size_t i = 0; i + 1 < w.size(); i += 2) {
           pairs.emplace_back(decode(w[i]), decode(w[i + 1]));
         }
         store.multi_set(pairs);
         return "ok";
       }},
      {"queue_push",
       [](Store& store, const Words& w) {
         store.queue_push(decode(w[0]), decode(w[1]));
         return "ok";
       }},
      {"queue_pop",
       [](Store& store, const Words& w) {
         return encode(store.queue_pop(decode(w[1]), after_ms(w[0])));
       }},
      {"try_queue_pop",
       [](Store& store, const Words& w) {
         return encode_optional(store.try_queue_pop(decode(w[0])));
       }},
      {"queue_len",
       [](Store& store, const Words& w) { return std::to_string(store.queue_len(decode(w[0]))); }},
      {"barrier", [](Store& store, const Words& w) {
         store.barrier(decode(w[1]), number(w[2]), after_ms(w[0]));
         return "ok";
       }}};
  return kCalls;
}

std::string answer(Store& store, const std::string& line) {
  std::istringstream stream(line);
  std::string name;
  stream >> name;
  Words words;
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  try {
    return calls().at(name)(store, words);
  } catch (const unisono::Error& error) {
    return std::string("error ") + to_string(error.code()) + " " + error.what();
  }
}

int serve(const std::string& secret) {
  const unisono::store::TcpStoreHost host({.address = unisono::net::resolve("127.0.0.1", 0)[0],
                                           .secret = secret,
                                           .plain_clients = {.own_user = !secret.empty()}});
  std::cout << host.address().port() << '\n' << std::flush;
  for (std::string line; std::getline(std::cin, line);) {
  }
  return 0;
}

int run_client(const std::string& host, const std::string& port, const std::string& secret) {
  TcpStore store({.host = host, .port = static_cast<std::uint16_t>(number(port)), .secret = secret},
                 Deadline::after(std::chrono::seconds(30)));
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(store, line) << '\n' << std::flush;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Words words(argv + 1, argv + argc);
  const std::string command = words.empty() ? "" : words[0];
  words.resize(std::max(words.size(), std::size_t{4}));
  try {
    if (command == "serve") {
      return serve(words[1]);
    }
    if (command == "client") {
      return run_client(words[1], words[2], words[3]);
    }
  } catch (const std::exception& error) {
    std::cerr << "store_peer: " << error.what() << '\n';
    return 1;
  }
  std::cerr << "usage: store_peer serve [SECRET] | client HOST PORT [SECRET]\n";
  return 2;
}
