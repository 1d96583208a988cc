#pragma once

/// The public interface of the library datasets, and the loaders and samplers that use its samples.
/// A file that needs a single reader may include only that reader's header. Link unisono::datasets.

#include "unisono/data/data_loader.h"                       // IWYU pragma: export
#include "unisono/data/samplers/data_partitioner.h"         // IWYU pragma: export
#include "unisono/data/samplers/distributed_sampler.h"      // IWYU pragma: export
#include "unisono/data/samplers/length_bucketed_sampler.h"  // IWYU pragma: export
#include "unisono/data/samplers/sampler.h"                  // IWYU pragma: export
#include "unisono/datasets/cifar.h"                         // IWYU pragma: export
#include "unisono/datasets/csv.h"                           // IWYU pragma: export
#include "unisono/datasets/decode_image.h"                  // IWYU pragma: export
#include "unisono/datasets/idx.h"                           // IWYU pragma: export
#include "unisono/datasets/image_dataset.h"                 // IWYU pragma: export
#include "unisono/datasets/image_folder.h"                  // IWYU pragma: export
#include "unisono/datasets/record_file.h"                   // IWYU pragma: export
#include "unisono/datasets/sound_dataset.h"                 // IWYU pragma: export
#include "unisono/datasets/sound_features.h"                // IWYU pragma: export
#include "unisono/datasets/tar.h"                           // IWYU pragma: export
#include "unisono/datasets/text.h"                          // IWYU pragma: export
#include "unisono/datasets/transforms.h"                    // IWYU pragma: export
#include "unisono/datasets/wav.h"                           // IWYU pragma: export
