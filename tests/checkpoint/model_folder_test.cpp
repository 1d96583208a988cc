// Folders of models from other programs in which a file, a tensor or the index is missing or
// superfluous.
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/safetensors.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::checkpoint {
namespace {

using test::throws_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kIndex = "model.safetensors.index.json";

using Files = std::map<std::string, std::vector<std::string>>;

class ModelFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [file, tensors] : files()) {
      write(file, tensors);
    }
    (void)folder_.write(kIndex, index_of(files()));
  }

  // The files of the model, with their tensors.
  static Files files() {
    return {{"model-00001-of-00003.safetensors", {"a", "b"}},
            {"model-00002-of-00003.safetensors", {"c"}},
            {"model-00003-of-00003.safetensors", {"d", "e"}}};
  }

  static std::string index_of(const Files& files) {
    std::string map;
    for (const auto& [file, tensors] : files) {
      for (const std::string& tensor : tensors) {
        map.append(map.empty() ? "" : ", ")
            .append("\"" + tensor + "\": \"")
            .append(file)
            .append("\"");
      }
    }
    return R"({"metadata": {"total_size": 40}, "weight_map": {)" + map + "}}";
  }

  void write(const std::string& file, const std::vector<std::string>& names) const {
    const std::vector<std::byte> bytes(8, std::byte{7});
    std::vector<TensorBytes> tensors;
    for (const std::string& name : names) {
      tensors.push_back(
          {.info = {.name = name, .dtype = DType::kFloat32, .shape = {2}}, .bytes = bytes});
    }
    write_safetensors(path() + "/" + file, tensors);
  }

  void remove(const std::string& file) const { std::filesystem::remove(path() + "/" + file); }

  static std::vector<std::string> tensors_of(const std::string& path) {
    std::vector<std::string> names;
    const Reader reader(path);
    for (const auto& [name, tensor] : reader.tensors()) {
      names.push_back(name);
    }
    return names;
  }

  auto loading() const {
    return [this] { (void)tensors_of(path()); };
  }

  void expect_whole() const {
    EXPECT_THAT(tensors_of(path()), ElementsAre("a", "b", "c", "d", "e"));
  }

  [[nodiscard]] const std::string& path() const { return folder_.path(); }

  test::TemporaryFolder folder_;
};

TEST_F(ModelFolders, AreWholeWithAndWithoutTheIndex) {
  expect_whole();
  EXPECT_THAT(tensors_of(path() + "/" + kIndex), ElementsAre("a", "b", "c", "d", "e"));
  remove(kIndex);
  expect_whole();
}

TEST_F(ModelFolders, AMissingFileIsNamedByTheIndexAndByTheNumbers) {
  for (const auto& [file, tensors] : files()) {
    remove(file);
    EXPECT_THAT(loading(),
                throws_error(ErrorCode::kCorruptData,
                             path() + "/" + file + ": is missing",
                             kIndex,
                             "\"" + tensors.front() + "\""));
    remove(kIndex);
    EXPECT_THAT(loading(), throws_error(ErrorCode::kCorruptData, "1 of 3 files", file, "missing"));
    write(file, tensors);
    (void)folder_.write(kIndex, index_of(files()));
  }
  expect_whole();
}

TEST_F(ModelFolders, AMissingTensorIsNamedWithItsFile) {
  for (const auto& [file, tensors] : files()) {
    for (const std::string& missing : tensors) {
      std::vector<std::string> others = tensors;
      std::erase(others, missing);
      write(file, others);
      EXPECT_THAT(
          loading(),
          throws_error(
              ErrorCode::kCorruptData, path() + "/" + file, "has no tensor \"" + missing + "\""));
    }
    write(file, tensors);
  }
  expect_whole();
}

TEST_F(ModelFolders, ADamagedIndexIsNoIndex) {
  const std::string whole = index_of(files());
  for (const std::string& text : {whole.substr(0, whole.size() / 2),
                                  std::string(),
                                  std::string("[]"),
                                  std::string("{}"),
                                  std::string(R"({"weight_map": {}})"),
                                  std::string(R"({"weight_map": {"a": 1}})"),
                                  std::string(R"({"weight_map": {"a": "../a.safetensors"}})"),
                                  std::string(R"({"weight_map": {"a": "config.json"}})")}) {
    (void)folder_.write(kIndex, text);
    EXPECT_THAT(loading(), throws_error(ErrorCode::kCorruptData, path() + "/" + kIndex)) << text;
  }
}

TEST_F(ModelFolders, FilesOutsideTheIndexAreLeftOutWithALine) {
  write("consolidated.safetensors", {"a", "b", "c", "d", "e"});
  ::testing::internal::CaptureStderr();
  expect_whole();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr(path() + ": files left out"),
                    HasSubstr(kIndex),
                    HasSubstr("consolidated.safetensors")));
}

TEST_F(ModelFolders, WithoutAnIndexFilesOfTwoModelsAreNotMixed) {
  remove(kIndex);
  for (const char* other : {"adapter.safetensors",
                            "model.safetensors",
                            "model-00001-of-00002.safetensors",
                            "shard-00001-adapter-00001-of-00003.safetensors"}) {
    write(other, {"x"});
    EXPECT_THAT(loading(),
                throws_error(ErrorCode::kInvalidArgument, "different models", other, "pass"));
    EXPECT_THAT(tensors_of(path() + "/" + other), ElementsAre("x"));
    remove(other);
  }
  expect_whole();
}

TEST_F(ModelFolders, NumbersBeginAtOneOrAtZero) {
  remove(kIndex);
  remove("model-00003-of-00003.safetensors");
  write("model-00000-of-00003.safetensors", {"d", "e"});
  expect_whole();
  write("model-00003-of-00003.safetensors", {"f"});
  EXPECT_THAT(loading(), throws_error(ErrorCode::kCorruptData, "number 3 of 3"));
}

TEST_F(ModelFolders, NumbersOfRanksBeginTheNamesOfOneModel) {
  remove(kIndex);
  for (const auto& [file, tensors] : files()) {
    remove(file);
    write((tensors.front() == "c" ? "shard-00002-" : "shard-00001-") + file, tensors);
  }
  expect_whole();
  remove("shard-00002-model-00002-of-00003.safetensors");
  EXPECT_THAT(loading(),
              throws_error(ErrorCode::kCorruptData, "1 of 3", "model-00002-of-00003.safetensors"));
}

TEST_F(ModelFolders, OfTwoIndicesTheCallerChooses) {
  write("model.fp16.safetensors", {"half"});
  const std::string other = "model.safetensors.index.fp16.json";
  (void)folder_.write(other, index_of({{"model.fp16.safetensors", {"half"}}}));
  EXPECT_THAT(loading(), throws_error(ErrorCode::kInvalidArgument, kIndex, other, "pass the path"));
  EXPECT_THAT(tensors_of(path() + "/" + other), ElementsAre("half"));
  EXPECT_THAT(tensors_of(path() + "/" + kIndex), ElementsAre("a", "b", "c", "d", "e"));
}

TEST_F(ModelFolders, FilesOfSystemsAndToolsAreNotOfTheModel) {
  for (const bool has_index : {true, false}) {
    (void)folder_.write("._model-00001-of-00003.safetensors", "AppleDouble");
    (void)folder_.write("._model.safetensors.index.json", "AppleDouble");
    (void)folder_.write(".ipynb_checkpoints/model-checkpoint.safetensors", "x");
    (void)folder_.write("__MACOSX/._model.safetensors", "x");
    expect_whole();
    if (has_index) {
      remove(kIndex);
    }
  }
}

}  // namespace
}  // namespace unisono::checkpoint
