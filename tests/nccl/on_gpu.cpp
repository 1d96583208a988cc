#include "on_gpu.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace unisono::test {
namespace {

// The loader then returns this library for each request of its name.
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

void load_fakes(int n_gpus) {
  ::setenv("FAKE_CUDA_GPUS", std::to_string(n_gpus).c_str(), 1);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  (void)load(FAKE_CUDA);
  nccl = load(FAKE_NCCL);
}

World nccl_world(int world_size) {
  World world = one_node(world_size);
  world.backend = "nccl";
  return world;
}

GpuFault::GpuFault(const char* name) {
  ::setenv("FAKE_GPU_FAULT", name, 1);
}

GpuFault::~GpuFault() {
  ::unsetenv("FAKE_GPU_FAULT");
}

int n_aborted() {
  return reinterpret_cast<int (*)()>(::dlsym(nccl, "fake_nccl_n_aborted"))();
}

}  // namespace unisono::test
