// Prints the indices of DistributedSampler, a line each, for compare_sampler.py.
//
//     sampler_indices SIZE REPLICAS RANK SHUFFLE SEED DROP_LAST EPOCH

#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <span>
#include <string>

#include "unisono/data/samplers/distributed_sampler.h"

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  if (words.size() != 8) {
    std::cerr << "usage: sampler_indices SIZE REPLICAS RANK SHUFFLE SEED DROP_LAST EPOCH\n";
    return 2;
  }
  try {
    unisono::DistributedSampler sampler(std::stoll(words[1]),
                                        std::stoi(words[2]),
                                        std::stoi(words[3]),
                                        {.shuffle = std::stoi(words[4]) != 0,
                                         .seed = std::stoll(words[5]),
                                         .drop_last = std::stoi(words[6]) != 0});
    sampler.set_epoch(std::stoll(words[7]));
    for (const std::int64_t index : sampler.indices()) {
      std::cout << index << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << "sampler_indices: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
