// A root that can be read only in part must not look like one with fewer steps: an older step would
// be loaded in silence.

#include <cerrno>
#include <filesystem>

#include <dirent.h>
#include <dlfcn.h>

#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "checkpoint/folders.hpp"
#include "support/folder.hpp"

namespace {

thread_local int entries_until_error = -1;  ///< -1: none

}  // namespace

// In front of the C library's, also for libstdc++.
extern "C" dirent* readdir(DIR* folder) {
  static const auto real = reinterpret_cast<dirent* (*)(DIR*)>(dlsym(RTLD_NEXT, "readdir"));
  if (entries_until_error == 0) {
    errno = EIO;
    return nullptr;
  }
  if (entries_until_error > 0) --entries_until_error;
  return real(folder);
}

namespace ration::test {
namespace {

TEST(Folders, ThatCannotBeReadToTheEndAreAnError) {
  const Folder root;
  for (const char* name : {"step-00000001", "step-00000002", "step-00000003"})
    std::filesystem::create_directory(root / name);
  ASSERT_EQ(checkpoint::list_steps(root.path()).size(), 3u);
  // With "." and "..".
  for (int read = 0; read <= 5; ++read) {
    entries_until_error = read;
    EXPECT_THROW(checkpoint::list_steps(root.path()), IoError) << read;
    entries_until_error = -1;
  }
}

}  // namespace
}  // namespace ration::test
