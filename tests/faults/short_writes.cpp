// Preloaded: of this process's writes into files below RATION_FAULT_ROOT every
// RATION_FAULT_EVERY-th writes half of what was asked for, and says so.

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <unistd.h>

namespace {

bool is_short(int descriptor, std::size_t size) {
  static const char* const root = std::getenv("RATION_FAULT_ROOT");
  static const char* const every = std::getenv("RATION_FAULT_EVERY");
  static std::atomic<int> count{0};
  if (!root || !every || size < 2) return false;
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = readlink(link.c_str(), path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  if (std::strncmp(path, root, std::strlen(root)) != 0) return false;
  return (count.fetch_add(1) + 1) % std::atoi(every) == 0;
}

}  // namespace

extern "C" ssize_t pwrite64(int descriptor, const void* data, size_t size, off64_t offset) {
  static const auto real = reinterpret_cast<ssize_t (*)(int, const void*, size_t, off64_t)>(
      dlsym(RTLD_NEXT, "pwrite64"));
  return real(descriptor, data, is_short(descriptor, size) ? size / 2 : size, offset);
}

extern "C" ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  return pwrite64(descriptor, data, size, offset);
}

extern "C" ssize_t write(int descriptor, const void* data, size_t size) {
  static const auto real =
      reinterpret_cast<ssize_t (*)(int, const void*, size_t)>(dlsym(RTLD_NEXT, "write"));
  return real(descriptor, data, is_short(descriptor, size) ? size / 2 : size);
}
