// Folders come to be whole, and go whole.

#include <fstream>
#include <optional>
#include <set>

#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "checkpoint/folders.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/owner.hpp"
#include "small.hpp"
#include "support/folder.hpp"

namespace ration::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::SaveFolder;
using checkpoint::StepFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

std::string text_of(std::int64_t step) {
  checkpoint::Manifest manifest = small_manifest(10);
  manifest.step = step;
  manifest.shards = {{.file = checkpoint::shard_name(0, 1), .size = 1}};
  return to_text(manifest);
}

StepFolder commit(const fs::path& root, std::int64_t step) {
  return SaveFolder(root, step, 0).commit(text_of(step));
}

TEST(Folders, AppearWholeOrNotAtAll) {
  const Folder root;
  {
    SaveFolder save(root.path(), 5, 100);
    EXPECT_TRUE(fs::exists(save.path() / "nonce"));
    EXPECT_TRUE(checkpoint::list_steps(root.path()).empty());
    EXPECT_NO_THROW(checkpoint::check_shared(save.path(), save.nonce()));
  }
  EXPECT_TRUE(names_in(root.path()).empty());
  const StepFolder made = commit(root.path(), 5);
  EXPECT_EQ(made.path, root / "step-00000005");
  EXPECT_THAT(names_in(root.path()), ElementsAre("step-00000005"));
  EXPECT_THAT(names_in(made.path), ElementsAre("manifest.json"));
}

TEST(Folders, OfTheSameStepAreGenerations) {
  const Folder root;
  EXPECT_EQ(commit(root.path(), 7).path.filename(), "step-00000007");
  EXPECT_EQ(commit(root.path(), 7).path.filename(), "step-00000007-r2");
  {
    SaveFolder one(root.path(), 7, 0);
    SaveFolder other(root.path(), 7, 0);
    EXPECT_EQ(one.commit(text_of(7)).generation, 3);
    EXPECT_EQ(other.commit(text_of(7)).generation, 4);
  }
  EXPECT_EQ(checkpoint::list_steps(root.path()).back().generation, 4);
}

TEST(Folders, AreListedInNumericOrderAndNothingElseIs) {
  const Folder root;
  for (const char* name : {"step-00000010", "step-00000009-r10", "step-00000009-r2",
                           "step-00000009", "step-123456789012", "step-00000001"}) {
    fs::create_directory(root / name);
  }
  for (const char* junk :
       {"step-", "step-9", "step-00000009-r1", "step-00000009-r02", "step-00000009-rx",
        "step-000000010", "step--0000001", "steps", ".tmp-1", "step-00000003.bak"}) {
    fs::create_directory(root / junk);
  }
  std::ofstream(root / "step-00000002") << "a file";
  fs::create_directory_symlink(root / "step-00000001", root / "step-00000004");
  std::vector<std::string> names;
  for (const StepFolder& step : checkpoint::list_steps(root.path()))
    names.push_back(step.path.filename());
  EXPECT_THAT(names, ElementsAre("step-00000001", "step-00000009", "step-00000009-r2",
                                 "step-00000009-r10", "step-00000010", "step-123456789012"));
  EXPECT_TRUE(checkpoint::list_steps(root / "none").empty());
}

