// The program starts two processes, which exchange messages and add up numbers.
//
//     point_to_point                  the three functions below, in this order
//     point_to_point blocking         one function: blocking, immediate or all_reduce

#include <cstdio>
#include <exception>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <unisono/unisono.h>

namespace {

using unisono::as_buffer;

void print_data(int rank, const std::vector<float>& values) {
  std::printf("Rank  %d  has data  %.1f\n", rank, static_cast<double>(values[0]));
}

// Each call blocks until the message is sent or received.
void blocking(unisono::ProcessGroup& group) {
  std::vector<float> values{0.0F};
  if (group.rank() == 0) {
    values[0] += 1;
    group.send(as_buffer(std::span(values)), 1);
  } else {
    group.recv(as_buffer(std::span(values)), 0);
  }
  print_data(group.rank(), values);
}

// Until wait() returns, the program must not write a buffer that is sent, nor use a buffer that is
// received.
void immediate(unisono::ProcessGroup& group) {
  std::vector<float> values{0.0F};
  unisono::Work request;
  if (group.rank() == 0) {
    values[0] += 1;
    request = group.send_async(as_buffer(std::span(values)), 1);
    std::printf("Rank 0 started sending\n");
  } else {
    request = group.recv_async(as_buffer(std::span(values)), 0);
    std::printf("Rank 1 started receiving\n");
  }
  request.wait();
  print_data(group.rank(), values);
}

// Adds up a number over the ranks of a group.
void all_reduce(unisono::ProcessGroup& world) {
  const auto group = world.new_group(std::vector{0, 1});
  std::vector<float> values{1.0F};
  group->all_reduce(as_buffer(std::span(values)), {.op = unisono::kSum});
  print_data(world.rank(), values);
}

const std::map<std::string, void (*)(unisono::ProcessGroup&)> kFunctions{
    {"blocking", blocking}, {"immediate", immediate}, {"all_reduce", all_reduce}};

// The body of each process.
void init_process(int /*rank*/, const std::vector<std::string>& names) {
  const auto group = unisono::init_process_group();
  for (const std::string& name : names) {
    kFunctions.at(name)(*group);
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> names(argv + 1, argv + argc);
    for (const std::string& name : names) {
      if (!kFunctions.contains(name)) {
        throw std::invalid_argument("no function " + name +
                                    "; there are blocking, immediate, all_reduce");
      }
    }
    if (names.empty()) {
      names = {"blocking", "immediate", "all_reduce"};
    }
    unisono::spawn(init_process, std::tuple(names), {.nprocs = 2});
    return 0;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "point_to_point: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "point_to_point: %s\n", error.what());
    return 1;
  }
}
