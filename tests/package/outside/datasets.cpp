#include "unisono/datasets.h"

#include <cstddef>
#include <cstdio>
#include <vector>

#include "code_of.h"

int main() {
  const std::vector<std::byte> nothing;
  std::printf("%s %s\n",
              code_of([&] { (void)unisono::datasets::decode_image(nothing, "nothing"); }),
              code_of([&] { (void)unisono::datasets::decode_wav(nothing, "nothing"); }));
}
