#pragma once

#include <span>
#include <string>

#include "unisono/data/image_dataset.h"
#include "unisono/data/readers/split.h"

namespace unisono {

/// Which of the CIFAR data sets, and of CIFAR-100's two labels which one.
enum class CifarKind {
  kCifar10,        ///< 10 classes.
  kCifar100,       ///< 100 classes.
  kCifar100Coarse  ///< The same images by their 20 superclasses.
};

/// Reads CIFAR files of the binary version, plain or gzip, one after the other: images of 3
/// channels of 32 x 32 pixels.
///
/// Memory grows with what the files really have. Throws Error: kNotFound, kSystem; kInvalidArgument
/// for a folder or device; kCorruptData, with file, record and offset, for a record that ends early
/// or has an impossible label, and for a file without records.
///
/// Source: "Binary version" at https://www.cs.toronto.edu/~kriz/cifar.html.
[[nodiscard]] LabeledImages read_cifar(std::span<const std::string> paths, CifarKind kind);

/// Reads the training or test set from the files that the archive of the binary version has:
/// data_batch_1.bin to data_batch_5.bin and test_batch.bin, or train.bin and test.bin for
/// CIFAR-100, plain or with ".gz" after the name. All lie in `folder`, in its folder
/// cifar-10-batches-bin or cifar-100-binary, or in another folder directly below, each also in a
/// folder of the file's name.
///
/// Throws Error: kNotFound when a file is not there, kInvalidArgument where several folders below
/// have all of them, else as read_cifar().
[[nodiscard]] LabeledImages load_cifar(const std::string& folder,
                                       Split split,
                                       CifarKind kind = CifarKind::kCifar10);

}  // namespace unisono
