#pragma once
// HDF5 where files are read, or made of more than contiguous arrays: identifiers of any kind, and
// arrays of several dimensions. Errors are for the caller to judge.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/hdf5.hpp"

namespace ration::checkpoint::hdf5 {

/// An open identifier of any kind, or none where the call that gave it failed.
class Object {
 public:
  Object() = default;
  explicit Object(hid_t id) : id_(id) {}
  Object(Object&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Object& operator=(Object&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() { close(); }

  // NOLINTNEXTLINE(google-explicit-constructor): it stands for the identifier in HDF5's calls
  operator hid_t() const { return id_; }
  void close() noexcept {
    if (id_ >= 0) H5Idec_ref(id_);
    id_ = H5I_INVALID_HID;
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

/// While it lives, this thread's HDF5 errors are not printed.
class Quiet {
 public:
  Quiet() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Quiet() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

/// HDF5's innermost reason for the last error of this thread.
std::string reason();

/// Which of a parameter's types a file's type is, if any.
std::optional<DType> dtype_of(hid_t type);

/// How files are opened: no locks, closed only when nothing in them is open.
Object access();

/// A row-major array's elements [first, first + count) as boxes, in order.
struct Box {
  std::vector<hsize_t> start;
  std::vector<hsize_t> count;
};
std::vector<Box> boxes(const std::vector<std::int64_t>& shape, std::int64_t first,
                       std::int64_t count);

Object space_of(const std::vector<std::int64_t>& shape);

}  // namespace ration::checkpoint::hdf5
