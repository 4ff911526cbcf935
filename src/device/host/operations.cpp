#include "device/operations.hpp"

#include <cstring>

#include "device/host/arithmetic.hpp"
#include "device/host/host_stream.hpp"

namespace ration::device {
namespace {

HostStream& host(Stream& stream) {
  return static_cast<HostStream&>(stream);
}

}  // namespace

void zero(Stream& stream, std::byte* to, std::size_t bytes) {
  if (bytes == 0) return;
  host(stream).enqueue([=](bool) {
    std::memset(to, 0, bytes);
    return true;
  });
}

void copy(Stream& stream, const std::byte* from, std::byte* to, std::size_t bytes) {
  if (bytes == 0) return;
  host(stream).enqueue([=](bool) {
    std::memcpy(to, from, bytes);
    return true;
  });
}

void cast(Stream& stream, const std::byte* from, DType from_type, std::byte* to, DType to_type,
          std::size_t count) {
  host(stream).enqueue([=](bool) {
    arithmetic().cast(from, from_type, to, to_type, count);
    return true;
  });
}

void add(Stream& stream, const std::byte* from, DType from_type, std::byte* to, std::size_t count) {
  host(stream).enqueue([=](bool) {
    arithmetic().add(from, from_type, reinterpret_cast<float*>(to), count);
    return true;
  });
}

void squared_norm(Stream& stream, const std::byte* values, DType type, std::size_t count,
                  double* sum) {
  host(stream).enqueue([=](bool) {
    NormTree tree;
    tree.add(values, type, count);
    *sum = tree.sum();
    return true;
  });
}

std::unique_ptr<Stream> make_host_compute_stream() {
  return std::make_unique<HostStream>(HostStream::Mode::immediate, "compute");
}

}  // namespace ration::device
