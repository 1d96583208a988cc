// Seeds for the targets of data/, written with the encoders of their tests.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "unisono/datasets/record_format.h"

#include "corpus.h"
#include "tests/test_files.h"

namespace unisono::fuzz {
namespace {

using datasets::testing::gzip;
using datasets::testing::pax_record;
using datasets::testing::some_bytes;
using datasets::testing::tar_end;
using datasets::testing::tar_entry;
using datasets::testing::tar_header;

void write_idx(const std::filesystem::path& root) {
  using datasets::testing::idx_bytes;
  const Corpus corpus(root, "idx");
  const std::string images = idx_bytes(0x08, {2, 3, 4}, some_bytes(24));
  corpus.add("u8", bytes_of(images));
  corpus.add("i16", bytes_of(idx_bytes(0x0b, {3}, some_bytes(6))));
  corpus.add("f64", bytes_of(idx_bytes(0x0e, {1, 2}, some_bytes(16))));
  corpus.add("empty", bytes_of(idx_bytes(0x08, {0, 28, 28}, "")));
  corpus.add("gzip", bytes_of(gzip(images)));
  corpus.add("gzip_members", bytes_of(gzip(images.substr(0, 9)) + gzip(images.substr(9))));
  corpus.add("truncated", bytes_of(images.substr(0, 20)));
}

// The first byte selects the kind.
void write_cifar(const std::filesystem::path& root) {
  const Corpus corpus(root, "cifar");
  const std::string pixels(3072, '\1');
  const std::string ten = "\3" + pixels + "\11" + pixels;
  const std::string hundred = std::string("\23\143") + pixels;
  corpus.add("ten", bytes_of(std::string(1, '\0') + ten));
  corpus.add("ten_gzip", bytes_of(std::string(1, '\0') + gzip(ten)));
  corpus.add("ten_truncated", bytes_of(std::string(1, '\0') + ten.substr(0, 4000)));
  corpus.add("hundred", bytes_of("\1" + hundred));
  corpus.add("hundred_coarse", bytes_of("\2" + hundred));
}

void write_csv(const std::filesystem::path& root) {
  const Corpus corpus(root, "csv");
  corpus.add("plain", bytes_of("name,age\nAda,36\nAlan,41\n"));
  corpus.add("quotes", bytes_of("a,\"b,\r\nc \"\"d\"\"\"\r\n\"\",x"));
  corpus.add("empty_lines", bytes_of("a,b\n\n\nc,d\n"));
  corpus.add("one_column", bytes_of("a\n\nb\n"));
  corpus.add("mark",
             bytes_of("\xEF\xBB\xBF"
                      "a,b\n"));
  corpus.add("open_quote", bytes_of("a,\"b\n"));
  corpus.add("gzip", bytes_of(gzip("a,b\n")));
}

void write_labeled_texts(const std::filesystem::path& root) {
  const Corpus corpus(root, "labeled_text");
  corpus.add("texts", bytes_of("0\tIt's bad.<br />Really (bad)!\n1\tGood\r\n1\t\n"));
  corpus.add("no_label", bytes_of("0\tbad\ngood\n"));
}

void write_record_files(const std::filesystem::path& root) {
  const Corpus corpus(root, "record_file");
  Bytes file(datasets::kRecordMagic.begin(), datasets::kRecordMagic.end());
  Bytes index;
  std::uint64_t n_records = 0;
  for (const std::string text : {"first", "", "third"}) {
    const Bytes record = bytes_of(text);
    datasets::RecordEntry entry{.offset = file.size(),
                                .n_bytes = static_cast<std::uint32_t>(record.size())};
    entry.crc = datasets::record_crc(n_records++, entry, record);
    const auto encoded = datasets::encode(entry);
    index = join({index, Bytes(encoded.begin(), encoded.end())});
    file = join({file, record});
  }
  const auto footer =
      datasets::encode(datasets::RecordFooter{.index_offset = file.size(), .n_records = n_records});
  const Bytes whole = join({file, index, Bytes(footer.begin(), footer.end())});
  corpus.add("records", whole);
  corpus.add("truncated", Bytes(whole.begin(), whole.end() - 1));
  Bytes damaged = whole;
  damaged[9] ^= std::byte{1};
  corpus.add("damaged", damaged);
}

void write_tar(const std::filesystem::path& root) {
  const Corpus corpus(root, "tar");
  const std::string sample = tar_entry("a/1.cls", "3") + tar_entry("a/1.jpg", some_bytes(600));
  const std::string name(120, 'n');
  corpus.add("sample", bytes_of(sample + tar_end()));
  corpus.add("gzip", bytes_of(gzip(sample + tar_end())));
  corpus.add("no_end", bytes_of(sample));
  corpus.add("gnu_name", bytes_of(tar_entry("././@LongLink", name, 'L') + sample + tar_end()));
  corpus.add("pax",
             bytes_of(tar_entry("pax", pax_record("path", name) + pax_record("size", "1"), 'x') +
                      sample + tar_end()));
  corpus.add("binary_size",
             bytes_of(tar_header("a.b", std::string("\x80", 1) + std::string(10, '\0') + "\1") +
                      "x" + std::string(511, '\0') + tar_end()));
  corpus.add("folder", bytes_of(tar_entry("dir/", "", '5') + sample + tar_end()));
}

}  // namespace

void write_data(const std::filesystem::path& root) {
  write_idx(root);
  write_cifar(root);
  write_csv(root);
  write_labeled_texts(root);
  write_record_files(root);
  write_tar(root);
}

}  // namespace unisono::fuzz
