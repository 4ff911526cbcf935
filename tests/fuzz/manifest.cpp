// Whatever a manifest says behind a checksum that agrees: it is refused as corrupt in few words, or
// what came out is the same when it has been written and read again.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <xxhash.h>

#include <ration/error.hpp>

#include "checkpoint/manifest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ration::checkpoint;
  // Of a seed the checksum is cut off and made anew, so that it can go on where that agrees.
  std::string text(reinterpret_cast<const char*>(data), size);
  text.resize(std::min(text.size(), text.rfind("\"checksum\": \"")));
  text += fmt::format("\"checksum\": \"{:016x}\"}}\n", XXH3_64bits(text.data(), text.size()));
  Manifest manifest;
  try {
    manifest = parse_manifest(text, "there");
  } catch (const ration::CorruptCheckpoint& error) {
    if (std::strlen(error.what()) > 1000) std::abort();
    return 0;
  }
  const std::string again = to_text(manifest);
  if (to_text(parse_manifest(again, "again")) != again) std::abort();
  for (const FlatPlace& place : flats_of(manifest)) {
    for (const ParameterEntry& p : flat_at(manifest, place).parameters) {
      if (p.offset + p.count() > flat_at(manifest, place).length) std::abort();
    }
  }
  return 0;
}
