#include "unisono/pipeline/generators.h"
#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

Schedule one_f_one_b(int n_ranks, int n_chunks) {
  return interleaved(n_ranks, n_chunks, 1);
}

}  // namespace unisono::pipeline
