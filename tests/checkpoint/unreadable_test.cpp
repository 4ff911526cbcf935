// A root that can be read only in part must not look like one with fewer steps: an older step would
// be loaded in silence.

#include <cerrno>
#include <filesystem>
#include <thread>

#include <dirent.h>
#include <dlfcn.h>

#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "checkpoint/folders.hpp"
#include "io/file.hpp"
#include "support/folder.hpp"

namespace {

thread_local int entries_until_error = -1;  ///< -1: none
thread_local int error_number = EIO;
thread_local int errors = 0;  ///< that are still to come; negative: always

}  // namespace

// In front of the C library's, also for libstdc++.
extern "C" dirent* readdir(DIR* folder) {
  static const auto real = reinterpret_cast<dirent* (*)(DIR*)>(dlsym(RTLD_NEXT, "readdir"));
  if (entries_until_error == 0 && errors != 0) {
    --errors;
    errno = error_number;
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
  for (const int number : {EIO, ESTALE}) {
    for (int read = 0; read <= 5; ++read) {
      error_number = number;
      entries_until_error = read;
      errors = -1;
      EXPECT_THROW(checkpoint::list_steps(root.path()), IoError) << read;
      // Of another host's change the name tells more than what is open.
      entries_until_error = read;
      errors = 2;
      if (number == ESTALE) {
        EXPECT_EQ(checkpoint::list_steps(root.path()).size(), 3u) << read;
      } else {
        EXPECT_THROW(checkpoint::list_steps(root.path()), IoError) << read;
      }
      entries_until_error = -1;
    }
  }
}

TEST(Folders, ThatShowLateAreStillShared) {
  const Folder root;
  const std::filesystem::path nonce = root / "nonce";
  std::thread late([&] { io::replace_file(nonce, "7f"); });
  EXPECT_NO_THROW(checkpoint::check_shared(root.path(), "7f"));
  late.join();
  EXPECT_THROW(checkpoint::check_shared(root.path(), "80"), IoError);
}

}  // namespace
}  // namespace ration::test
