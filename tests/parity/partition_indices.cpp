// Prints the indices of DataPartitioner, a line for each part, for compare_partitioner.py.
//
//     partition_indices SIZE SEED FRACTION...

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/log.h"
#include "unisono/data/samplers/data_partitioner.h"

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  if (words.size() < 4) {
    std::cerr << "usage: partition_indices SIZE SEED FRACTION...\n";
    return 2;
  }
  try {
    std::vector<double> fractions;
    for (const char* const word : words.subspan(3)) {
      fractions.push_back(std::stod(word));
    }
    const unisono::DataPartitioner partitioner(
        std::stoll(words[1]),
        fractions,
        {.seed = std::stoll(words[2])},
        unisono::base::Logger("test", unisono::LogLevel::kError));
    for (int part = 0; part < partitioner.size(); ++part) {
      for (const std::int64_t index : partitioner.use(part)) {
        std::cout << index << ' ';
      }
      std::cout << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << "partition_indices: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
