#pragma once
// Bytes of one rank that lie on disk, moved in large pieces while the rank computes.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "offload/swap_file.hpp"

namespace ration::offload {

/// Offset, length and memory are multiples of io::kDirectAlignment.
struct Transfer {
  enum class Way : std::uint8_t { read, write };
  Way way = Way::read;
  std::uint64_t offset = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// Carries out transfers beside the caller; not for several threads. What two transfers under way
/// at a time do to the same bytes is undefined.
class BlockDevice {
 public:
  /// Waits for what is under way.
  virtual ~BlockDevice() = default;

  /// Begins a transfer. `ticket` is the caller's name for it, below the number asked for at the
  /// making, and must not be under way. Throws IoError.
  virtual void submit(std::size_t ticket, const Transfer& transfer) = 0;
  /// Returns when the ticket's transfer is whole, at once if there is none. Throws IoError: its
  /// bytes on disk, or in memory where it was a read, are then unknown.
  virtual void wait(std::size_t ticket) = 0;
  /// Whether `wait` would return, or throw, at once.
  virtual bool done(std::size_t ticket) = 0;
  /// "io_uring, direct": for the log.
  [[nodiscard]] virtual std::string name() const = 0;
};

/// How transfers are carried out. `best`: by io_uring where the system has and allows it.
enum class Engine : std::uint8_t { best, uring, threads };

struct DeviceOptions {
  std::vector<std::filesystem::path> folders = {};  ///< bytes are striped over them
  std::uint64_t bytes = 0;
  std::size_t tickets = 1;
  Engine engine = Engine::best;
  bool direct = true;  ///< around the page cache, where the file system can
};

/// A device over new swap files. Throws IoError for a folder that is missing, read-only or too
/// full, and InvalidArgument where io_uring is asked for and cannot be had.
std::unique_ptr<BlockDevice> make_device(const DeviceOptions& options);

/// The engines; made by make_device. `make_uring` takes the files but where io_uring cannot be had,
/// and then gives nothing.
std::unique_ptr<BlockDevice> make_uring(SwapFiles& files, std::size_t tickets);
std::unique_ptr<BlockDevice> make_pool(SwapFiles files, std::size_t tickets);

}  // namespace ration::offload
