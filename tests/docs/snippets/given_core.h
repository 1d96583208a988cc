#pragma once

// Names that the guides' snippets use without a declaration, on pages without LibTorch. The names
// are declared but never defined, because snippets are only compiled.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <tuple>

#include "unisono/data/data_loader.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/datasets/image_dataset.h"
#include "unisono/datasets/image_folder.h"
#include "unisono/datasets/sound_dataset.h"
#include "unisono/unisono.h"

namespace given::data {

namespace datasets = unisono::datasets;

extern unisono::DataLoader loader;
extern unisono::DistributedSampler sampler;
extern std::int64_t epoch;

}  // namespace given::data
