// Files to tokens.

#include "text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace chargpt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TextFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / (std::string("chargpt_") + test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }

  std::filesystem::path folder_;
};

TEST(Text, TokensAreRanksOfTheDistinctBytes) {
  const std::string bytes =
      "b\xff"
      "ab\n";
  const Text text = tokenize(bytes);
  EXPECT_THAT(text.vocabulary, ElementsAre('\n', 'a', 'b', 0xff));
  EXPECT_THAT(text.tokens, ElementsAre(2, 3, 1, 2, 0));
}

TEST(Text, AllBytesMayOccur) {
  std::string bytes;
  for (int i = 255; i >= 0; --i) bytes.push_back(static_cast<char>(i));
  const Text text = tokenize(bytes);
  ASSERT_EQ(text.vocabulary.size(), 256u);
  EXPECT_EQ(text.tokens.front(), 255);
  EXPECT_EQ(text.tokens.back(), 0);
}

TEST_F(TextFiles, AreJoinedInTheOrderGiven) {
  const std::vector<std::string> files{write("2", "ba"), write("1", "c"), write("empty", "")};
  EXPECT_THAT(read_text(files).tokens, ElementsAre(1, 0, 2));
}

TEST_F(TextFiles, ThatCannotBeReadAreNamed) {
  for (const auto& path : {folder_ / "missing", folder_}) {
    try {
      read_text(std::vector<std::string>{path.string()});
      ADD_FAILURE() << "read " << path;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
    }
  }
}

TEST(LicenceTexts, AreRegularFilesByName) {
  const auto files = licence_texts();
  EXPECT_TRUE(std::is_sorted(files.begin(), files.end()));
  for (const auto& file : files) {
    EXPECT_FALSE(std::filesystem::is_symlink(file)) << file;
    EXPECT_TRUE(std::filesystem::is_regular_file(file)) << file;
  }
}

}  // namespace
}  // namespace chargpt
