// Runs one task on a file store: file_store_program TASK PATH [ARGUMENTS...].
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/store/file_store.h"

#include "processes/payload.h"
#include "support/process.h"

namespace unisono::test {
namespace {

using Arguments = std::vector<std::string>;
using store::FileStore;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(30));
}

// Takes the next rank and prints the names of all ranks in order.
void meet(FileStore& store, const Arguments& arguments) {
  const std::int64_t world_size = std::stoll(arguments.at(0));
  const std::int64_t rank = store.add("rank", 1) - 1;
  store.set("name/" + std::to_string(rank), "rank " + std::to_string(rank));
  std::vector<std::string> keys;
  for (std::int64_t other = 0; other < world_size; ++other) {
    keys.push_back("name/" + std::to_string(other));
  }
  for (const std::string& name : store.multi_get(keys, soon())) {
    print("%s\n", name.c_str());
  }
  store.barrier("met", world_size, soon());
  print("I am %lld\n", static_cast<long long>(rank));
}

// Writes as fast as possible and prints each completed step. Most tests kill the process meanwhile.
void churn(FileStore& store, const Arguments& arguments) {
  const std::string& name = arguments.at(0);
  const std::size_t n_large_bytes = std::stoul(arguments.at(1));
  const int n_steps = std::stoi(arguments.at(2));
  for (int step = 0; step < n_steps; ++step) {
    store.set(name + "/" + std::to_string(step), payload(name, step, n_large_bytes));
    print("set %d\n", step);
    store.add("total", 1);
    print("added %d\n", step);
    store.queue_push("q", name + ":" + std::to_string(step));
    print("pushed %d\n", step);
  }
  print("churned\n");
}

void pop(FileStore& store, const Arguments& arguments) {
  for (int n = std::stoi(arguments.at(0)); n > 0; --n) {
    print("%s\n", store.queue_pop("q", soon()).c_str());
  }
}

// Fills the disk, and then checks that all earlier writes are still present.
void fill(FileStore& store, const Arguments& arguments) {
  std::map<std::string, std::string> written;
  try {
    for (int step = 0;; ++step) {
      const std::string key = std::to_string(step);
      const std::string value = payload("fill", step, 20'000);
      store.set(key, value);
      written[key] = value;
    }
  } catch (const Error& error) {
    print("%s: %s\n", to_string(error.code()), error.what());
  }
  FileStore again({.path = arguments.at(0)}, soon());
  for (FileStore* const handle : {&store, &again}) {
    bool is_whole = handle->num_keys() == static_cast<std::int64_t>(written.size());
    for (const auto& [key, value] : written) {
      is_whole = is_whole && handle->get(key, soon()) == value;
    }
    print("%s\n", is_whole && written.size() > 10 ? "all there" : "something is wrong");
  }
}

int run(const std::string& task, const Arguments& arguments) {
  const std::map<std::string, void (*)(FileStore&, const Arguments&)> tasks{
      {"meet", meet}, {"churn", churn}, {"pop", pop}, {"fill", fill}};
  try {
    FileStore store({.path = arguments.at(0)}, soon());
    print("open\n");
    const Arguments rest(arguments.begin() + (task == "fill" ? 0 : 1), arguments.end());
    tasks.at(task)(store, rest);
    return 0;
  } catch (const Error& error) {
    print("%s: %s\n", to_string(error.code()), error.what());
  } catch (const std::exception& error) {
    print("%s\n", error.what());
  }
  return 1;
}

}  // namespace
}  // namespace unisono::test

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: file_store_program TASK PATH [ARGUMENTS...]\n");
    return 2;
  }
  return unisono::test::run(argv[1], {argv + 2, argv + argc});
}
