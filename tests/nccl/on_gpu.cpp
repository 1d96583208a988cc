#include "on_gpu.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

namespace unisono::test {
namespace {

// The loader then has the library that anybody asks for by its name.
void* load(const char* path) {
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    std::exit(1);
  }
  return library;
}

void* nccl = nullptr;

}  // namespace

World nccl_world(int world_size) {
  World world = one_node(world_size);
  world.backend = "nccl";
  return world;
}

NcclFault::NcclFault(const char* name) {
  ::setenv("FAKE_NCCL_FAULT", name, 1);
}

NcclFault::~NcclFault() {
  ::unsetenv("FAKE_NCCL_FAULT");
}

int n_aborted() {
  return reinterpret_cast<int (*)()>(::dlsym(nccl, "fake_nccl_n_aborted"))();
}

}  // namespace unisono::test

int main(int argc, char** argv) {
  ::setenv("FAKE_CUDA_GPUS", "4", 1);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  unisono::test::load(FAKE_CUDA);
  unisono::test::nccl = unisono::test::load(FAKE_NCCL);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