TEST(Folders, OfTheDeadAreRemovedAndOfTheLivingAreNot) {
  const Folder root;
  const pid_t child = fork();
  if (child == 0) {
    new SaveFolder(root.path(), 1, 0);  // and dies without its destructor
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(names_in(root.path()).size(), 1u);
  fs::create_directory(root / ".tmp-00000002-without-owner");
  fs::create_directory(root / ".tmp-00000003-elsewhere");
  std::ofstream(root / ".tmp-00000003-elsewhere/owner") << "another-host\nboot\n1\n1\n";
  const SaveFolder living(root.path(), 4, 0);
  commit(root.path(), 5);
  EXPECT_THAT(names_in(root.path()),
              ElementsAre(".tmp-00000002-without-owner", ".tmp-00000003-elsewhere",
                          living.path().filename().string(), "step-00000005"));
}

TEST(Folders, ArePrunedByStepAndGeneration) {
  const Folder root;
  for (const std::int64_t step : {1, 2, 3, 3, 4}) commit(root.path(), step);
  fs::create_directory(root / "step-00000000");  // not ours
  std::ofstream(root / "step-00000000/manifest.json") << "{\"format\": \"another\"}";
  const StepFolder last = commit(root.path(), 5);
  checkpoint::prune(root.path(), 0, last);
  EXPECT_EQ(names_in(root.path()).size(), 7u);
  checkpoint::prune(root.path(), 3, last);
  EXPECT_THAT(names_in(root.path()),
              ElementsAre("step-00000000", "step-00000003-r2", "step-00000004", "step-00000005"));
  checkpoint::prune(root.path(), 1, last);  // at least two stay
  EXPECT_THAT(names_in(root.path()),
              ElementsAre("step-00000000", "step-00000004", "step-00000005"));
}

/// The names in the order in which they vanish from a folder, wherever it is renamed to.
class Vanishing {
 public:
  explicit Vanishing(const fs::path& folder) : descriptor_(inotify_init1(IN_NONBLOCK)) {
    EXPECT_GE(inotify_add_watch(descriptor_, folder.c_str(), IN_DELETE), 0);
  }
  ~Vanishing() { close(descriptor_); }
  Vanishing(const Vanishing&) = delete;
  Vanishing& operator=(const Vanishing&) = delete;
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    alignas(inotify_event) char events[16384];
    const ssize_t bytes = read(descriptor_, events, sizeof events);
    for (ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(events + at);
      if (event->mask & IN_DELETE) names.emplace_back(event->name);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
    return names;
  }

 private:
  int descriptor_;
};

// A crash in the middle must leave what says that it may be removed.
TEST(Folders, AreRemovedWithTheirOwnerLast) {
  const Folder root;
  const auto fill = [](const fs::path& folder) {
    for (int rank = 0; rank < 9; ++rank) std::ofstream(folder / checkpoint::shard_name(rank, 9));
  };
  {
    std::optional<SaveFolder> save(std::in_place, root.path(), 1, 0);
    fill(save->path());
    const Vanishing temporary(save->path());
    save.reset();
    const auto names = temporary.names();
    ASSERT_EQ(names.size(), 11u);
    EXPECT_EQ(names.back(), "owner");
  }
  {
    const fs::path left = root / ".trash-step-00000001-x";
    fs::create_directory(left);
    std::ofstream(left / "owner") << checkpoint::host_name() << "\nanother boot\n1\n1\n";
    fill(left);
    const Vanishing trash(left);
    const SaveFolder next(root.path(), 1, 0);
    const auto names = trash.names();
    ASSERT_EQ(names.size(), 10u);
    EXPECT_EQ(names.back(), "owner");
  }
  const StepFolder old = commit(root.path(), 1);
  fill(old.path);
  const Vanishing pruned(old.path);
  for (const std::int64_t step : {2, 3}) commit(root.path(), step);
  checkpoint::prune(root.path(), 2, checkpoint::list_steps(root.path()).back());
  const auto names = pruned.names();
  ASSERT_EQ(names.size(), 11u);
  EXPECT_EQ(names.back(), "owner");
}

TEST(Folders, ThatCannotBeMadeAreErrorsThatNameThem) {
  const Folder root;
  std::ofstream(root / "file") << "";
  const auto text_of_error = [](const auto& work) {
    try {
      work();
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(text_of_error([&] { SaveFolder(root / "file" / "deep", 1, 0); }),
              HasSubstr("file/deep"));
  EXPECT_THAT(text_of_error([&] { SaveFolder(root.path(), 1, std::uint64_t{1} << 60); }),
              HasSubstr("does not fit"));
  EXPECT_THAT(text_of_error([&] { checkpoint::check_shared(root / "none", "x"); }),
              HasSubstr("is not shared with host " + checkpoint::host_name()));
  EXPECT_TRUE(checkpoint::list_steps(root.path()).empty());
}

TEST(Owner, IsDeadOnlyWhenThatIsKnown) {
  EXPECT_FALSE(checkpoint::is_known_dead(checkpoint::own_identity()));
  EXPECT_FALSE(checkpoint::is_known_dead(""));
  EXPECT_FALSE(checkpoint::is_known_dead("host\n"));
  std::string other_start = checkpoint::own_identity();
  other_start.insert(other_start.size() - 1, "1");
  EXPECT_TRUE(checkpoint::is_known_dead(other_start));
  EXPECT_FALSE(checkpoint::is_known_dead("another-" + other_start));
  EXPECT_TRUE(checkpoint::is_known_dead(checkpoint::host_name() + "\nanother boot\n1\n1\n"));
}

}  // namespace
}  // namespace ration::test
