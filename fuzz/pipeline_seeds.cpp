// Seeds for the targets of pipeline/.
#include <filesystem>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/message.h"
#include "unisono/pipeline/schedule.h"

#include "corpus.h"

namespace unisono::fuzz {

void write_schedules(const std::filesystem::path& root) {
  const Corpus corpus(root, "schedule_csv");
  corpus.add("1f1b", bytes_of(pipeline::to_csv(pipeline::one_f_one_b(3, 4))));
  corpus.add("interleaved", bytes_of(pipeline::to_csv(pipeline::interleaved(2, 2, 2))));
  corpus.add("zb_h1", bytes_of(pipeline::to_csv(pipeline::zero_bubble_h1(2, 3))));
  corpus.add("dual_pipe_v", bytes_of(pipeline::to_csv(pipeline::dual_pipe_v(2, 4))));
  corpus.add(
      "waits_and_pairs",
      bytes_of("0F0,(0F1;0B0)OVERLAP_F_B, ,0B1,0REDUCE_GRAD\n,1UNSHARD,1F0,1B0,1F1,1I1,1W1"));
  corpus.add("transfers", bytes_of("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"));
  corpus.add("circle", bytes_of("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"));
}

void write_pipeline_messages(const std::filesystem::path& root) {
  const Corpus corpus(root, "pipeline_message");
  const pipeline::SentTensor tensor{.needs_gradient = true, .sizes = {4, 128, 64}};
  corpus.add("one", pipeline::encode({.tensors = {tensor}}));
  corpus.add("none", pipeline::encode({.has_chunk = false}));
  corpus.add("mixed",
             pipeline::encode({.tensors = {{.is_defined = false},
                                           {.dtype = DType::kInt64, .sizes = {}},
                                           {.dtype = DType::kBFloat16, .sizes = {0, 3}}}}));
  corpus.add("long", pipeline::encode({.tensors = std::vector(12, tensor)}));
}

}  // namespace unisono::fuzz
