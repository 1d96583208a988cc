#pragma once

// Names that snippets of the guides use and do not declare: those of pages without LibTorch. They
// are declared and never defined, because snippets are only read by the compiler.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <tuple>

#include "unisono/data/data_loader.h"
#include "unisono/data/images/image_folder.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/data/sounds/sound_crops.h"
#include "unisono/data/sounds/wav_list.h"
#include "unisono/data/transforms/augmented_images.h"
#include "unisono/unisono.h"

namespace given::data {

extern unisono::DataLoader loader;
extern unisono::DistributedSampler sampler;
extern std::int64_t epoch;

}  // namespace given::data
