#pragma once

#include <span>
#include <string>

#include "unisono/datasets/idx.h"
#include "unisono/datasets/image_dataset.h"

namespace unisono::datasets {

/// A CIFAR data set, and for CIFAR-100 the kind of label.
enum class CifarKind {
  kCifar10,        ///< 10 classes.
  kCifar100,       ///< 100 classes.
  kCifar100Coarse  ///< The images of CIFAR-100, labeled by 20 superclasses.
};

/// Reads CIFAR files of the binary version, plain or gzip, in the given order: images of 3 channels
/// of 32 x 32 pixels.
///
/// Memory grows with the content of the files. Throws Error: kNotFound, kSystem; kInvalidArgument
/// for a folder or device; kCorruptData, with file, record and offset, for a record that ends early
/// or has an impossible label, and for a file without records.
///
/// Source: "Binary version" at https://www.cs.toronto.edu/~kriz/cifar.html.
[[nodiscard]] LabeledImages read_cifar(std::span<const std::string> paths, CifarKind kind);

/// Reads the training or test set from the files of the binary version's archive: data_batch_1.bin
/// to data_batch_5.bin and test_batch.bin, or train.bin and test.bin for CIFAR-100, plain or with
/// ".gz" after the name. All files lie in `folder`, in the folder cifar-10-batches-bin or
/// cifar-100-binary there, or in another folder directly below. A file may also lie in a folder of
/// the file's own name.
///
/// Throws Error: kNotFound if a file is missing, kInvalidArgument if several folders below `folder`
/// have all files, and the errors of read_cifar().
[[nodiscard]] LabeledImages load_cifar(const std::string& folder,
                                       Split split,
                                       CifarKind kind = CifarKind::kCifar10);

}  // namespace unisono::datasets
