// Transfers are whole, or an error that says of which file, what and why.

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include <sys/resource.h>
#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "io/file.hpp"
#include "support/folder.hpp"

namespace ration::test {
namespace {

namespace fs = std::filesystem;
using io::Access;
using io::File;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <class Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const IoError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST(File, IsMadeOnlyWhereNoneIs) {
  const Folder folder;
  const fs::path path = folder / "new";
  {
    const File file(path, Access::write_new);
    file.write(0, bytes_of("first"));
  }
  for (const io::Cache cache : {io::Cache::buffered, io::Cache::direct}) {
    EXPECT_THAT(error_of([&] { const File file(path, Access::write_new, cache); }),
                AllOf(HasSubstr(path.string()), HasSubstr("making it"), HasSubstr("exists")));
  }
  EXPECT_EQ(io::read_file(path, 100), "first");
  EXPECT_THAT(error_of([&] { const File file(folder / "none", Access::read); }),
              AllOf(HasSubstr("none"), HasSubstr("opening it"), HasSubstr("No such file")));
}

TEST(File, ReadPastItsEndIsAnErrorThatNamesItAndTheBytes) {
  const Folder folder;
  const fs::path path = folder / "short";
  std::ofstream(path) << "0123456789";
  const File file(path, Access::read);
  std::vector<std::byte> to(8);
  EXPECT_NO_THROW(file.read(2, to));
  EXPECT_EQ(to[7], std::byte{'9'});
  for (const std::uint64_t offset : {std::uint64_t{3}, std::uint64_t{10}, std::uint64_t{1} << 40}) {
    EXPECT_THAT(
        error_of([&] { file.read(offset, to); }),
        AllOf(HasSubstr(path.string()), HasSubstr("reading 8 bytes at " + std::to_string(offset)),
              HasSubstr("the file ends there")));
  }
  EXPECT_NO_THROW(file.read(100, {}));
}

TEST(File, IsNeverReachedThroughALinkAndIsNeverAFolder) {
  const Folder folder;
  std::ofstream(folder / "there") << "text";
  fs::create_symlink("there", folder / "link");
  fs::create_symlink("nowhere", folder / "dangling");
  fs::create_directory(folder / "folder");
  EXPECT_THAT(error_of([&] { const File file(folder / "link", Access::read); }), HasSubstr("link"));
  EXPECT_THAT(error_of([&] { const File file(folder / "dangling", Access::write_new); }),
              HasSubstr("dangling"));
  EXPECT_FALSE(fs::exists(folder / "nowhere"));
  EXPECT_THAT(error_of([&] { const File file(folder / "folder", Access::read); }),
              HasSubstr("no regular file"));
}

// A limit on file sizes is a disk that is full, without root and at an exact place.
TEST(File, ThatCannotGrowSaysHowMuchWasToBeWritten) {
  const Folder folder;
  const fs::path path = folder / "full";
  rlimit former = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &former), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 10000, .rlim_max = former.rlim_max};
  const File file(path, Access::write_new);
  const std::vector<std::byte> much(20000, std::byte{7});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  // The first transfer is short, the next fails.
  const std::string error = error_of([&] { file.write(0, much); });
  setrlimit(RLIMIT_FSIZE, &former);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, AllOf(HasSubstr(path.string()), HasSubstr("writing 20000 bytes at 0"),
                           HasSubstr("File too large")));
}

TEST(File, MovesWithItsDescriptor) {
  const Folder folder;
  std::ofstream(folder / "a") << "a";
  std::ofstream(folder / "b") << "b";
  File former(folder / "a", Access::read);
  File a = std::move(former);
  EXPECT_FALSE(former.is_open());  // NOLINT(bugprone-use-after-move): what is left is the point
  File b(folder / "b", Access::read);
  b = std::move(a);
  EXPECT_FALSE(a.is_open());  // NOLINT(bugprone-use-after-move)
  std::byte byte{};
  b.read(0, {&byte, 1});
  EXPECT_EQ(byte, std::byte{'a'});
  b.close();
  EXPECT_NO_THROW(b.close());
  EXPECT_THAT(error_of([&] { b.read(0, {&byte, 1}); }), HasSubstr("Bad file descriptor"));
}

TEST(ReplaceFile, IsWholeAndLeavesNothingBeside) {
  const Folder folder;
  const fs::path path = folder / "small";
  io::replace_file(path, "one");
  io::replace_file(path, "a longer text");
  io::replace_file(path, "two");
  EXPECT_EQ(io::read_file(path, 3), "two");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("small"));
  // A link is replaced, not followed.
  std::ofstream(folder / "target") << "kept";
  fs::create_symlink("target", folder / "link");
  io::replace_file(folder / "link", "new");
  EXPECT_EQ(io::read_file(folder / "target", 10), "kept");
  EXPECT_EQ(io::read_file(folder / "link", 10), "new");
}

TEST(ReplaceFile, ThatFailsLeavesTheFormerAndNothingBeside) {
  const Folder folder;
  fs::create_directories(folder / "taken/by a folder");
  EXPECT_THAT(error_of([&] { io::replace_file(folder / "taken", "text"); }),
              AllOf(HasSubstr("renaming it to"), HasSubstr("taken")));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("taken"));
  EXPECT_THAT(error_of([&] { io::replace_file(folder / "none/file", "text"); }), HasSubstr("none"));
}

TEST(ReadFile, RefusesMoreThanItsLimit) {
  const Folder folder;
  std::ofstream(folder / "four") << "1234";
  EXPECT_EQ(io::read_file(folder / "four", 4), "1234");
  EXPECT_THAT(error_of([&] { io::read_file(folder / "four", 3); }),
              AllOf(HasSubstr("four"), HasSubstr("has 4 bytes, more than the 3")));
  // A size that is claimed takes no memory.
  fs::resize_file(folder / "four", std::uintmax_t{1} << 40);
  EXPECT_THAT(error_of([&] { io::read_file(folder / "four", 100); }), HasSubstr("more than"));
}

}  // namespace
}  // namespace ration::test
