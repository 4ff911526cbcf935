#pragma once
// Array operations put into a stream, whatever device it belongs to. Pointers must stay valid until
// the stream is past them.

#include <cstddef>

#include <ration/dtype.hpp>

#include "device/stream.hpp"

namespace ration::device {

void zero(Stream& stream, std::byte* to, std::size_t bytes);
void copy(Stream& stream, const std::byte* from, std::byte* to, std::size_t bytes);
void cast(Stream& stream, const std::byte* from, DType from_type, std::byte* to, DType to_type,
          std::size_t count);
/// to[i] += from[i], `to` fp32.
void add(Stream& stream, const std::byte* from, DType from_type, std::byte* to, std::size_t count);
/// *sum = the sum of squares as docs/numerics.md fixes it.
void squared_norm(Stream& stream, const std::byte* values, DType type, std::size_t count,
                  double* sum);

/// The stream that is the calling thread: work put into it is done before the call returns.
std::unique_ptr<Stream> make_host_compute_stream();

}  // namespace ration::device
