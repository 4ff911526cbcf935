#pragma once
// HDF5's C interface, as far as files are made here: handles that close themselves, failures that
// are IoError with HDF5's own words.

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hdf5.h>

#include <ration/dtype.hpp>

#include "checkpoint/hdf5_memory.hpp"
#include "io/file.hpp"

namespace ration::checkpoint::hdf5 {

/// One at a time in HDF5: not every build of it is safe for threads.
std::mutex& mutex();

/// Throws IoError "WHAT: the innermost of HDF5's reasons".
[[noreturn]] void fail(std::string_view what);

/// An identifier with the function that closes it.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  /// Throws IoError when `id` is an error.
  Handle(hid_t id, Close close, std::string_view what);
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { close(); }
  operator hid_t() const { return id_; }  // NOLINT(google-explicit-constructor): given to HDF5
  herr_t close() { return id_ < 0 ? 0 : close_(std::exchange(id_, H5I_INVALID_HID)); }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

/// Of elements in a file: little-endian floats; bf16 has 8 bits of exponent and 7 of mantissa.
Handle file_type(DType type);

/// A file under way: made exclusively, version 1.10's format, no locks, every object at a multiple
/// of 4,096 bytes. HDF5 makes it in memory, which takes no more than its metadata does, and `close`
/// writes it: HDF5 1.10 does not recover from a failed write (no later file of the process can be
/// made, and it crashes at exit), so it must never see one. Hold `mutex()` meanwhile.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& path);

  /// Contiguous, with its place in the file from the beginning, and nothing written there. Returns
  /// the offset of its first byte. `name` is a path; groups are made. `size` is not empty.
  std::uint64_t add_dataset(const std::string& name, hid_t type, const std::vector<hsize_t>& size);
  /// To the root (""), a group or a dataset.
  void add_text(const std::string& object, const char* name, std::string_view value);
  void add_number(const std::string& object, const char* name, std::int64_t value);
  /// Another name for a dataset.
  void add_link(const std::string& name, const std::string& existing);

  [[nodiscard]] hid_t id() const { return file_; }
  /// Writes the file, its data as a hole. Throws IoError also when something was left open.
  void close();

 private:
  Handle open_object(const std::string& object) const;

  std::string path_;
  io::File target_;
  MemoryFile memory_;
  Handle file_;
};

/// A name as one component of a path: "/" and "%" as %2F and %25, a lone "." as %2E.
std::string escaped(std::string_view name);

}  // namespace ration::checkpoint::hdf5
