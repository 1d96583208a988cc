#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/datasets/image_dataset.h"

namespace unisono::datasets {

/// The training part or the test part of a data set.
enum class Split { kTrain, kTest };

/// Content of an IDX file: elements in row-major order, in this machine's byte order.
struct IdxArray {
  DType dtype = DType::kUInt8;
  std::vector<std::int64_t> dims;
  std::vector<std::byte> bytes;
};

/// Default limit of read_idx().
inline constexpr std::uint64_t kIdxMaxBytes = std::uint64_t{16} << 30;

/// Reads an IDX file, plain or gzip: the format of MNIST's files.
///
/// The function reads all six element types (u8, i8, i16, i32, f32, f64). Memory grows with the
/// content of the file, so a damaged header cannot allocate much.
///
/// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder or device, or for elements of
/// more than `max_bytes`; kCorruptData for another format, a truncated file, and bytes after the
/// last element.
///
/// Source: the format's description at the end of http://yann.lecun.com/exdb/mnist/.
[[nodiscard]] IdxArray read_idx(const std::string& path, std::uint64_t max_bytes = kIdxMaxBytes);

/// Reads the training or test set of MNIST, or of a data set with the same files, such as
/// Fashion-MNIST.
///
/// The files are train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-... for the test set,
/// also spelled train-images.idx3-ubyte, plain or with ".gz" after the name. The files lie in
/// `folder`, in `folder`/MNIST/raw, where torchvision puts them, or in another folder directly
/// below. A file may also lie in a folder of the file's own name. The result has at least one
/// image, a label from 0 to 9 for each image, and the image size that the file states.
///
/// Throws Error: kNotFound if the files are missing, kInvalidArgument if several folders below
/// `folder` have the files, kCorruptData if images and labels do not match, and the errors of
/// read_idx().
[[nodiscard]] LabeledImages load_mnist(const std::string& folder, Split split);

}  // namespace unisono::datasets
